//! What users are told: counts by name, and for each subscriber its forwarding path and why.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use control::metrics::MetricSet;
use datapath::Detachment;
use netdev::{NextHop, UnresolvedReason};
use serde::{Deserialize, Serialize};

use super::instance::Counts;
use super::machine::Machine;
use super::stream::{Stream, Subscriber};
use super::{Core, State, metrics, switch};
use crate::counters::{DropReason, Drops, SubscriberCounters, Traffic};
use crate::handover::FastPath;
use crate::plan::drop_reason;

/// A stream's counts since it was added, whatever datapaths it was on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamView {
    pub stream: String,
    pub listen: SocketAddr,
    /// Absent while it changes hands.
    pub datapath: Option<String>,
    pub received: Traffic,
    pub forwarded: Traffic,
    /// Datagrams that the present fast path left to userspace; they are in `received` once.
    pub passed_packets: u64,
    pub drops: Drops,
    /// Copies for subscribers on this machine that a fast path or a full queue lost.
    #[serde(default)]
    pub copies_lost: u64,
    pub latched: Option<SocketAddr>,
    pub subscribers: Vec<SubscriberView>,
}

/// A subscriber's counts since it was added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriberView {
    pub subscriber: String,
    pub to: SocketAddr,
    pub from: SocketAddr,
    pub delivered: Traffic,
    pub drops: Drops,
}

/// The forwarding path of a stream's subscribers, and why it is not the fast one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    pub stream: String,
    pub listen: SocketAddr,
    pub datapath: Option<String>,
    /// The datapath keeps packets out of userspace.
    pub has_fast_path: bool,
    /// Subscribers served the datapath's own way, of all.
    pub served: usize,
    pub subscribers: usize,
    pub latched: Option<SocketAddr>,
    /// Why nothing can come in, while the machine lacks what the stream comes in by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
    /// What of the kernel's policy its fast path skips as configured, and the rule that would hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bypassed: Vec<String>,
    pub drops: Drops,
    #[serde(default)]
    pub copies_lost: u64,
    /// To whom the last copy of a datagram goes and which way, where there is more than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_copy: Option<String>,
    /// The interfaces whose datagrams userspace relays, and why the fast path does not take them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unattached: Vec<String>,
    /// Devices that other programs have detached the fast path from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub detachments: Vec<Detachment>,
    /// Why not, for each that is not, or that lost copies.
    pub slow: Vec<SlowSubscriber>,
}

/// A subscriber that does not get every packet the datapath's own way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowSubscriber {
    pub subscriber: String,
    pub to: SocketAddr,
    pub reason: String,
    pub drops: Drops,
}

impl Core {
    /// Every stream's counts.
    pub fn counters(&self) -> Vec<StreamView> {
        self.lock().views()
    }

    /// One scrape. Each datapath's counters are read once.
    pub fn metrics(&self) -> MetricSet {
        metrics::metrics(&self.counters())
    }

    /// The forwarding paths of every stream, or of one.
    pub fn explain(&self, stream: Option<&str>) -> Result<Vec<Explanation>, control::Error> {
        let mut state = self.lock();
        // The names of devices.
        state.machine.refresh();
        let streams = match stream {
            None => &state.streams[..],
            Some(name) => std::slice::from_ref(&state.streams[state.find(name)?]),
        };
        let present = state.present();
        let explain = |stream| state.explain(stream, &present);
        Ok(streams.iter().map(explain).collect())
    }
}

impl State {
    pub(super) fn views(&self) -> Vec<StreamView> {
        let present = self.present();
        let view = |stream| self.view(stream, &present);
        self.streams.iter().map(view).collect()
    }

