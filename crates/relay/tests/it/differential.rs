//! Under every policy of the kernel a fast path relays what a program with a socket would, and nothing else.

use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use relay::core::Core;
use test_support::policies::{Case, Names, Outcome, pairs, singles};
use test_support::zoo::{self, Path, Specimen};

use crate::common::relay_rig::{Capture, INGRESS_MAC, Rig, SENDER_MAC, stream, subscriber};
use crate::common::space::Space;

const REFERENCE: &str = "recv";
const DATAPATHS: [&str; 3] = ["tc", "xdp", "af-xdp"];
/// Nothing more comes after this long without a copy.
const QUIET: Duration = Duration::from_millis(40);
/// Before the first look at what has changed.
const SETTLE: Duration = Duration::from_millis(50);
/// A busy machine gets this long to follow a policy.
const DEADLINE: Duration = Duration::from_secs(30);
const FAMILIES: [&str; 2] = ["ipv4", "ipv6"];

/// A relay with a stream of each family.
struct Served {
    rig: Rig,
    core: Core,
    capture: Capture,
    datapath: &'static str,
    names: Names,
    round: u16,
}

impl Served {
    fn new(datapath: &'static str) -> Self {
        let rig = Rig::new(None);
        // Answers would change what connection tracking knows.
        let quiet = "nft 'table inet quiet { chain o { type filter hook output priority 0; policy drop; }; }'";
        shell(&rig.receivers, quiet);
        let core = rig.serve(Vec::new());
        let addresses = |v4: &str, v6: &str| [v4.to_owned(), v6.to_owned()];
        let names = Names {
            ingress: "in0".to_owned(),
            egress: "out1".to_owned(),
            sender: addresses("10.91.0.1", "fd91::1"),
            destination: addresses("10.91.0.2", "fd91::2"),
            receiver: addresses("10.91.1.2", "fd91:0:0:1::2"),
            port: 0,
            receiver_port: 0,
        };
        Self {
            capture: rig.capture(),
            rig,
            core,
            datapath,
            names,
            round: 0,
        }
    }

    /// Has streams whose ports are those of this policy: what connection tracking knows of others does not concern them.
    fn open(&mut self, number: usize) {
        let number = u16::try_from(number).unwrap();
        (self.names.port, self.names.receiver_port) = (5000 + number, 6000 + number);
        for (at, family) in FAMILIES.into_iter().enumerate() {
            let to = socket(&self.names.receiver[at], self.names.receiver_port);
            let subscribers = vec![subscriber("s", &to.to_string())];
            let listen = socket(&self.names.destination[at], self.names.port);
            let mut spec = stream(self.datapath, &listen.to_string(), subscribers);
            spec.name = family.to_owned();
            self.rig.relay.run(|| self.core.add_stream(spec)).unwrap();
        }
    }

    fn close(&self) {
        for family in FAMILIES {
            self.core.remove_stream(family).unwrap();
        }
    }

    fn sh(&self, command: &str) {
        shell(&self.rig.relay, &self.names.fill(command));
    }

    fn zoo(&mut self) -> Vec<Specimen> {
        self.round = self.round.wrapping_add(1);
        let of = |at: usize| {
            let address = |list: &[String; 2]| list[at].parse().unwrap();
            let path = Path {
                source_mac: SENDER_MAC,
                destination_mac: INGRESS_MAC,
                source: socket(&self.names.sender[at], 4000),
                destination: socket(&self.names.destination[at], self.names.port),
                own: address(&self.names.destination),
                behind: address(&self.names.receiver),
            };
            zoo::zoo(&path, self.round)
        };
        [of(0), of(1)].concat()
    }

    /// The copies of these packets, in no order.
    fn deliver(&self, specimens: &[Specimen]) -> Vec<String> {
        self.capture.rest();
        for frame in specimens.iter().flat_map(|specimen| &specimen.frames) {
            self.rig.inject(frame);
        }
        let mut copies = Vec::new();
        let mut last = Instant::now();
        while last.elapsed() < QUIET {
            let more = self.capture.rest();
            if !more.is_empty() {
                last = Instant::now();
            }
            copies.extend(more.into_iter().map(|copy| {
                let payload = String::from_utf8_lossy(&copy.payload).into_owned();
                let (from, to) = (copy.source, copy.destination);
                format!("{payload} {from} {to} ttl {} tos {}", copy.ttl, copy.tos)
            }));
            thread::sleep(Duration::from_millis(2));
        }
        copies.sort();
        copies
    }

