//! Traffic while BIRD chooses anew: the xdp data plane forwards a stream by one of two neighbours, and then
//! by the other. Which packets must arrive where is told by their order; how long it took is printed on
//! request, never judged.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netdev::monitor::{Entry, Monitor, RECV_BUFFER_BYTES};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use router::follow::{Follower, Options};
use router::xdp::{self, End, Settings, Xdp};
use stats::{median, median_interval};
use sys::clock::monotonic_ns;
use sys::ethtool::Ethtool;

use super::daemons::{Network, bird_router};
use super::lab::{Running, Space, TIMEOUT, ip};
use crate::common::programs::installed;

/// Both neighbours have it, and announce a network that it is in.
const TO: &str = "100.64.0.1";
const PORT: u16 = 7300;
const INTERVAL_NS: u64 = 100_000;
/// Packets between one change and the next.
const BETWEEN: u64 = 2000;
/// Changes of each kind that are measured.
const ROUNDS: usize = 24;

struct Rig {
    network: Network,
    client: Space,
    announcers: [RefCell<Running>; 2],
    _router: Running,
    routed: Follower<Xdp>,
}

/// Numbered packets, all the time.
struct Stream {
    shared: Arc<Shared>,
    sender: JoinHandle<Vec<u64>>,
    receivers: [JoinHandle<()>; 2],
}

#[derive(Default)]
struct Shared {
    /// Packets whose sending has begun.
    begun: AtomicU64,
    stop: AtomicBool,
    /// What each neighbour got.
    got: [Mutex<Vec<u64>>; 2],
}

/// The packets from `first` on, before `end`, have one way to go.
#[derive(Clone, Copy, Debug)]
struct Phase {
    by: usize,
    first: u64,
    end: u64,
    /// When the kernel said that its route changed.
    event_ns: u64,
}

/// A whole stream, after its end.
struct Outcome {
    /// Packets before it are looked at.
    end: u64,
    sent_ns: Vec<u64>,
    /// Which neighbours got a packet.
    by: BTreeMap<u64, Vec<usize>>,
}

impl Rig {
    fn new(name: &str) -> Option<Self> {
        if !installed("bird") {
            return None;
        }
        let network = Network::new(name)?;
        let client = Space::new(&format!("{name}-c"))?;
        network.router.cable("eth9", &client, "eth0");
        network.router.run("ip addr add 10.9.0.1/24 dev eth9");
        client.run("ip addr add 10.9.0.2/24 dev eth0");
        client.run("ip route add default via 10.9.0.1");
        // A neighbour that has to be resolved first lets a short queue wait, and drops what is beyond it.
        client.run("ping -c 1 -w 10 10.9.0.1");
        takes_frames(&client);
        for (n, neighbour) in (1..).zip(&network.neighbours) {
            takes_frames(neighbour);
            network.router.run(&format!("ping -c 1 -w 10 10.{n}.0.2"));
            neighbour.run(&format!("ip addr add {TO}/32 dev lo"));
            neighbour.run(&format!("ip route add default via 10.{n}.0.1"));
        }
        let announcers = [1, 2].map(|n| RefCell::new(network.announcer(n)));
        let router = bird_router(&network, "");
        let routed = network.router.inside(route);
        let rig = Self {
            network,
            client,
            announcers,
            _router: router,
            routed,
        };
        rig.await_alternatives();
        rig.goes_by(1);
        Some(rig)
    }