    fn view(&self, stream: &Stream, present: &BTreeMap<&str, Counts>) -> StreamView {
        let (mut counters, passed_packets) = self.counters(stream, present);
        let subscribers = stream.subscribers.iter().map(|subscriber| {
            let counts = counters.subscribers.remove(&subscriber.id.0);
            let SubscriberCounters { delivered, drops } = counts.unwrap_or_default();
            SubscriberView {
                subscriber: subscriber.spec.name.clone(),
                to: subscriber.spec.to,
                from: subscriber.source,
                delivered,
                drops,
            }
        });
        StreamView {
            subscribers: subscribers.collect(),
            stream: stream.spec.name.clone(),
            listen: stream.spec.listen,
            datapath: stream.place.datapath.clone(),
            received: counters.received,
            forwarded: counters.forwarded,
            passed_packets,
            drops: counters.drops,
            copies_lost: counters.copies_lost,
            latched: counters.latched,
        }
    }

    fn explain(&self, stream: &Stream, present: &BTreeMap<&str, Counts>) -> Explanation {
        let view = self.view(stream, present);
        let datapath = view.datapath.as_deref();
        let fast = datapath.and_then(|name| self.fast_path(name));
        let running = datapath.is_some_and(|name| self.instances.contains_key(name));
        let mut slow = Vec::new();
        let mut served = 0;
        for (subscriber, counts) in stream.subscribers.iter().zip(view.subscribers) {
            let refusal = if running {
                refusal(stream, subscriber, fast.as_deref(), &self.machine)
            } else {
                Some("the datapath does not run; see the relay's log".into())
            };
            served += usize::from(refusal.is_none());
            let lost = || lost(subscriber, &counts.drops);
            if let Some(reason) = refusal.or_else(lost) {
                slow.push(SlowSubscriber {
                    subscriber: counts.subscriber,
                    to: counts.to,
                    reason,
                    drops: counts.drops,
                });
            }
        }
        let detachments = datapath.map_or_else(Vec::new, |name| self.detachments(name));
        Explanation {
            has_fast_path: fast.is_some(),
            served,
            subscribers: stream.subscribers.len(),
            stream: view.stream,
            listen: view.listen,
            datapath: view.datapath,
            latched: view.latched,
            absent: stream.absent.clone(),
            bypassed: match stream.place.datapath.as_deref() {
                Some(datapath) if switch::is_fast(datapath) => {
                    stream.policy_on(datapath).bypassed.clone()
                }
                _ => Vec::new(),
            },
            drops: view.drops,
            copies_lost: view.copies_lost,
            unattached: fast.as_ref().map_or_else(Vec::new, |fast| {
                let unattached = fast.unattached(stream.id);
                unattached.into_values().collect()
            }),
            detachments,
            last_copy: fast.and_then(|fast| fast.last_copy(stream.id)),
            slow,
        }
    }
}

/// Why a subscriber gets nothing now, or gets it through userspace.
fn refusal(
    stream: &Stream,
    subscriber: &Subscriber,
    fast: Option<&dyn FastPath>,
    machine: &Machine,
) -> Option<String> {
    let since = subscriber.since.elapsed().as_secs();
    match (&subscriber.next_hop, fast) {
        (NextHop::Unresolved(UnresolvedReason::NoRoute), _) => {
            Some(format!("no route to {}", subscriber.spec.to.ip()))
        }
        (NextHop::Unresolved(UnresolvedReason::LinkDown { ifindex }), _) => {
            Some(format!("{} is down or gone", machine.name(*ifindex)))
        }
        (NextHop::Unresolved(UnresolvedReason::NoNeighbour { ifindex, gateway }), _) => {
            let device = machine.name(*ifindex);
            Some(format!(
                "no neighbour entry for {gateway} on {device}; resolving it for {since} s"
            ))
        }
        (NextHop::Unresolved(UnresolvedReason::Local), Some(_)) => {
            Some("on this machine: userspace sends to it".into())
        }
        (NextHop::Unresolved(UnresolvedReason::Encapsulated), Some(_)) => {
            Some("its route encapsulates packets: userspace sends to it".into())
        }
        (_, Some(fast)) => fast.slow_reason(stream.id, subscriber.id),
        (_, None) => None,
    }
}

