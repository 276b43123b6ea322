//! One capture through every datapath: each subscriber gets the same datagrams with the same
//! fields, and the counters tell the same story.

use std::net::{IpAddr, SocketAddr};

use relay::core::{Core, StreamView};
use relay::counters::{DropReason, Drops, Traffic};
use relay::spec::SubscriberSpec;

use crate::common::relay_rig::{Capture, ReceivedDatagram, Rig, await_counts, stream, subscriber};
use crate::common::traffic::{self, Content, Ends, Fate, Item};

const FANOUTS: [usize; 5] = [1, 4, 17, 33, 256];
/// IP packets on every link.
const MTU: usize = 1500;

#[test]
fn an_ipv4_stream_is_the_same_on_every_datapath() {
    if sys::require::root() {
        same_everywhere(Ends::v4(), &FANOUTS, &traffic::capture(Ends::v4()));
    }
}

#[test]
fn an_ipv6_stream_is_the_same_on_every_datapath() {
    if sys::require::root() {
        same_everywhere(Ends::v6(), &FANOUTS, &traffic::capture(Ends::v6()));
    }
}

#[test]
fn captures_from_elsewhere_are_the_same_on_every_datapath() {
    let Some(folder) = sys::require::corpus().filter(|_| sys::require::root()) else {
        return;
    };
    let mut names: Vec<_> = std::fs::read_dir(folder.join("pcap"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "pcap"))
        .collect();
    names.sort();
    let items = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        traffic::retargeted(&name, &std::fs::read(path).unwrap(), Ends::v4(), 150)
    };
    let captures = names.iter().map(items).filter(|items| items.len() >= 100);
    for capture in captures.take(3) {
        same_everywhere(Ends::v4(), &[4], &capture);
    }
}

fn same_everywhere(ends: Ends, fanouts: &[usize], capture: &[Item]) {
    let rig = Rig::new(None);
    for datapath in relay::datapaths() {
        let name = datapath.name();
        if let Err(missing) = rig.relay.run(|| datapath.check()) {
            sys::require::skip(sys::require::Class::Core, &format!("{name}: {missing}"));
            continue;
        }
        for fanout in fanouts {
            Trial::new(&rig, name, ends, *fanout).run(capture);
        }
    }
}

/// From the same CPU: a veth queues the frames of each apart, and a sender that moves overtakes
/// itself.
fn send_in_order(rig: &Rig, ends: Ends, items: &[Item]) {
    let sending = || {
        sys::sched::pin(0).unwrap();
        for item in items {
            item.send(rig, ends);
        }
    };
    std::thread::scope(|scope| scope.spawn(sending).join().unwrap());
}

/// One datapath with so many subscribers.
struct Trial<'a> {
    rig: &'a Rig,
    name: String,
    ends: Ends,
    subscribers: Vec<SubscriberSpec>,
    core: Core,
    wire: Capture,
}

impl<'a> Trial<'a> {
    fn new(rig: &'a Rig, datapath: &str, ends: Ends, fanout: usize) -> Self {
        let subscribers = fan(fanout);
        let spec = stream(datapath, &ends.to.to_string(), subscribers.clone());
        Self {
            rig,
            name: format!("{datapath} to {fanout} from {}", ends.to),
            ends,
            subscribers,
            core: rig.serve(vec![spec]),
            wire: rig.capture(),
        }
    }

    fn run(self, capture: &[Item]) {
        let mut delivered = Vec::new();
        for window in self.windows(capture) {
            send_in_order(self.rig, self.ends, window);
            let expected = window.iter().map(|item| self.deliveries(item)).sum();
            let taken = self.wire.take(expected);
            let what: Vec<_> = window.iter().map(|item| &item.what).collect();
            assert_eq!(
                taken.len(),
                expected,
                "{}: deliveries of {what:?}",
                self.name
            );
            delivered.extend(taken);
        }
        let fast = self.core.explain(None).unwrap()[0].has_fast_path;
        let expected = self.counts(capture, fast);
        await_counts(&self.core, |view| {
            view.received.packets >= expected.received.packets
        });
        delivered.extend(self.wire.rest());
        for at in 0..self.subscribers.len() {
            self.compare(at, capture, &delivered);
        }
        self.compare_routed(capture, &delivered);
        let Self {
            core, wire, name, ..
        } = self;
        let view = core.stop().remove(0);
        assert_eq!(wire.rest(), [], "{name}: after the end");
        compare_counts(&name, view, &expected);
    }

