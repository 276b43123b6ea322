//! Under every policy of the kernel a fast path relays what a program with a socket would, and nothing else.

use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use relay::core::Core;
use test_support::differential::{Subject, compare};
use test_support::policies::{self, Case, Names, Outcome, optional, pairs, singles};
use test_support::zoo::{self, Path, Specimen};

use crate::common::relay_rig::{Capture, INGRESS_MAC, Rig, SENDER_MAC, stream, subscriber};
use crate::common::space::Space;

const REFERENCE: &str = "recv";
const DATAPATHS: [&str; 3] = ["tc", "xdp", "af-xdp"];
/// Nothing more comes after this long without a copy.
const QUIET: Duration = Duration::from_millis(40);
const FAMILIES: [&str; 2] = ["ipv4", "ipv6"];

/// A relay with a stream of each family.
struct RelayFixture {
    rig: Rig,
    core: Core,
    capture: Capture,
    datapath: &'static str,
    names: Names,
    round: u16,
}

impl RelayFixture {
    fn new(datapath: &'static str) -> Self {
        let rig = Rig::new(None);
        // Answers would change what connection tracking knows.
        let quiet = "nft 'table inet quiet { chain o { type filter hook output priority 0; policy drop; }; }'";
        shell(&rig.receivers, quiet).unwrap();
        let core = rig.serve(Vec::new());
        let addresses = |v4: &str, v6: &str| [v4.to_owned(), v6.to_owned()];
        let names = Names {
            ingress: "in0".to_owned(),
            egress: "out1".to_owned(),
            sender: addresses("10.91.0.1", "fd91::1"),
            destination: addresses("10.91.0.2", "fd91::2"),
            receiver: addresses("10.91.1.2", "fd91:0:0:1::2"),
            own: addresses("10.91.1.1", "fd91:0:0:1::1"),
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
}

impl Subject for RelayFixture {
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

    fn close(&mut self) {
        for family in FAMILIES {
            self.core.remove_stream(family).unwrap();
        }
    }

    fn run(&self, command: &str) -> Result<(), String> {
        shell(&self.rig.relay, &self.names.fill(command))
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

    fn deliver(&mut self, specimens: &[Specimen]) -> Vec<String> {
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

    fn outcome(&mut self, family: usize, plain: &Specimen) -> Outcome {
        let arrived = self.deliver(std::slice::from_ref(plain));
        let explanation = self.core.explain(Some(FAMILIES[family])).unwrap().remove(0);
        let is_fast = explanation.served == 1 && explanation.unattached.is_empty();
        match arrived.is_empty() {
            true => Outcome::Refused,
            false if is_fast => Outcome::Fast,
            false => Outcome::Kernel,
        }
    }

    fn explanation(&self) -> String {
        let streams = self.core.explain(None).unwrap();
        let lines: Vec<String> = streams.iter().map(ToString::to_string).collect();
        lines.join("\n")
    }

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
}

fn socket(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

fn shell(space: &Space, line: &str) -> Result<(), String> {
    let run = || Command::new("bash").args(["-ec", line]).output().unwrap();
    let output = space.run(run);
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

#[test]
fn what_is_relayed_is_what_a_socket_receives_and_sends() {
    if sys::require::root() {
        compare(
            &singles(),
            RelayFixture::new(REFERENCE),
            &DATAPATHS,
            RelayFixture::new,
        );
    }
}

#[test]
#[ignore = "pairs of policies"]
fn what_is_relayed_under_two_policies_is_what_a_socket_receives_and_sends() {
    if sys::require::root() {
        compare(
            &pairs(),
            RelayFixture::new(REFERENCE),
            &DATAPATHS,
            RelayFixture::new,
        );
    }
}

#[test]
fn policies_of_optional_modules_hold_for_relayed_packets() {
    if sys::require::root() {
        let cases = optional();
        let unavailable = compare(
            &cases,
            RelayFixture::new(REFERENCE),
            &DATAPATHS,
            RelayFixture::new,
        );
        policies::require(&cases, &unavailable);
    }
}

/// A third of the above: what recognises a policy is the same for all datapaths, and a kernel that is emulated takes
/// long for each. Cases come last that keep the others from holding, so the order stays.
#[test]
fn policies_of_optional_modules_hold_on_one_datapath_each() {
    if !sys::require::root() {
        return;
    }
    let cases = optional();
    let of = |at: usize| -> Vec<Case> {
        let mine = cases.iter().skip(at).step_by(DATAPATHS.len());
        mine.cloned().collect()
    };
    let mut unavailable = Vec::new();
    for (at, datapath) in DATAPATHS.into_iter().enumerate() {
        let rig = RelayFixture::new(REFERENCE);
        unavailable.extend(compare(&of(at), rig, &[datapath], RelayFixture::new));
    }
    policies::require(&cases, &unavailable);
}
