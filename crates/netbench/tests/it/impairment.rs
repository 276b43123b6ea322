//! A path that loses, doubles, delays and reorders known datagrams, and sees the headers of all: what netbench reports of
//! it is exact.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use netbench::client::{self, Target};
use netbench::server::{Limits, Server, Settings};
use netbench::{Direction, Outcome, Source, Spec, Test};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sys::netns::{self, Namespace};
use sys::require::{Class, skip};

use crate::paths::token;

const NEAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// A second address of the near end.
const NEAR_SECOND: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);
/// Shorter packets pass as they are: control messages and cookies.
const MIN_LEN: usize = 500;
const UDP: u8 = 17;
const TCP: u8 = 6;

/// What the path does to every datagram, and to every n-th.
#[derive(Clone, Copy, Debug, Default)]
struct Rules {
    delay: Duration,
    drop_every: Option<u64>,
    duplicate_every: Option<u64>,
    /// It is overtaken by the next one.
    swap_every: Option<u64>,
    /// All that follow are dropped.
    stop_after: Option<u64>,
}

/// What the path has done in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Impairments {
    datagrams: u64,
    dropped: u64,
    duplicated: u64,
    swapped: u64,
}

/// Ports of a client's flows, as it was asked for.
const CLIENT_PORTS: std::ops::RangeInclusive<u16> = 40_000..=40_001;

/// The headers of the long TCP segments of these flows in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Segments {
    dscp: BTreeSet<u8>,
    sources: BTreeSet<(Ipv4Addr, u16)>,
    /// The longest payload, in bytes.
    longest: usize,
}

impl Segments {
    fn note(&mut self, packet: &[u8]) {
        let tcp = usize::from(packet[0] & 0xf) * 4;
        let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        let [source, destination] = [port(tcp), port(tcp + 2)];
        if ![source, destination]
            .iter()
            .any(|port| CLIENT_PORTS.contains(port))
        {
            return;
        }
        let payload = tcp + usize::from(packet[tcp + 12] >> 4) * 4;
        self.dscp.insert(packet[1] >> 2);
        let address = Ipv4Addr::new(packet[12], packet[13], packet[14], packet[15]);
        self.sources.insert((address, source));
        self.longest = self.longest.max(packet.len() - payload);
    }
}

/// Two namespaces and the path between them.
struct Path {
    prefix: String,
    stop: Arc<AtomicBool>,
    forwarder: Option<JoinHandle<[Lane; 2]>>,
}

impl Path {
    fn new(test: &str, rules: Rules) -> Self {
        let prefix = format!("lr-test-{test}-{}", std::process::id());
        let devices = [("near", NEAR), ("far", FAR)].map(|(name, address)| {
            let name = format!("{prefix}-{name}");
            let place = Namespace::create(&name).unwrap();
            let device = place.run(|| sys::tun::create("path")).unwrap().unwrap();
            let up = format!(
                "ip link set lo up; ip addr add {address}/24 dev path; ip link set path txqueuelen 5000 up"
            );
            let up = match address {
                NEAR => format!("{up}; ip addr add {NEAR_SECOND}/24 dev path"),
                _ => up,
            };
            let set = Command::new("ip")
                .args(["netns", "exec", &name, "sh", "-ec", &up])
                .status();
            assert!(set.unwrap().success());
            device
        });
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let forwarder = thread::spawn(move || forward(&devices, rules, &stopped));
        Self {
            prefix,
            stop,
            forwarder: Some(forwarder),
        }
    }

    fn place(&self, name: &str) -> Namespace {
        Namespace::named(&format!("{}-{name}", self.prefix)).unwrap()
    }

    /// One test from near to far.
    fn measure(&self, spec: &Spec) -> Outcome {
        let outcome = self.run(FAR.into(), Source::default(), spec);
        assert_eq!(outcome.ended_early, None, "{outcome:?}");
        outcome
    }

    /// One test from there to a server that listens here.
    fn run(&self, listen: IpAddr, source: Source, spec: &Spec) -> Outcome {
        let start = || {
            Server::start(Settings {
                listen: (listen, 0).into(),
                token: Some(token()),
                limits: Limits::default(),
                data_ports: None,
            })
        };
        let server = self.place("far").run(start).unwrap().unwrap();
        let at = SocketAddr::from((FAR, server.address().port())).to_string();
        let go_on = &mut |_: &client::Progress| std::ops::ControlFlow::Continue(());
        let target = Target {
            token: Some(token()),
            source,
            ..Target::new(&at)
        };
        let measure = || match spec.test.needs_server() {
            true => target.open()?.measure(spec, go_on),
            false => client::measure(&FAR.to_string(), spec, go_on),
        };
        self.place("near").run(measure).unwrap().unwrap()
    }

