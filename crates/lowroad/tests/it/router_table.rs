//! The real binary routes by a table image, and takes another one while numbered packets pass.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Instant;

use serde_json::Value;
use testbed::{Bed, Child, Host};

use crate::router_command::{done, file};
use crate::router_topology::{TIMEOUT, answer, ask, serve_between, topology};

/// Where the packets go: both ends have it.
const TARGET: &str = "203.0.113.9";
/// A packet's number says which.
const PORTS: [u16; 3] = [7001, 7002, 7003];
/// Packets on their way at a time. All may wait for one reader, whose socket has room for some 30: each counts as
/// a page and more, and what was read goes on counting up to a quarter of the room.
const WINDOW: u64 = 24;

/// The image that sends packets by `gateway` and drops those to `port`.
fn build(folder: &Path, name: &str, gateway: &str, port: u16) -> String {
    let routes = file(
        folder,
        "routes",
        &format!("0.0.0.0/0 {gateway}\n203.0.113.0/24 {gateway}\n2001:db8:f::/48 2001:db8:e::1\n"),
    );
    let rules = format!("action,protocol,destination_ports\ndrop,udp,{port}\n");
    let rules = file(folder, "rules.csv", &rules);
    let image = folder.join(name).display().to_string();
    done(&[
        "build", "--rib", &routes, "--rules", &rules, "--out", &image,
    ]);
    image
}