    /// Waits until the router's BIRD has the route from both neighbours: without the second it has nothing to choose.
    fn await_alternatives(&self) {
        let socket = self.network.file("router.ctl");
        let started = Instant::now();
        loop {
            let show = format!("birdc -s {socket} show route for {TO}");
            // It fails while BIRD starts, and while it has no route.
            let output = self.network.router.output(&show, b"");
            let routes = String::from_utf8_lossy(&output.stdout);
            if ["via 10.1.0.2", "via 10.2.0.2"].map(|via| routes.contains(via)) == [true; 2] {
                return;
            }
            assert!(started.elapsed() < TIMEOUT, "not from both: {routes}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the data plane was told so.
    fn goes_by(&self, n: usize) {
        let gateway = format!("via 10.{n}.0.2 ");
        let started = Instant::now();
        loop {
            let routes = self.routed.with(|follow| follow.routes(Some(ip(TO)), 1));
            if routes.iter().any(|route| route.to.starts_with(&gateway)) {
                return;
            }
            assert!(started.elapsed() < TIMEOUT, "not {gateway}: {routes:?}");
            // The one that is waited for needs the same lock.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A neighbour withdraws its routes, or announces them again.
    fn announce(&self, n: usize, on: bool) {
        let socket = self.network.file(&format!("neighbour{n}.ctl"));
        let what = if on { "enable" } else { "disable" };
        self.network.neighbours[n - 1].run(&format!("birdc -s {socket} {what} s4"));
    }

    /// The first neighbour's link goes down; with it comes a neighbour that does not wait for the old
    /// session to end.
    fn link(&self, up: bool) {
        let what = if up { "up" } else { "down" };
        self.network.router.run(&format!("ip link set eth1 {what}"));
        if up {
            let mut announcer = self.announcers[0].borrow_mut();
            announcer.kill();
            *announcer = self.network.announcer(1);
        }
    }

    /// Does something after which packets go by another neighbour, and lets some of them go.
    fn change(&self, stream: &Stream, by: usize, act: impl FnOnce()) -> Phase {
        let listener = self.listen(by);
        act();
        self.goes_by(by);
        // What begins from now on begins after the plane had the change.
        let first = stream.begun();
        let event_ns = listener.join().unwrap();
        stream.goes_on(BETWEEN);
        let end = stream.begun();
        // Before that it could still be on its way here, and meet the next change.
        stream.arrived(end);
        Phase {
            by,
            first,
            end,
            event_ns,
        }
    }

    /// When the kernel says that its route leads to a neighbour, by a socket of the listener's own.
    fn listen(&self, n: usize) -> JoinHandle<u64> {
        let gateway = ip(&format!("10.{n}.0.2"));
        let mut monitor = self
            .network
            .router
            .inside(|| Monitor::open(RECV_BUFFER_BYTES).unwrap());
        std::thread::spawn(move || {
            // At once, where that is allowed: its time stands for the event's.
            let _ = sys::sched::fifo(1);
            let started = Instant::now();
            loop {
                let mut readable = [PollFd::new(monitor.changes(), PollFlags::POLLIN)];
                poll(&mut readable, PollTimeout::from(1000_u16)).unwrap();
                let now = monotonic_ns();
                let mut found = false;
                monitor
                    .read_changes(|message| {
                        let Entry::Route(route) = &message.entry else {
                            return;
                        };
                        let leads = route.hops.iter().any(|hop| hop.gateway == Some(gateway));
                        let about = route.destination == ip("100.64.0.0");
                        found |= about && leads && !message.gone;
                    })
                    .unwrap();
                if found {
                    return now;
                }
                assert!(started.elapsed() < TIMEOUT, "no route by {gateway}");
            }
        })
    }

    fn packets(&self, end: End) -> u64 {
        let counters = self.routed.with(|follow| follow.plane().counters());
        counters.unwrap().get(end).packets
    }

    /// Packets that a full ring has taken: the client's device counts those before the router, the router
    /// those behind it.
    fn without_room(&self) -> u64 {
        let said = self.client.run("ip -j -s link show dev eth0");
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        let dropped = said[0]["stats64"]["tx"]["dropped"].as_u64().unwrap();
        dropped + self.packets(End::DroppedAtTransmit)
    }
}

/// Its device takes redirected frames, and sends such as need no further work.
fn takes_frames(space: &Space) {
    let wanted = [("rx-gro", true), ("tx-checksum-ip-generic", false)];
    space.inside(|| {
        Ethtool::open("eth0")
            .unwrap()
            .set_features(&wanted)
            .unwrap();
    });
}

fn route() -> Follower<Xdp> {
    let start = |v4, v6| xdp::start(&Settings::default(), v4, v6);
    let routed = Follower::start(Options::default(), start).unwrap();
    let names = ["eth1", "eth2", "eth9"].map(str::to_owned);
    let listened = routed.with(|follow| {
        let ports: Vec<_> = follow.ports(&names).iter().map(|one| one.port).collect();
        follow.plane_mut().listen(&ports)
    });
    listened.unwrap();
    routed
}

impl Stream {
    fn start(rig: &Rig) -> Self {
        let shared = Arc::new(Shared::default());
        let receivers = [0, 1].map(|at| {
            let socket = rig.network.neighbours[at].inside(|| {
                let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
                setsockopt(&socket.as_fd(), sockopt::RcvBufForce, &(64 << 20)).unwrap();
                socket
            });
            let wait = Duration::from_millis(20);
            socket.set_read_timeout(Some(wait)).unwrap();
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.receive(at, &socket))
        });
        let socket = rig.client.inside(|| UdpSocket::bind("0.0.0.0:0").unwrap());
        let sending = Arc::clone(&shared);
        let sender = std::thread::spawn(move || sending.send(&socket));
        let stream = Self {
            shared,
            sender,
            receivers,
        };
        stream.goes_on(BETWEEN);
        stream
    }

    fn begun(&self) -> u64 {
        self.shared.begun.load(Ordering::SeqCst)
    }

    fn goes_on(&self, packets: u64) {
        let until = self.begun() + packets;
        while self.begun() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until this packet has arrived, or one behind it.
    fn arrived(&self, end: u64) {
        let started = Instant::now();
        let arrived = |got: &Mutex<Vec<u64>>| got.lock().unwrap().last() >= Some(&end);
        while !self.shared.got.iter().any(arrived) {
            assert!(started.elapsed() < TIMEOUT, "packet {end} does not arrive");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends it once what begins now has arrived. Packets of one way do not overtake each other, so that all
    /// before have arrived, too, or never will.
    fn finish(self) -> Outcome {
        let end = self.begun();
        self.arrived(end);
        self.shared.stop.store(true, Ordering::SeqCst);
        let sent_ns = self.sender.join().unwrap();
        let mut by: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        let got = (1..).zip(&self.shared.got);
        for (receiver, (at, got)) in self.receivers.into_iter().zip(got) {
            receiver.join().unwrap();
            for number in got.lock().unwrap().iter().filter(|number| **number < end) {
                by.entry(*number).or_default().push(at);
            }
        }
        Outcome { end, sent_ns, by }
    }
}

impl Shared {
    /// The times at which sending began.
    fn send(&self, socket: &UdpSocket) -> Vec<u64> {
        let to: IpAddr = ip(TO);
        let mut times = Vec::new();
        let mut due = monotonic_ns();
        while !self.stop.load(Ordering::SeqCst) {
            let number = self.begun.fetch_add(1, Ordering::SeqCst);
            times.push(monotonic_ns());
            socket.send_to(&number.to_ne_bytes(), (to, PORT)).unwrap();
            // A late one is not made up for: that would be a burst.
            due = (due + INTERVAL_NS).max(monotonic_ns());
            sys::sched::sleep_until(due);
        }
        times
    }

    fn receive(&self, at: usize, socket: &UdpSocket) {
        let mut bytes = [0; 8];
        loop {
            let ended = self.stop.load(Ordering::SeqCst);
            match socket.recv(&mut bytes) {
                Ok(_) => self.got[at].lock().unwrap().push(u64::from_ne_bytes(bytes)),
                Err(_) if ended => return,
                // Nothing came for a while.
                Err(_) => {}
            }
        }
    }
}

impl Outcome {
    /// In each phase packets went its way alone. Those that did not arrive were counted: `lost` of them.
    fn assert_in_order(&self, phases: &[Phase], lost: u64) {
        let mut missing = 0;
        for phase in phases {
            for number in phase.first..phase.end {
                match self.by.get(&number).map(Vec::as_slice) {
                    Some([by]) if *by == phase.by => {}
                    None => missing += 1,
                    got => panic!("{number} of {phase:?}: {got:?}"),
                }
            }
        }
        assert!(missing <= lost, "{missing} are missing, {lost} counted");
        assert!(self.by.values().all(|by| by.len() == 1), "a packet twice");
    }

    /// Packets that arrived nowhere.
    fn missing(&self) -> u64 {
        self.end - self.by.len() as u64
    }

    /// The numbers that arrived nowhere, as ranges.
    fn missing_ranges(&self) -> Vec<std::ops::Range<u64>> {
        let mut ranges: Vec<std::ops::Range<u64>> = Vec::new();
        for number in (0..self.end).filter(|number| !self.by.contains_key(number)) {
            match ranges.last_mut() {
                Some(last) if last.end == number => last.end += 1,
                _ => ranges.push(number..number + 1),
            }
        }
        ranges
    }

    /// Of a change: how long after the event the last packet was sent that went wrong, in microseconds, and
    /// how many that were sent after it did.
    fn after_event(&self, phase: &Phase) -> (f64, usize) {
        let wrong = |number: &u64| {
            let by = self.by.get(number).map(Vec::as_slice);
            by != Some(&[phase.by][..])
        };
        let at = |number: u64| self.sent_ns[usize::try_from(number).unwrap()];
        let numbers = (0..phase.end).rev();
        let last = numbers.clone().find(wrong).map_or(0, at);
        let late = numbers
            .take_while(|number| at(*number) > phase.event_ns)
            .filter(wrong);
        #[expect(clippy::cast_precision_loss, reason = "microseconds")]
        let us = last as f64 / 1e3 - phase.event_ns as f64 / 1e3;
        (us, late.count())
    }
}

#[test]
fn no_packet_is_lost_when_bird_chooses_anew() {
    let Some(rig) = Rig::new("bgp-fail") else {
        return;
    };
    let stream = Stream::start(&rig);
    let without = rig.packets(End::NoRoute);
    let mut phases = vec![
        rig.change(&stream, 2, || rig.announce(1, false)),
        rig.change(&stream, 1, || rig.announce(1, true)),
    ];
    phases.push(rig.change(&stream, 2, || rig.announcers[0].borrow_mut().kill()));
    let outcome = stream.finish();
    let lost = rig.without_room();
    outcome.assert_in_order(&phases, lost);
    let counters = rig.routed.with(|follow| follow.plane().counters().unwrap());
    assert!(
        outcome.missing() <= lost,
        "{} of {lost}: {:?} around {phases:?}; {counters:?}",
        outcome.missing(),
        outcome.missing_ranges()
    );
    assert_eq!(rig.packets(End::NoRoute), without);
    assert!(rig.packets(End::Forwarded) > 2 * BETWEEN);
}

#[test]
fn a_link_that_goes_down_takes_no_packet_of_later() {
    let Some(rig) = Rig::new("bgp-link") else {
        return;
    };
    let stream = Stream::start(&rig);
    let phases = vec![
        rig.change(&stream, 2, || rig.link(false)),
        rig.change(&stream, 1, || rig.link(true)),
    ];
    let outcome = stream.finish();
    outcome.assert_in_order(&phases, rig.without_room());
}

/// What the changes of one kind came to.
#[derive(Default)]
struct Measurements {
    us: Vec<f64>,
    packets: Vec<usize>,
}

impl Measurements {
    fn summary(&self, what: &str) -> String {
        let n = self.us.len();
        let (median, within) = (median(&self.us), median_interval(&self.us));
        let (median, within) = (median.unwrap(), within.unwrap());
        let latest = self.us.iter().copied().fold(f64::MIN, f64::max);
        let above = self.us.iter().filter(|us| **us > 1000.0).count();
        format!(
            "{what}: the last packet that went wrong was sent {median:.0} us after the kernel's message \
             ({:.1}% CI {:.0} to {:.0}, n={n}, latest {latest:.0}, later than 1 ms {above}); sent after it and wrong: {} packets in \
             all, {} at most",
            within.confidence * 100.0,
            within.lower,
            within.upper,
            self.packets.iter().sum::<usize>(),
            self.packets.iter().max().unwrap(),
        )
    }
}

/// Negative: it was sent before the message.
#[test]
fn measure() {
    if !sys::require::requested("how long packets go wrong when BIRD chooses anew") {
        return;
    }
    let Some(rig) = Rig::new("bgp-time") else {
        return;
    };
    let stream = Stream::start(&rig);
    let mut kinds = ["withdrawn", "announced again", "link down", "link up again"]
        .map(|what| (what, Vec::new()));
    for _ in 0..ROUNDS {
        let phase = rig.change(&stream, 2, || rig.announce(1, false));
        kinds[0].1.push(phase);
        let phase = rig.change(&stream, 1, || rig.announce(1, true));
        kinds[1].1.push(phase);
        let phase = rig.change(&stream, 2, || rig.link(false));
        kinds[2].1.push(phase);
        let phase = rig.change(&stream, 1, || rig.link(true));
        kinds[3].1.push(phase);
    }
    let outcome = stream.finish();
    for (what, phases) in &kinds {
        let mut measured = Measurements::default();
        for phase in phases {
            let (us, packets) = outcome.after_event(phase);
            measured.us.push(us);
            measured.packets.push(packets);
        }
        eprintln!("{}", measured.summary(what));
    }
    eprintln!(
        "{} packets, {} lost, of these {} for want of room",
        outcome.end,
        outcome.missing(),
        rig.without_room()
    );
}