    /// What the path has done: from near to far, and back.
    fn end(&mut self) -> [Impairments; 2] {
        self.stop_forwarder().map(|lane| lane.done)
    }

    fn stop_forwarder(&mut self) -> [Lane; 2] {
        self.stop.store(true, Relaxed);
        self.forwarder.take().unwrap().join().unwrap()
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for name in ["near", "far"] {
            let _removed = netns::remove(&format!("{}-{name}", self.prefix));
        }
    }
}

/// Whether the path can be made here; reports the skip when not.
fn has_tun() -> bool {
    let present = std::path::Path::new("/dev/net/tun").exists();
    if !present {
        skip(Class::Hardware, "no /dev/net/tun: modprobe tun");
    }
    sys::require::root() && present
}

/// One direction of the path.
#[derive(Default)]
struct Lane {
    done: Impairments,
    segments: Segments,
    /// A datagram that waits to be overtaken.
    held: Option<Vec<u8>>,
    /// Packets on the way, and when they arrive.
    under_way: VecDeque<(Instant, Vec<u8>)>,
}

impl Lane {
    fn pass(&mut self, packet: &[u8], rules: Rules) {
        let arrives = Instant::now() + rules.delay;
        if packet.len() >= MIN_LEN && packet.get(9) == Some(&TCP) {
            self.segments.note(packet);
        }
        let mut push = |packet: &[u8]| self.under_way.push_back((arrives, packet.to_vec()));
        if packet.len() < MIN_LEN || packet.get(9) != Some(&UDP) {
            push(packet);
            return;
        }
        let done = &mut self.done;
        done.datagrams += 1;
        let hits = |every: Option<u64>| every.is_some_and(|n| done.datagrams.is_multiple_of(n));
        let stopped = rules.stop_after.is_some_and(|n| done.datagrams > n);
        let (drop, swap) = (hits(rules.drop_every) || stopped, hits(rules.swap_every));
        let duplicate = hits(rules.duplicate_every);
        if drop {
            done.dropped += 1;
            return;
        }
        if swap && self.held.is_none() {
            self.held = Some(packet.to_vec());
            return;
        }
        push(packet);
        if let Some(held) = self.held.take() {
            done.swapped += 1;
            push(&held);
        }
        if duplicate {
            done.duplicated += 1;
            push(packet);
        }
    }

    /// Sends what has arrived. Returns how long the next packet takes.
    fn deliver(&mut self, mut to: &File) -> Option<Duration> {
        while let Some((at, packet)) = self.under_way.front() {
            let left = at.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                return Some(left);
            }
            // A full queue would be a loss that is not counted: its tests are slow enough.
            let _written = to.write(packet).unwrap();
            self.under_way.pop_front();
        }
        None
    }
}

fn forward(devices: &[File; 2], rules: Rules, stop: &AtomicBool) -> [Lane; 2] {
    let mut lanes = [Lane::default(), Lane::default()];
    let mut packet = vec![0; 1 << 16];
    while !stop.load(Relaxed) {
        let [near, far] = devices;
        for (lane, mut from) in lanes.iter_mut().zip([near, far]) {
            while let Ok(len) = from.read(&mut packet) {
                lane.pass(&packet[..len], rules);
            }
        }
        let waits = lanes.iter_mut().zip([far, near]);
        let waits = waits.filter_map(|(lane, to)| lane.deliver(to));
        let wait = waits.min().unwrap_or(Duration::from_millis(20));
        let mut polled = [near, far].map(|device| PollFd::new(device.as_fd(), PollFlags::POLLIN));
        let timeout = PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO);
        let _ready = poll(&mut polled, timeout);
    }
    lanes
}

fn stream(direction: Direction) -> Spec {
    Spec {
        rate: Some(1000.0),
        direction,
        ..Spec::new(Test::UdpStream, Duration::from_millis(400))
    }
}