/// Numbers of packets as they come to one port of a host.
fn receive(
    host: &Host,
    name: &'static str,
    port: u16,
    to: &Sender<(u64, &'static str)>,
) -> UdpSocket {
    let socket = host
        .run(|| UdpSocket::bind((TARGET, port)).unwrap())
        .unwrap();
    let (reader, to) = (socket.try_clone().unwrap(), to.clone());
    thread::spawn(move || {
        let mut bytes = [0; 8];
        // Empty: the end.
        while reader.recv(&mut bytes).unwrap() == 8 {
            to.send((u64::from_le_bytes(bytes), name)).unwrap();
        }
    });
    socket
}

fn run(host: &Host, line: &str) {
    let status = host.run(|| Command::new("sh").args(["-c", line]).status().unwrap());
    assert!(status.unwrap().success(), "{line}");
}

/// Who gets a packet by an image that sends by `end` and drops what is for `port`.
fn expected(number: u64, end: &'static str, port: u16) -> Option<&'static str> {
    (port_of(number) != port).then_some(end)
}

fn port_of(number: u64) -> u16 {
    PORTS[usize::try_from(number % 3).unwrap()]
}

/// A router by an image that sends to `left`, and one that sends to `right`.
struct Rig {
    bed: Bed,
    folder: tempfile::TempDir,
    table: String,
    next: String,
    served: Child,
}

/// Numbered packets: how many were sent, and which each receiver got.
struct Delivery {
    sent: u64,
    came: BTreeMap<u64, &'static str>,
}

impl Rig {
    fn new(datapath: &str) -> Self {
        let name = format!("table-{datapath}");
        let bed = Bed::up(&topology(&["client", "left", "right"]), &name).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (router, client) = (bed.host("router").unwrap(), bed.host("client").unwrap());
        let gateways = ["left", "right"].map(|end| {
            let host = bed.host(end).unwrap();
            run(host, &format!("ip addr add {TARGET}/32 dev lo"));
            host.interface("router").unwrap().v4.to_string()
        });
        // What no image says, the kernel cannot know.
        run(
            router,
            "ip route del default 2>/dev/null; ip neigh flush all",
        );
        let near = router.interface("client").unwrap().v4;
        run(client, &format!("ip route replace {TARGET}/32 via {near}"));
        let table = build(folder.path(), "table.lrt", &gateways[0], PORTS[1]);
        let next = build(folder.path(), "next.lrt", &gateways[1], PORTS[2]);
        let peers = ["client", "left", "right"];
        let more = format!("table = {table:?}\n");
        let served = serve_between(router, &peers, folder.path(), datapath, &more);
        Self {
            bed,
            folder,
            table,
            next,
            served,
        }
    }

    fn ask(&self, question: &[&str]) -> Output {
        ask(&self.folder.path().join("r.sock"), question)
    }

    fn answer(&self, question: &[&str]) -> Value {
        answer(&self.folder.path().join("r.sock"), question)
    }

    /// How many packets came to an end in the router.
    fn packets(&self, end: &str) -> u64 {
        let status = self.answer(&["status"]);
        let packets = status["packets"].as_array().unwrap();
        let at = packets.iter().find(|packets| packets["end"] == end);
        at.map_or(0, |packets| packets["packets"].as_u64().unwrap())
    }

    /// Images that are none: each is refused in one line, and the file is put back.
    fn refuse_broken(&self) {
        let (table, whole) = (&self.table, fs::read(&self.next).unwrap());
        let kept = fs::read(table).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 4;
        let mut newer = whole.clone();
        newer[8] += 1;
        for (bytes, said) in [
            (&flipped[..], "damaged"),
            (&newer, "version"),
            (&whole[..whole.len() / 2], "cut off"),
            (b"0.0.0.0/0 192.0.2.1\n", "no table image"),
        ] {
            fs::write(table, bytes).unwrap();
            let refused = self.ask(&["reload"]);
            let text = String::from_utf8(refused.stderr).unwrap();
            assert_eq!(refused.status.code(), Some(2), "{text}");
            assert!(text.contains(said) && text.lines().count() == 1, "{text}");
        }
        fs::write(table, kept).unwrap();
    }

    /// Has packets pass while the router refuses four images and takes another one.
    fn pass(&self) -> Delivery {
        let (arrived, arrivals) = channel();
        let ends = ["left", "right"].map(|name| (name, self.bed.host(name).unwrap()));
        let sockets: Vec<_> = ends
            .iter()
            .flat_map(|(name, host)| PORTS.map(|port| (host, receive(host, name, port, &arrived))))
            .collect();
        let sender = self.bed.host("client").unwrap();
        let sender = sender
            .run(|| UdpSocket::bind("0.0.0.0:0").unwrap())
            .unwrap();
        let counts = Arc::new(Counts::default());
        let count = Arc::clone(&counts);
        let sending = thread::spawn(move || send(&sender, &count));
        let count = Arc::clone(&counts);
        let collecting = thread::spawn(move || {
            let mut came = BTreeMap::new();
            for (number, end) in arrivals {
                assert!(came.insert(number, end).is_none(), "{number} came twice");
                count.highest.fetch_max(number, Ordering::Relaxed);
                count.all.fetch_add(1, Ordering::Relaxed);
                let right = u64::from(end == "right");
                count.right.fetch_add(right, Ordering::Relaxed);
            }
            came
        });
        passes(1000, &counts.highest);
        self.refuse_broken();
        passes(1000, &counts.highest);
        fs::rename(&self.next, &self.table).unwrap();
        let reloaded = self.ask(&["reload"]);
        assert!(reloaded.status.success(), "{reloaded:?}");
        passes(1000, &counts.right);
        counts.stop.store(true, Ordering::Relaxed);
        let sent = sending.join().unwrap();
        let begun = Instant::now();
        while self.packets("forwarded") + self.packets("dropped-by-rule") < sent {
            assert!(begun.elapsed() < TIMEOUT, "{}", self.answer(&["status"]));
        }
        passes_number(self.packets("forwarded"), &counts.all);
        for (host, socket) in &sockets {
            let to = socket.local_addr().unwrap();
            let end = || UdpSocket::bind((TARGET, 0)).unwrap().send_to(&[], to);
            host.run(end).unwrap().unwrap();
        }
        drop(arrived);
        let came = collecting.join().unwrap();
        Delivery { sent, came }
    }
}

/// What threads tell each other.
#[derive(Default)]
struct Counts {
    stop: AtomicBool,
    /// The highest number that came.
    highest: AtomicU64,
    all: AtomicU64,
    right: AtomicU64,
}

impl Delivery {
    /// Asserts that each packet met one image whole, and that the two images had their turns.
    fn assert_split(&self) {
        let met = |number: u64| {
            let end = self.came.get(&number).copied();
            let old = end == expected(number, "left", PORTS[1]);
            let new = end == expected(number, "right", PORTS[2]);
            assert!(old || new, "packet {number} of {}: {end:?}", self.sent);
            (old, new)
        };
        let met: Vec<_> = (0..self.sent).map(met).collect();
        let first_new = met.iter().position(|&(old, _)| !old).unwrap();
        let last_old = met.iter().rposition(|&(_, new)| !new).unwrap();
        // The sender's moves between CPUs let a packet overtake those that were sent with it.
        assert!(
            last_old < first_new + usize::try_from(WINDOW * 2).unwrap(),
            "packet {first_new} met the new image, {last_old} the old one"
        );
    }
}

/// Sends until it is stopped, with few on their way; how many it sent.
fn send(sender: &UdpSocket, counts: &Counts) -> u64 {
    let mut number = 0;
    while !counts.stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        // Either image drops one in three.
        while number * 2 / 3 > counts.all.load(Ordering::Relaxed) + WINDOW {
            assert!(begun.elapsed() < TIMEOUT, "lost before packet {number}");
            thread::yield_now();
        }
        let to = (TARGET, port_of(number));
        sender.send_to(&u64::to_le_bytes(number), to).unwrap();
        number += 1;
    }
    number
}

fn another_image_is_taken_without_loss(datapath: &str) {
    if !sys::require::root() {
        return;
    }
    let mut rig = Rig::new(datapath);
    let route = rig.answer(&["routes", TARGET]);
    assert_eq!(route["routes"][0]["prefix"], "203.0.113.0/24", "{route}");
    assert_eq!(rig.answer(&["status"])["table"]["ipv4"], 2);
    let passed = rig.pass();
    passed.assert_split();
    let status = rig.answer(&["status"]);
    assert_eq!(status["rules"]["failed_reloads"], 4, "{status}");
    assert_eq!(status["rules"]["reloads"], 1);
    // Counted on through the change of planes.
    assert_eq!(rig.packets("forwarded"), passed.came.len() as u64);
    assert!(rig.served.stop(TIMEOUT).unwrap().success());
}

/// Waits until a counter has come so much further.
fn passes(more: u64, counter: &AtomicU64) {
    passes_number(counter.load(Ordering::Relaxed) + more, counter);
}

fn passes_number(number: u64, counter: &AtomicU64) {
    let mut last = (counter.load(Ordering::Relaxed), Instant::now());
    while last.0 < number {
        let waits = last.1.elapsed();
        assert!(waits < TIMEOUT, "{} of {number} have passed", last.0);
        thread::yield_now();
        let now = counter.load(Ordering::Relaxed);
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
}

#[test]
fn the_driver_takes_another_image_without_loss() {
    another_image_is_taken_without_loss("xdp");
}

#[test]
fn threads_take_another_image_without_loss() {
    another_image_is_taken_without_loss("af-xdp");
}
