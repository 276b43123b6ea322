//! What users say about streams and subscribers, in configuration files and control requests, and
//! what is wrong with it. Whether the machine can carry it out is decided later.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use netdev::policy::Check;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::plan::{MAX_FANOUT, PerPacket, Prefix};
use crate::userspace;
use units::{Pps, Span};

/// Maximum time that a worker may spend on a packet.
const MAX_WORK: Duration = Duration::from_millis(10);

/// A stream as users describe it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamSpec {
    pub name: String,
    /// Where it comes in: an address of this machine, a wildcard, or a group.
    #[serde(deserialize_with = "canonical")]
    pub listen: SocketAddr,
    pub datapath: String,
    pub source: Source,
    /// Interfaces it may arrive on; none named: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
    #[serde(default)]
    pub rate: Rate,
    /// CPU time spent on each packet before it is forwarded: a measuring aid that stands for what
    /// a relay does beyond forwarding. Userspace datapaths only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Span>,
    /// Parity datagrams for each subscriber. Userspace datapaths only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fec: Option<Fec>,
    /// How long a latch survives its holder's silence.
    #[serde(default = "latch_timeout")]
    pub latch_timeout: Span,
    /// TTL or hop limit of the copies; absent: one less than on arrival, so that datagrams with TTL 1 are dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u8>,
    /// What of the kernel's policy a fast path skips for this stream.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "local_checks"
    )]
    pub bypass: Vec<Check>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multicast: Option<Multicast>,
    #[serde(default, rename = "subscriber")]
    pub subscribers: Vec<SubscriberSpec>,
}

/// An IPv4-mapped address (RFC 4291, section 2.5.5.2) means the IPv4 address.
fn canonical<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    SocketAddr::deserialize(deserializer).map(unmapped)
}

fn canonical_option<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    let address = Option::<SocketAddr>::deserialize(deserializer)?;
    Ok(address.map(unmapped))
}

/// Names of [`Check::LOCAL`].
fn local_checks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Check>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    let check = |name: &String| Check::named(name, Check::LOCAL);
    let checks = names.iter().map(check).collect::<Result<_, _>>();
    checks.map_err(de::Error::custom)
}

fn unmapped(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        v4 @ IpAddr::V4(_) => SocketAddr::new(v4, address.port()),
        // Keeps the scope.
        IpAddr::V6(_) => address,
    }
}

fn latch_timeout() -> Span {
    Span(Duration::from_secs(30))
}

/// A receiver as users describe it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubscriberSpec {
    pub name: String,
    #[serde(deserialize_with = "canonical")]
    pub to: SocketAddr,
    /// The address packets come from; by default the stream's own where it can be.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "canonical_option"
    )]
    pub from: Option<SocketAddr>,
    /// The interface packets leave by; groups and link-local addresses need one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// TTL or hop limit of its copies instead of the stream's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u8>,
    /// How long it stays without being added again; absent: for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Span>,
}

/// Packet rate limits.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<Pps>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Pps>,
}

/// After every `group` packets, the exclusive or of their payloads is sent as one more datagram,
/// from which any one of them can be rebuilt; its header is described in
/// `userspace/fec.rs`.
/// Payloads are best 16 bytes shorter than the path allows: the parity is longer than the longest.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fec {
    /// 2 to 64.
    pub group: u8,
}

/// How a group is joined.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Multicast {
    pub interface: String,
    /// Join for this sender only (source-specific multicast).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
}

/// The permitted senders: `"any"`, `"latch"`, or a list of prefixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Any,
    Latch,
    Prefixes(Vec<Prefix>),
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;
        impl<'de> Visitor<'de> for Words {
            type Value = Source;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"any\", \"latch\" or a list of prefixes")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Source, E> {
                match word {
                    "any" => Ok(Source::Any),
                    "latch" => Ok(Source::Latch),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Source, A::Error> {
                let mut prefixes = Vec::new();
                while let Some(text) = list.next_element::<String>()? {
                    prefixes.push(text.parse().map_err(de::Error::custom)?);
                }
                Ok(Source::Prefixes(prefixes))
            }
        }
        deserializer.deserialize_any(Words)
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Any => serializer.serialize_str("any"),
            Self::Latch => serializer.serialize_str("latch"),
            Self::Prefixes(prefixes) => {
                serializer.collect_seq(prefixes.iter().map(|prefix| prefix.to_string()))
            }
        }
    }
}