#[test]
fn loss_duplicates_and_reordering_are_exact() {
    if !has_tun() {
        return;
    }
    let rules = Rules::default();
    for (name, rules) in [
        (
            "drop",
            Rules {
                drop_every: Some(50),
                ..rules
            },
        ),
        (
            "double",
            Rules {
                duplicate_every: Some(7),
                ..rules
            },
        ),
        (
            "swap",
            Rules {
                swap_every: Some(10),
                ..rules
            },
        ),
        // As many copies as losses: the number that arrives says nothing.
        (
            "both",
            Rules {
                drop_every: Some(2),
                duplicate_every: Some(1),
                ..rules
            },
        ),
    ] {
        for direction in [Direction::Up, Direction::Down] {
            let mut path = Path::new(name, rules);
            let outcome = path.measure(&stream(direction));
            let [up, down] = path.end();
            let done = match direction {
                Direction::Up => up,
                Direction::Down => down,
            };
            let datagrams = &outcome.datagrams()[0];
            let arrivals = datagrams.arrivals;
            let said = Impairments {
                datagrams: datagrams.sent,
                dropped: datagrams.lost(),
                duplicated: arrivals.duplicates,
                swapped: arrivals.reordered,
            };
            assert_eq!(said, done, "{name}: {outcome:?}");
            assert!(done.datagrams > 200 && arrivals.jitter_ns.is_some());
            let share = done.dropped as f64 / done.datagrams as f64;
            let loss = outcome.transfer.unwrap().loss.unwrap();
            assert!((loss - share).abs() < 1e-9, "{loss} is not {share}");
        }
    }
}

#[test]
fn each_direction_has_its_own_loss() {
    if !has_tun() {
        return;
    }
    let rules = Rules {
        drop_every: Some(20),
        ..Rules::default()
    };
    let mut path = Path::new("ways", rules);
    let outcome = path.measure(&Spec {
        // Requests are long enough to be dropped, and so are answers.
        request: 600,
        response: 600,
        rate: Some(200.0),
        ..Spec::new(Test::UdpRr, Duration::from_secs(1))
    });
    let [up, down] = path.end();
    let said = outcome.datagrams();
    let lost = [said[0].lost(), said[1].lost()];
    assert_eq!(lost, [up.dropped, down.dropped], "{outcome:?}");
    assert_eq!([said[0].sent, said[1].sent], [up.datagrams, down.datagrams]);
    // A request without an answer has no time, and delays no other.
    let latency = outcome.latency.as_ref().unwrap();
    assert!(outcome.lost > 0 && outcome.lost <= up.dropped + down.dropped);
    assert!(
        latency.count() > 100 && latency.quantile(0.9) < 900_000_000,
        "{outcome:?}"
    );
}

#[test]
fn lost_requests_have_no_part_in_percentiles() {
    if !has_tun() {
        return;
    }
    for rate in [Some(100.0), Some(1000.0), None] {
        let rules = Rules {
            drop_every: Some(100),
            ..Rules::default()
        };
        let mut path = Path::new("percent", rules);
        let outcome = path.measure(&Spec {
            request: 600,
            response: 600,
            rate,
            ..Spec::new(Test::UdpRr, Duration::from_secs(3))
        });
        let [up, down] = path.end();
        let dropped = up.dropped + down.dropped;
        assert!(
            dropped > 0 && outcome.lost + outcome.unfinished <= dropped,
            "{outcome:?}"
        );
        // A time is that of an answer that has come. The wait for one that has not is in no percentile.
        let latency = outcome.latency.as_ref().unwrap();
        let answered = outcome.datagrams()[1].arrivals.unique;
        assert!(
            latency.count() > 0 && latency.count() <= answered,
            "{outcome:?}"
        );
        assert_eq!(outcome.bounds.count(), outcome.unsent + outcome.unfinished);
        if outcome.bounds.count() == 0 {
            for share in [0.5, 0.99] {
                let quantile = outcome.quantile(share).unwrap();
                assert_eq!(
                    (quantile.ns, quantile.is_exact()),
                    (latency.quantile(share), true)
                );
            }
        }
    }
}

