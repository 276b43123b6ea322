//! The file: which hosts there are, in which environments, and how they are linked.

mod keys;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::environment::Kind;
use crate::error::Error;
use crate::impairment::Impairment;
use crate::kinds;
use crate::settings::{HostSettings, LinkSettings};

/// A device's name has room for this many bytes.
const MAX_NAME_LEN: usize = 15;
const MAX_ENDS: usize = 200;

/// Hosts and the links between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    #[serde(default)]
    pub host: BTreeMap<String, HostSpec>,
    #[serde(default)]
    pub link: Vec<LinkSpec>,
}

/// A machine of the experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "toml::Table")]
pub struct HostSpec {
    /// The environment's name: one of [`crate::KINDS`].
    pub env: String,
    /// CPUs that its programs are confined to; empty for any.
    pub cpus: Vec<usize>,
    /// Capabilities of programs in an engine's container beyond the engine's default, such as
    /// `CAP_NET_ADMIN`. In other environments each program names its own.
    pub capabilities: Vec<String>,
    /// Whether its memory is in huge pages; for virtual machines.
    #[serde(rename = "huge-pages")]
    pub huge_pages: bool,
    #[serde(flatten)]
    pub settings: HostSettings,
}

/// A wire between two hosts, or among many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "toml::Table")]
pub struct LinkSpec {
    pub ends: Vec<String>,
    pub kind: LinkKind,
    /// IPv4 network; unset, one of the bed's choosing that depends on the link's place alone.
    pub v4: Option<Subnet>,
    /// IPv6 network, likewise.
    pub v6: Option<Subnet>,
    /// This machine's own devices, one for each end, which the hosts have meanwhile; for `nic` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<String>,
    /// Ports of the engine's container that its other end reaches; for `published` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub publish: Vec<u16>,
    /// Capacity, delay, jitter and loss; for `impaired` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impairment: Option<Impairment>,
    #[serde(flatten)]
    pub settings: LinkSettings,
}

/// How hosts are wired together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkKind {
    /// A virtual cable between two hosts.
    Direct,
    /// A Linux bridge of its own, with a cable to each host.
    Bridge,
    /// A macvlan device per host on one parent.
    Macvlan,
    /// An engine's own network, as its users have it: a bridge of the engine's, and ports of the container's
    /// that the engine publishes by translation of addresses. A cable leads to where the engine is.
    Published,
    /// Devices of this machine, by name. The cables between them are not under our control.
    Nic,
    /// Two cables with a program between them that delays, jitters and loses frames.
    Impaired,
}

/// An address and prefix length, as `10.1.0.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Subnet {
    pub address: IpAddr,
    pub prefix_len: u8,
}

impl Topology {
    /// Reads and checks a topology.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let topology: Self =
            toml::from_str(text).map_err(|error| Error::Topology(error.to_string()))?;
        topology.check()?;
        Ok(topology)
    }

    /// Whether it can be built, whatever the machine.
    pub fn check(&self) -> Result<(), Error> {
        for (name, host) in &self.host {
            check_name(name)?;
            let kind = host.kind(name)?;
            if host.huge_pages && !kind.guest {
                return refuse(format!("host {name}: huge pages are for virtual machines"));
            }
        }
        for (number, link) in self.link.iter().enumerate() {
            link.check(&self.host)
                .map_err(|why| Error::Topology(format!("link {}: {why}", number + 1)))?;
        }
        if self.link.len() > 250 {
            return refuse("at most 250 links".to_owned());
        }
        Ok(())
    }
}

impl LinkSpec {
    /// A link with the usual settings.
    pub fn new(kind: LinkKind, ends: &[&str]) -> Self {
        Self {
            ends: ends.iter().map(|&end| end.to_owned()).collect(),
            kind,
            v4: None,
            v6: None,
            nics: Vec::new(),
            publish: Vec::new(),
            impairment: None,
            settings: LinkSettings::default(),
        }
    }

    /// A wire between devices of this machine, one for each end.
    pub fn nics(ends: &[&str], nics: &[String]) -> Self {
        let mut link = Self::new(LinkKind::Nic, ends);
        link.nics = nics.to_vec();
        link
    }

    /// The way to a container's ports that its engine publishes.
    pub fn published(ends: &[&str], ports: &[u16]) -> Self {
        let mut link = Self::new(LinkKind::Published, ends);
        link.publish = ports.to_vec();
        link
    }

    /// An impaired link between two hosts; checksums are the senders' to finish.
    pub fn impaired(ends: &[&str], impairment: Impairment) -> Self {
        let mut link = Self::new(LinkKind::Impaired, ends);
        link.impairment = Some(impairment);
        link.settings.tx_checksum = false;
        link.settings.tso = false;
        link.settings.udp_segmentation = false;
        link
    }