    /// Bursts that no queue on the way is too short for, of one flow each: flows may overtake one
    /// another, as each has one of the receive queues.
    fn windows<'c>(&self, capture: &'c [Item]) -> Vec<&'c [Item]> {
        let most = (48 / self.subscribers.len()).max(1);
        let mut length = 0;
        capture
            .chunk_by(|one, next| {
                let together = !one.alone && !next.alone && !next.partial && !one.partial;
                length = if together && one.flow() == next.flow() && length + 1 < most {
                    length + 1
                } else {
                    0
                };
                length > 0
            })
            .collect()
    }

    fn deliveries(&self, item: &Item) -> usize {
        match &item.fate {
            Fate::Relayed(content) => {
                let fits = |to: &&SubscriberSpec| fits(content, to.to);
                self.subscribers.iter().filter(fits).count()
            }
            Fate::Routed => 1,
            _ => 0,
        }
    }

    /// Every field of every datagram one subscriber gets, in order, and no other.
    fn compare(&self, at: usize, capture: &[Item], delivered: &[ReceivedDatagram]) {
        let to = self.subscribers[at].to;
        let source = source(self.ends.to, to);
        let expected = capture.iter().filter_map(|item| match &item.fate {
            Fate::Relayed(content) if fits(content, to) => Some((item, content)),
            _ => None,
        });
        let mut got = delivered.iter().filter(|copy| copy.destination == to);
        for (item, content) in expected {
            let copy = ReceivedDatagram {
                device: device(to),
                source,
                destination: to,
                ttl: content.ttl,
                tos: content.tos,
                whole: true,
                payload: content.payload.clone(),
            };
            let got = got.next();
            assert_eq!(got, Some(&copy), "{}: {} to {to}", self.name, item.what);
        }
        assert_eq!(got.next(), None, "{}: one too many to {to}", self.name);
    }

    /// What is nobody's stream is the router's, and nothing else leaves.
    fn compare_routed(&self, capture: &[Item], delivered: &[ReceivedDatagram]) {
        let routed = capture
            .iter()
            .filter(|item| matches!(item.fate, Fate::Routed));
        let subscribed = |copy: &&ReceivedDatagram| {
            !self
                .subscribers
                .iter()
                .any(|subscriber| subscriber.to == copy.destination)
        };
        let others: Vec<_> = delivered.iter().filter(subscribed).collect();
        assert_eq!(others.len(), routed.count(), "{}: {others:?}", self.name);
        for copy in others {
            assert_eq!(
                (copy.source, copy.ttl),
                (self.ends.from, 63),
                "{}",
                self.name
            );
        }
    }

    /// What the relay must have counted.
    fn counts(&self, capture: &[Item], fast: bool) -> Counts {
        let mut counts = Counts {
            subscribers: vec![(Traffic::default(), Drops::default()); self.subscribers.len()],
            ..Counts::default()
        };
        for item in capture {
            match &item.fate {
                Fate::Relayed(content) => {
                    let one = one(content.payload.len());
                    counts.received.add(one);
                    counts.forwarded.add(one);
                    for (spec, (delivered, drops)) in
                        self.subscribers.iter().zip(&mut counts.subscribers)
                    {
                        if fits(content, spec.to) {
                            delivered.add(one);
                        } else {
                            drops.add(DropReason::TooBig, 1);
                        }
                    }
                }
                // The stack does not say how long a datagram was that it dropped.
                Fate::Refused(DropReason::BadChecksum, _) if !fast => {
                    counts.refuse(DropReason::BadChecksum, 0);
                }
                Fate::Refused(reason, size) => counts.refuse(*reason, *size),
                Fate::Malformed if fast => counts.refuse(DropReason::Malformed, 0),
                Fate::Malformed | Fate::Routed | Fate::Nothing => {}
            }
        }
        counts
    }
}

#[derive(Debug, Default)]
struct Counts {
    received: Traffic,
    forwarded: Traffic,
    drops: Drops,
    subscribers: Vec<(Traffic, Drops)>,
}

impl Counts {
    fn refuse(&mut self, reason: DropReason, size: usize) {
        self.received.add(one(size));
        self.drops.add(reason, 1);
    }
}

fn one(size: usize) -> Traffic {
    Traffic {
        packets: 1,
        bytes: size as u64,
    }
}

fn compare_counts(name: &str, view: StreamView, expected: &Counts) {
    assert_eq!(view.drops, expected.drops, "{name}");
    assert_eq!(view.forwarded, expected.forwarded, "{name}");
    assert_eq!(view.received, expected.received, "{name}");
    assert_eq!(
        view.received.packets,
        view.forwarded.packets + view.drops.total(),
        "{name}: what came in"
    );
    let subscribers = view.subscribers.into_iter();
    for (counted, (delivered, drops)) in subscribers.zip(&expected.subscribers) {
        let who = &counted.subscriber;
        assert_eq!(
            (&counted.delivered, &counted.drops),
            (delivered, drops),
            "{name}: {who}"
        );
        let copies = counted.delivered.packets + counted.drops.total();
        assert_eq!(copies, view.forwarded.packets, "{name}: copies for {who}");
    }
}

/// Subscribers in turn on both devices and of both families, each with a port of its own.
fn fan(count: usize) -> Vec<SubscriberSpec> {
    let at = |number: usize| {
        let (device, port) = (1 + number % 2, 6000 + number);
        let to = match number % 4 {
            0 | 1 => format!("10.91.{device}.2:{port}"),
            _ => format!("[fd91:0:0:{device}::2]:{port}"),
        };
        subscriber(&format!("s{number}"), &to)
    };
    (0..count).map(at).collect()
}

fn fits(content: &Content, to: SocketAddr) -> bool {
    let headers = if to.is_ipv4() { 28 } else { 48 };
    content.payload.len() + headers <= MTU
}

/// 1 or 2, as the addresses are given out.
fn device(to: SocketAddr) -> u8 {
    match to.ip() {
        IpAddr::V4(ip) => ip.octets()[2],
        IpAddr::V6(ip) => ip.octets()[7],
    }
}

/// The ingest's own address, or the egress device's where the family is another.
fn source(ingest: SocketAddr, to: SocketAddr) -> SocketAddr {
    let ip: IpAddr = match (ingest.is_ipv4() == to.is_ipv4(), to.is_ipv4(), device(to)) {
        (true, ..) => ingest.ip(),
        (false, true, number) => [10, 91, number, 1].into(),
        (false, false, number) => [0xfd91, 0, 0, u16::from(number), 0, 0, 0, 1].into(),
    };
    SocketAddr::new(ip, ingest.port())
}