#[test]
fn answers_after_more_than_a_second_are_not_lost() {
    if !has_tun() {
        return;
    }
    for rate in [None, Some(5.0)] {
        let path = Path::new(
            "late",
            Rules {
                delay: Duration::from_millis(600),
                ..Rules::default()
            },
        );
        let outcome = path.measure(&Spec {
            rate,
            warmup_us: 0,
            ..Spec::new(Test::UdpRr, Duration::from_secs(4))
        });
        let latency = outcome.latency.as_ref().unwrap();
        assert!(
            latency.count() > 1 && latency.min() > 1_000_000_000,
            "{outcome:?}"
        );
        assert_eq!(
            (outcome.lost, outcome.datagrams()[1].lost()),
            (0, 0),
            "{outcome:?}"
        );
    }
}

#[test]
fn path_that_stops_after_warmup_has_no_figures() {
    if !has_tun() {
        return;
    }
    for direction in [Direction::Up, Direction::Down] {
        let rules = Rules {
            stop_after: Some(50),
            ..Rules::default()
        };
        let mut path = Path::new("stop", rules);
        let spec = Spec {
            warmup_us: 1_000_000,
            ..stream(direction)
        };
        let outcome = path.run(FAR.into(), Source::default(), &spec);
        let why = outcome.ended_early.as_deref().unwrap();
        assert!(
            why.starts_with("nothing arrived in the window, and 50"),
            "{why}"
        );
        let said = netbench::json::outcome(&outcome, false);
        assert!(said["mbps"].is_null() && !outcome.has_result(), "{said}");
        path.end();
    }
}

#[test]
fn no_time_is_below_that_of_the_path() {
    if !has_tun() {
        return;
    }
    let path = Path::new(
        "delay",
        Rules {
            delay: Duration::from_millis(20),
            ..Rules::default()
        },
    );
    for test in [Test::Icmp, Test::UdpRr, Test::TcpRr, Test::TcpCrr] {
        for rate in [Some(100.0), None] {
            let outcome = path.measure(&Spec {
                rate,
                ..Spec::new(test, Duration::from_secs(1))
            });
            let latency = outcome.latency.as_ref().unwrap();
            let trips = if test == Test::TcpCrr { 2 } else { 1 };
            assert!(latency.min() >= trips * 40_000_000, "{outcome:?}");
            // A hundred a second need several under way at once.
            let pipelined = rate.is_some() && test != Test::TcpCrr;
            assert!(!pipelined || latency.count() > 50, "{outcome:?}");
        }
    }
}

#[test]
fn options_of_connections_show_in_their_headers() {
    if !has_tun() {
        return;
    }
    let spec = Spec {
        mss: Some(700),
        dscp: Some(46),
        congestion: Some("reno".to_owned()),
        pacing_bits_per_s: Some(8_000_000),
        flows: 2,
        ..Spec::new(Test::TcpStream, Duration::from_millis(500))
    };
    let source = Source {
        address: Some(NEAR_SECOND.into()),
        device: Some("path".to_owned()),
        port: Some(*CLIENT_PORTS.start()),
    };
    let any = IpAddr::from(Ipv6Addr::UNSPECIFIED);
    for (direction, listen) in [
        (Direction::Up, FAR.into()),
        (Direction::Down, FAR.into()),
        // To a socket of IPv6 the client has an IPv4 address in IPv6 form.
        (Direction::Down, any),
    ] {
        let mut path = Path::new("options", Rules::default());
        let spec = Spec {
            direction,
            ..spec.clone()
        };
        let outcome = path.run(listen, source.clone(), &spec);
        assert_eq!(outcome.ended_early, None, "{outcome:?}");
        let [up, down] = path.stop_forwarder().map(|lane| lane.segments);
        let data = match direction {
            Direction::Up => {
                let flows = CLIENT_PORTS.map(|port| (NEAR_SECOND, port));
                assert_eq!(up.sources, flows.collect());
                up
            }
            Direction::Down => down,
        };
        assert_eq!(data.dscp, BTreeSet::from([46]), "{direction:?}");
        // Options of each segment may take a part of it.
        assert!((600..=700).contains(&data.longest), "{data:?}");
        let sender = match direction {
            Direction::Up => &outcome.near,
            Direction::Down => outcome.far.as_ref().unwrap(),
        };
        assert_eq!(sender.tcp.as_ref().unwrap().congestion, "reno");
        // Two flows at 8 Mbit/s of whole segments; the first segments leave at once.
        let rate = outcome.transfer.unwrap().bits_per_s;
        assert!(rate < 20_000_000.0, "{rate}: {outcome:?}");
    }
}