    fn check_impairment(&self) -> Result<(), String> {
        let settings = &self.settings;
        match (self.kind, self.impairment) {
            (LinkKind::Impaired, None) => {
                Err("an impaired link needs an impairment, such as { delay-us = 500 }".to_owned())
            }
            (LinkKind::Impaired, Some(_)) if settings.tx_checksum || settings.queues != 1 => Err(
                "an impaired link needs tx-checksum, tso and udp-segmentation = false and one queue: \
                 what passes through userspace is complete"
                    .to_owned(),
            ),
            (LinkKind::Impaired, Some(impairment)) if impairment.loss_ppm > 1_000_000 => {
                Err("loss-ppm is at most 1000000".to_owned())
            }
            (LinkKind::Impaired, Some(_)) | (_, None) => Ok(()),
            (_, Some(_)) => Err("an impairment needs kind = \"impaired\"".to_owned()),
        }
    }

    /// Its name in settings and errors: `sender-relay`.
    pub fn name(&self) -> String {
        self.ends.join("-")
    }

    fn check(&self, hosts: &BTreeMap<String, HostSpec>) -> Result<(), String> {
        if let Some(unknown) = self.ends.iter().find(|end| !hosts.contains_key(*end)) {
            return Err(format!("no host {unknown:?}"));
        }
        let different: BTreeSet<_> = self.ends.iter().collect();
        if different.len() != self.ends.len() {
            return Err("a host cannot be at two of its ends".to_owned());
        }
        match (self.kind, self.ends.len()) {
            (LinkKind::Direct | LinkKind::Impaired | LinkKind::Published, 2) => {}
            (LinkKind::Direct, _) => return Err("a direct link has two ends".to_owned()),
            (LinkKind::Impaired, _) => return Err("an impaired link has two ends".to_owned()),
            (LinkKind::Published, _) => return Err("a published link has two ends".to_owned()),
            // Its other end may be outside the topology.
            (LinkKind::Nic, 1..=MAX_ENDS) => {}
            (_, 2..=MAX_ENDS) => {}
            _ => return Err(format!("a link has 2 to {MAX_ENDS} ends")),
        }
        for (subnet, v4, least) in [(self.v4, true, 24), (self.v6, false, 64)] {
            match subnet {
                Some(subnet) if subnet.address.is_ipv4() != v4 => {
                    return Err(format!("{} is of the other family", String::from(subnet)));
                }
                Some(subnet) if subnet.prefix_len > least => {
                    let text = String::from(subnet);
                    return Err(format!("{text} is too small: prefixes to /{least}"));
                }
                _ => {}
            }
        }
        self.check_impairment()?;
        match (self.kind, self.nics.len()) {
            (LinkKind::Nic, nics) if nics == self.ends.len() => {}
            (LinkKind::Nic, _) => return Err("a link of nics names one for each end".to_owned()),
            (_, 0) => {}
            _ => return Err("nics need kind = \"nic\"".to_owned()),
        }
        match (self.kind, self.publish.is_empty()) {
            (LinkKind::Published, true) => {
                return Err("a published link needs ports, such as publish = [80]".to_owned());
            }
            (LinkKind::Published, false) | (_, true) => {}
            _ => return Err("publish needs kind = \"published\"".to_owned()),
        }
        self.settings
            .contradiction()
            .map_or(Ok(()), |why| Err(why.to_owned()))
    }
}

impl HostSpec {
    /// A namespace of this machine with the usual settings.
    pub fn native() -> Self {
        Self::of("native")
    }

    /// A host with the usual settings in the environment of this name.
    pub fn of(env: &str) -> Self {
        Self {
            env: env.to_owned(),
            cpus: Vec::new(),
            capabilities: Vec::new(),
            huge_pages: false,
            settings: HostSettings::default(),
        }
    }

    /// With these capabilities for the programs of an engine's container.
    #[must_use]
    pub fn may(mut self, capabilities: &[&str]) -> Self {
        self.capabilities = capabilities.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// The kind of environment that the host called `name` asks for.
    pub(crate) fn kind(&self, name: &str) -> Result<&'static Kind, Error> {
        Kind::find(&self.env).ok_or_else(|| {
            let (env, there_is) = (&self.env, kinds::names());
            Error::Topology(format!(
                "host {name}: no environment {env:?}; there is: {there_is}"
            ))
        })
    }
}