    /// How the plain packet of each family fares.
    fn outcomes(&mut self) -> [Outcome; 2] {
        let zoo = self.zoo();
        [("IPv4 plain", "ipv4"), ("IPv6 plain", "ipv6")].map(|(name, stream)| {
            let plain = zoo.iter().find(|specimen| specimen.name == name);
            let arrived = self.deliver(std::slice::from_ref(plain.unwrap()));
            let explanation = self.core.explain(Some(stream)).unwrap().remove(0);
            let is_fast = explanation.served == 1 && explanation.unattached.is_empty();
            match arrived.is_empty() {
                true => Outcome::Refused,
                false if is_fast => Outcome::Fast,
                false => Outcome::Kernel,
            }
        })
    }

    /// How packets fare on this datapath.
    fn expected(&self, case: &Case) -> Option<[Outcome; 2]> {
        // The network stack sends what tc hands it by the device's own traffic control.
        let is_honoured =
            self.datapath == "tc" && case.apply.starts_with("tc") && case.apply.contains("OUTDEV");
        let outcomes = case.relay?;
        Some(outcomes.map(|outcome| match outcome {
            Outcome::Kernel if is_honoured => Outcome::Fast,
            other => other,
        }))
    }

    /// Waits until packets fare like this and these arrive.
    fn await_delivery(&mut self, case: &Case, reference: &[String]) -> Result<(), String> {
        let expected = self.expected(case);
        let started = Instant::now();
        loop {
            let zoo = self.zoo();
            let (outcomes, copies) = (self.outcomes(), self.deliver(&zoo));
            if expected.is_none_or(|expected| outcomes == expected) && copies == reference {
                return Ok(());
            }
            let only = |some: &[String], others: &[String]| {
                let only = some.iter().filter(|copy| !others.contains(copy));
                only.cloned().collect::<Vec<_>>().join("\n")
            };
            if started.elapsed() > DEADLINE {
                return Err(format!(
                    "{}: {}: {outcomes:?} for {expected:?}\nleaked:\n{}\nlost:\n{}",
                    self.datapath,
                    case.apply,
                    only(&copies, reference),
                    only(reference, &copies)
                ));
            }
        }
    }
}

fn socket(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

fn shell(space: &Space, line: &str) {
    let run = || Command::new("sh").args(["-ec", line]).output().unwrap();
    let output = space.run(run);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
}

#[test]
fn what_is_relayed_is_what_a_socket_receives_and_sends() {
    compare(&singles());
}

#[test]
#[ignore = "pairs of policies"]
fn what_is_relayed_under_two_policies_is_what_a_socket_receives_and_sends() {
    compare(&pairs());
}

fn compare(cases: &[Case]) {
    if !sys::require::root() {
        return;
    }
    let references = references(cases);
    let check = |datapath: &'static str| {
        let mut served = Served::new(datapath);
        let mut failures = Vec::new();
        for (number, (case, reference)) in cases.iter().zip(&references).enumerate() {
            served.open(number);
            served.sh(&case.apply);
            thread::sleep(SETTLE);
            failures.extend(served.await_delivery(case, reference).err());
            served.sh(&case.undo);
            served.close();
        }
        failures
    };
    let failures: Vec<String> = thread::scope(|scope| {
        let check = &check;
        let checks = DATAPATHS.map(|datapath| scope.spawn(move || check(datapath)));
        let failures = checks.into_iter().flat_map(|check| check.join().unwrap());
        failures.collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// What sockets receive and send.
fn references(cases: &[Case]) -> Vec<Vec<String>> {
    let mut served = Served::new(REFERENCE);
    let mut reference = |(number, case): (usize, &Case)| {
        served.open(number);
        served.sh(&case.apply);
        let zoo = served.zoo();
        let mut copies = served.deliver(&zoo);
        // Packets may be late on a busy machine.
        loop {
            let zoo = served.zoo();
            let again = served.deliver(&zoo);
            if again == copies {
                break;
            }
            copies = again;
        }
        if let Some(expected) = case.relay {
            let passes = served.outcomes().map(|outcome| outcome != Outcome::Refused);
            let expected = expected.map(|outcome| outcome != Outcome::Refused);
            assert_eq!(passes, expected, "{}", case.apply);
        }
        served.sh(&case.undo);
        served.close();
        copies
    };
    cases.iter().enumerate().map(&mut reference).collect()
}