/// An error in a description, and the part that contains it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    pub part: Part,
    pub message: String,
}

/// A part of a stream's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What this key says, or does not say.
    Key(&'static str),
    /// The subscriber at this index.
    Subscriber(usize),
}

/// The key of a stream that is wrong, and the reason.
type KeyProblem = (&'static str, String);

impl StreamSpec {
    /// Checks the description by itself; `datapaths` are the names there are, `others` the streams
    /// it will run beside.
    pub fn check(&self, datapaths: &[&str], others: &[Self]) -> Result<(), Problem> {
        self.check_stream(datapaths, others)
            .map_err(|(key, what)| Problem {
                part: Part::Key(key),
                message: format!("stream \"{}\": {what}", self.name),
            })?;
        for (index, subscriber) in self.subscribers.iter().enumerate() {
            self.check_subscriber(subscriber, &self.subscribers[..index], others)
                .map_err(|what| Problem {
                    part: Part::Subscriber(index),
                    message: format!("subscriber \"{}\": {what}", subscriber.name),
                })?;
        }
        Ok(())
    }

    fn check_stream(&self, datapaths: &[&str], others: &[Self]) -> Result<(), KeyProblem> {
        if self.name.is_empty() {
            return Err(("name", "a stream needs a name".into()));
        }
        if !datapaths.contains(&self.datapath.as_str()) {
            let known = datapaths.join(", ");
            let message = format!("no datapath \"{}\"; there are {known}", self.datapath);
            return Err(("datapath", message));
        }
        let costly = if self.work.is_some() { "work" } else { "fec" };
        self.check_work(&self.datapath)
            .map_err(|what| (costly, what))?;
        if others.iter().any(|other| other.name == self.name) {
            return Err(("name", "this name is taken".into()));
        }
        self.check_loop(others).map_err(|what| ("listen", what))?;
        self.check_ingest()?;
        self.check_source().map_err(|what| ("source", what))?;
        check_ttl(self.ttl).map_err(|what| ("ttl", what))?;
        if self.subscribers.len() > MAX_FANOUT {
            let message = format!(
                "{} subscribers; {MAX_FANOUT} at most",
                self.subscribers.len()
            );
            return Err(("subscriber", message));
        }
        Ok(())
    }

    /// Checks that no other stream comes in at the same place or is sent there.
    fn check_loop(&self, others: &[Self]) -> Result<(), String> {
        if let Some(other) = others
            .iter()
            .find(|other| overlaps(other.listen, self.listen))
        {
            return Err(format!(
                "{} is the ingest of stream \"{}\"",
                self.listen, other.name
            ));
        }
        let mut fed = others
            .iter()
            .flat_map(|other| other.subscribers.iter().map(move |to| (other, to)));
        match fed.find(|(_, subscriber)| self.leads_to(subscriber.to)) {
            Some((other, subscriber)) => Err(format!(
                "{} is where subscriber \"{}\" of stream \"{}\" is sent (loop)",
                self.listen, subscriber.name, other.name
            )),
            None => Ok(()),
        }
    }

    /// The work on each packet as datapaths are told it.
    pub fn per_packet(&self) -> PerPacket {
        PerPacket {
            spin: self.work.map_or(Duration::ZERO, |work| work.0),
            fec_group: self.fec.map(|fec| fec.group),
        }
    }

    /// Whether `datapath` can do the work on each packet.
    pub(crate) fn check_work(&self, datapath: &str) -> Result<(), String> {
        let work = self.per_packet();
        if work.spin > MAX_WORK {
            return Err("work is at most 10ms for each packet".into());
        }
        if work
            .fec_group
            .is_some_and(|group| !(2..=64).contains(&group))
        {
            return Err("a group of fec has 2 to 64 packets".into());
        }
        if work.is_none() || userspace::has(datapath) {
            return Ok(());
        }
        Err(format!(
            "work and fec are done in userspace: the fast path does not apply, choose {} instead of {datapath}",
            userspace::NAMES.join(", ")
        ))
    }

    fn check_ingest(&self) -> Result<(), KeyProblem> {
        if self.listen.port() == 0 {
            return Err(("listen", "the ingest needs a port".into()));
        }
        let group = self.listen.ip();
        match &self.multicast {
            None if is_group(self.listen) => Err((
                "listen",
                format!("{group} is a group: say multicast = {{ interface = \"...\" }}"),
            )),
            Some(_) if !is_group(self.listen) => Err(("listen", format!("{group} is no group"))),
            Some(Multicast {
                source: Some(sender),
                ..
            }) if sender.is_ipv4() != group.is_ipv4() => Err((
                "multicast",
                format!("sender {sender} and group are of different families"),
            )),
            _ => Ok(()),
        }
    }

    fn check_source(&self) -> Result<(), String> {
        let sender = self.multicast.as_ref().and_then(|by| by.source);
        if let Some(sender) = sender
            && self.source == Source::Latch
        {
            return Err(format!(
                "the group is joined for {sender} only: there is nobody else to latch; say source = \"any\""
            ));
        }
        let Source::Prefixes(prefixes) = &self.source else {
            return Ok(());
        };
        if let Some(sender) = sender
            && !prefixes.iter().any(|prefix| prefix.contains(sender))
        {
            return Err(format!(
                "the group is joined for {sender}, which may not send"
            ));
        }
        let foreign = |prefix: &&Prefix| prefix.address.is_ipv4() != self.listen.is_ipv4();
        match prefixes.iter().find(foreign) {
            Some(prefix) => Err(format!("source {prefix} is not of the ingest's family")),
            None if prefixes.is_empty() => {
                Err("the list of sources is empty: nobody may send".into())
            }
            None => Ok(()),
        }
    }

    /// Checks one subscriber against those before it and against every ingest.
    pub fn check_subscriber(
        &self,
        subscriber: &SubscriberSpec,
        before: &[SubscriberSpec],
        others: &[Self],
    ) -> Result<(), String> {
        let to = subscriber.to;
        if subscriber.name.is_empty() {
            return Err("a subscriber needs a name".into());
        }
        if before.iter().any(|other| other.name == subscriber.name) {
            return Err("this name is taken".into());
        }
        if let Some(other) = before.iter().find(|other| other.to == to) {
            return Err(format!("{to} is subscriber \"{}\" already", other.name));
        }
        if to.port() == 0 || to.ip().is_unspecified() {
            return Err(format!("{to} is no destination"));
        }
        if to.ip() == IpAddr::from([255, 255, 255, 255]) {
            return Err("broadcast is no destination".into());
        }
        if self.leads_to(to) || others.iter().any(|other| other.leads_to(to)) {
            return Err(format!(
                "destination {to} is this relay's own ingest (loop)"
            ));
        }
        if is_group(to) && subscriber.interface.is_none() {
            return Err(format!("{} is a group: say interface = \"...\"", to.ip()));
        }
        if let SocketAddr::V6(v6) = to
            && v6.ip().is_unicast_link_local()
            && v6.scope_id() == 0
            && subscriber.interface.is_none()
        {
            return Err(format!(
                "{} is a link-local address: say interface = \"...\"",
                to.ip()
            ));
        }
        check_ttl(subscriber.ttl)?;
        match subscriber.from {
            Some(from) if from.is_ipv4() != to.is_ipv4() => {
                Err(format!("from {from} and to {to} are of different families"))
            }
            Some(from) if from.ip().is_unspecified() || is_group(from) || from.port() == 0 => {
                Err(format!("{from} is no address to send from"))
            }
            _ => Ok(()),
        }
    }

    /// Whether packets to this destination come in here again. A wildcard's own addresses are
    /// known to the machine only: see `core`.
    fn leads_to(&self, to: SocketAddr) -> bool {
        let listens_on_all =
            self.listen.ip().is_unspecified() && self.listen.is_ipv4() == to.is_ipv4();
        self.listen == to
            || (listens_on_all && to.ip().is_loopback() && self.listen.port() == to.port())
    }
}

/// No host forwards, and some do not take, a datagram with TTL 0.
fn check_ttl(ttl: Option<u8>) -> Result<(), String> {
    match ttl {
        Some(0) => Err("ttl is 1 to 255".into()),
        _ => Ok(()),
    }
}

fn is_group(address: SocketAddr) -> bool {
    address.ip().is_multicast()
}

/// Whether one socket's address covers the other's.
fn overlaps(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && (one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified())
}