impl Subnet {
    /// The address of the host at place `number` (from 1).
    pub(crate) fn host(self, number: usize) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let number = u32::try_from(number).unwrap_or(u32::MAX);
                Ipv4Addr::from_bits(address.to_bits() | number).into()
            }
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() | number as u128).into(),
        }
    }
}

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a network: write 10.1.0.0/24 or fd00::/64");
        let (address, prefix_len) = text.split_once('/').ok_or_else(bad)?;
        let subnet = Self {
            address: address.parse().map_err(|_| bad())?,
            prefix_len: prefix_len.parse().map_err(|_| bad())?,
        };
        let (bits, host_bits) = match subnet.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shr(subnet.prefix_len.into());
                (32, u128::from(address.to_bits() & mask.unwrap_or(0)))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shr(subnet.prefix_len.into());
                (128, address.to_bits() & mask.unwrap_or(0))
            }
        };
        if subnet.prefix_len > bits || host_bits != 0 {
            return Err(bad());
        }
        Ok(subnet)
    }
}

impl TryFrom<String> for Subnet {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Subnet> for String {
    fn from(subnet: Subnet) -> Self {
        format!("{}/{}", subnet.address, subnet.prefix_len)
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    let usable = !name.is_empty()
        && name.len() <= MAX_NAME_LEN
        && name != "lo"
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if usable {
        return Ok(());
    }
    refuse(format!(
        "host {name:?}: names have 1 to {MAX_NAME_LEN} of a-z, 0-9 and -, and are not lo"
    ))
}

fn refuse<T>(why: String) -> Result<T, Error> {
    Err(Error::Topology(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE_HOSTS: &str = r#"
        [host.sender]
        env = "native"
        cpus = [0]
        [host.relay]
        env = "native"
        forward = true
        [host.receiver]
        env = "native"
        neighbours = "dynamic"
        [[link]]
        ends = ["sender", "relay"]
        kind = "direct"
        queues = 2
        tx-checksum = false
        tso = false
        udp-segmentation = false
        [[link]]
        ends = ["relay", "receiver"]
        kind = "bridge"
        v4 = "192.0.2.0/24"
    "#;

    #[test]
    fn a_file_is_read_and_what_it_leaves_out_is_the_default() {
        let topology = Topology::parse(THREE_HOSTS).unwrap();
        assert_eq!(topology.host["sender"].cpus, [0]);
        assert!(topology.host["relay"].settings.forward);
        assert_eq!(topology.link[0].settings.queues, 2);
        assert!(topology.link[0].settings.gro);
        assert_eq!(topology.link[1].kind, LinkKind::Bridge);
        let again = toml::to_string(&topology).unwrap();
        assert_eq!(Topology::parse(&again).unwrap(), topology);
    }

    #[test]
    fn what_cannot_be_built_is_refused_by_name() {
        for (from, to, said) in [
            ("cpus", "cpu", "unknown field `cpu`"),
            ("queues", "queue", "unknown field `queue`"),
            ("\"direct\"", "\"wormhole\"", "wormhole"),
            (
                "env = \"native\"\n        cpus",
                "env = \"moon\"\n        cpus",
                "moon",
            ),
            (
                "[\"sender\", \"relay\"]",
                "[\"sender\", \"rely\"]",
                "no host \"rely\"",
            ),
            (
                "[\"sender\", \"relay\"]",
                "[\"relay\", \"relay\"]",
                "two of its ends",
            ),
            ("tso = false", "tso = true", "needs tx-checksum"),
            ("queues = 2", "queues = 0", "at least 1"),
            ("192.0.2.0/24", "192.0.2.1/24", "not a network"),
            ("192.0.2.0/24", "fd00::/64", "other family"),
            ("192.0.2.0/24", "192.0.2.0/30", "too small"),
            ("host.sender", "host.Sender", "names have"),
            ("\"direct\"", "\"impaired\"", "needs an impairment"),
            ("queues = 2", "impairment = { delay-us = 5 }", "needs kind"),
            ("\"direct\"", "\"nic\"", "one for each end"),
            ("queues = 2", "nics = [\"eth1\"]", "need kind"),
            ("\"direct\"", "\"published\"", "needs ports"),
            ("queues = 2", "publish = [80]", "needs kind"),
            (
                "kind = \"direct\"",
                "kind = \"impaired\"\nimpairment = { delay-us = 5 }",
                "one queue",
            ),
        ] {
            assert!(THREE_HOSTS.contains(from), "{from}");
            let text = THREE_HOSTS.replace(from, to);
            let error = Topology::parse(&text).unwrap_err().to_string();
            assert!(error.contains(said), "{to}: {error}");
        }
    }

    #[test]
    fn addresses_follow_the_place_in_the_subnet() {
        let v4: Subnet = "10.1.0.0/16".parse().unwrap();
        assert_eq!(v4.host(300), "10.1.1.44".parse::<IpAddr>().unwrap());
        let v6: Subnet = "fd00::/64".parse().unwrap();
        assert_eq!(v6.host(2), "fd00::2".parse::<IpAddr>().unwrap());
    }
}