/// What copies were lost although the way is open.
fn lost(subscriber: &Subscriber, drops: &Drops) -> Option<String> {
    if drops.total() == 0 {
        return None;
    }
    let mtu = match subscriber.next_hop {
        NextHop::Ready { mtu, .. } => Some(mtu),
        NextHop::Unresolved(_) => None,
    };
    let reasons = drops.0.keys().map(|reason| match (reason, mtu) {
        (DropReason::TooBig, Some(mtu)) => format!("packets exceed the path MTU {mtu}"),
        (DropReason::Transmit, _) => "the interface refused packets".into(),
        _ if drop_reason(&subscriber.next_hop).is_none() => {
            format!("{} in the past", name(*reason))
        }
        _ => name(*reason),
    });
    Some(reasons.collect::<Vec<_>>().join(", "))
}

pub(super) fn name(reason: DropReason) -> String {
    serde_json::to_value(reason)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            stream,
            listen,
            served,
            subscribers,
            ..
        } = self;
        let datapath = self.datapath.as_deref().unwrap_or("being switched");
        let path = if self.has_fast_path {
            "on the fast path"
        } else {
            "served in userspace"
        };
        write!(
            f,
            "{stream}  ingest {listen}   datapath {datapath}   {served} of {subscribers} subscribers {path}"
        )?;
        if let Some(holder) = self.latched {
            write!(f, "   latched by {holder}")?;
        }
        if let Some(reason) = &self.absent {
            write!(f, "\n  nothing can come in  {reason}")?;
        }
        for check in &self.bypassed {
            write!(f, "\n  bypasses  {check}")?;
        }
        if self.drops.total() > 0 {
            write!(f, "\n  refused  {}", DropsText(&self.drops))?;
        }
        if self.copies_lost > 0 {
            write!(f, "\n  {}", LostCopies(self.copies_lost))?;
        }
        if let Some(way) = &self.last_copy {
            write!(f, "\n  last copy  {way}")?;
        }
        for reason in &self.unattached {
            write!(f, "\n  ingest in userspace  {reason}")?;
        }
        for detachment in &self.detachments {
            write!(f, "\n  {detachment}")?;
        }
        for slow in &self.slow {
            let to = slow.to.to_string();
            write!(f, "\n  slow  {to:<24} {}", slow.reason)?;
            if slow.drops.total() > 0 {
                write!(f, "   ({})", DropsText(&slow.drops))?;
            }
        }
        Ok(())
    }
}

/// `drops.too_big 18, drops.no_route 2`
struct DropsText<'a>(&'a Drops);

impl fmt::Display for DropsText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (reason, packets)) in self.0.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            write!(f, "drops.{} {packets}", name(*reason))?;
        }
        Ok(())
    }
}

struct LostCopies(u64);

impl fmt::Display for LostCopies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lost on the way to userspace  copies_lost {}", self.0)
    }
}

impl fmt::Display for StreamView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            stream, received, ..
        } = self;
        let datapath = self.datapath.as_deref().unwrap_or("being switched");
        writeln!(
            f,
            "{stream}  datapath {datapath}   received {} packets {} bytes   forwarded {} packets",
            received.packets, received.bytes, self.forwarded.packets
        )?;
        if self.drops.total() > 0 {
            writeln!(f, "  refused  {}", DropsText(&self.drops))?;
        }
        if self.copies_lost > 0 {
            writeln!(f, "  {}", LostCopies(self.copies_lost))?;
        }
        for subscriber in &self.subscribers {
            let SubscriberView {
                to,
                delivered,
                drops,
                ..
            } = subscriber;
            write!(
                f,
                "  {}  {to}   delivered {} packets {} bytes",
                subscriber.subscriber, delivered.packets, delivered.bytes
            )?;
            if drops.total() > 0 {
                write!(f, "   ({})", DropsText(drops))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_copies_are_shown_with_the_counts() {
        let listen = "192.0.2.1:5004".parse().unwrap();
        let mut view = StreamView {
            stream: "cam1".into(),
            listen,
            datapath: Some("xdp".into()),
            received: Traffic::default(),
            forwarded: Traffic::default(),
            passed_packets: 0,
            drops: Drops::default(),
            copies_lost: 0,
            latched: None,
            subscribers: Vec::new(),
        };
        assert!(!view.to_string().contains("copies_lost"));
        view.copies_lost = 3;
        assert!(view.to_string().contains("copies_lost 3"), "{view}");
    }
}
