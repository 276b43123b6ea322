//! Under every policy of the kernel a router lets through what the kernel alone would, unchanged, and nothing else.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};
use test_support::policies::{Case, Names, Outcome, pairs, singles};
use test_support::zoo::{Path, Specimen, describe, zoo};
use testbed::{Bed, Child, Interface};

use crate::router_topology::{answer, serve_between, topology};

const DATAPATHS: [&str; 2] = ["xdp", "af-xdp"];
const PORT: u16 = 7001;
/// Nothing more comes after this long without a frame.
const QUIET: Duration = Duration::from_millis(40);
/// Before the first look at what has changed.
const SETTLE: Duration = Duration::from_millis(50);

/// A busy machine gets this long to follow a policy.
const DEADLINE: Duration = Duration::from_secs(30);

/// A client, a router and a server in a row.
struct Rig {
    bed: Bed,
    folder: tempfile::TempDir,
    names: Names,
    /// By IPv4 and by IPv6.
    paths: [Path; 2],
    round: Cell<u16>,
    /// The port that packets come from.
    port: Cell<u16>,
    to_router: OwnedFd,
    at_server: OwnedFd,
    served: Option<Child>,
}

impl Rig {
    /// Without a datapath the kernel alone forwards.
    fn new(name: &str, datapath: Option<&str>) -> Self {
        let bed = Bed::up(&topology(&["client", "server"]), name).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let [router, client, server] =
            ["router", "client", "server"].map(|name| bed.host(name).unwrap());
        let at = |host: &testbed::Host, peer: &str| host.interface(peer).unwrap().clone();
        let (to_client, to_server) = (at(router, "client"), at(router, "server"));
        let (near, far) = (at(client, "router"), at(server, "router"));
        let addresses = |of: &Interface| [of.v4.to_string(), of.v6.to_string()];
        let names = Names {
            ingress: to_client.name.clone(),
            egress: to_server.name.clone(),
            sender: addresses(&near),
            destination: addresses(&far),
            receiver: addresses(&far),
            port: PORT,
            receiver_port: PORT,
        };
        let path = |v4: bool| {
            let address = |of: &Interface| if v4 { of.v4 } else { of.v6 };
            Path {
                source_mac: near.mac,
                destination_mac: to_client.mac,
                source: SocketAddr::new(address(&near), 4000),
                destination: SocketAddr::new(address(&far), PORT),
                own: address(&to_client),
                behind: neighbour_of(address(&far)),
            }
        };
        let paths = [path(true), path(false)];
        let at_server = server.run(capture).unwrap();
        // Answers would change what connection tracking knows.
        shell(
            server,
            "nft 'table inet quiet { chain o { type filter hook output priority 0; policy drop; }; }'",
        );
        let raw = || sys::socket::raw_sender(near.ifindex).unwrap();
        let to_router = client.run(raw).unwrap();
        let known = [(&to_client, &near), (&to_server, &far)];
        for (device, neighbour) in known {
            let mac = neighbour.mac.map(|byte| format!("{byte:02x}")).join(":");
            for address in addresses(neighbour) {
                let device = &device.name;
                let line =
                    format!("ip neigh replace {address} lladdr {mac} dev {device} nud permanent");
                shell(router, &line);
            }
        }
        let served = datapath.map(|datapath| {
            serve_between(router, &["client", "server"], folder.path(), datapath, "")
        });
        Self {
            names,
            paths,
            round: Cell::new(0),
            port: Cell::new(0),
            to_router,
            at_server,
            served,
            folder,
            bed,
        }
    }

    /// Sets a case up. Its packets come from a port of their own: what connection tracking knows of others does not
    /// concern them.
    fn apply(&self, number: usize, case: &Case) {
        self.sh(&case.apply);
        self.port.set(4000 + u16::try_from(number).unwrap());
    }

    fn sh(&self, command: &str) {
        shell(self.bed.host("router").unwrap(), &self.names.fill(command));
    }

    /// The packets of the next round.
    fn zoo(&self) -> Vec<Specimen> {
        self.round.set(self.round.get().wrapping_add(1));
        let of = |path: &Path| {
            let mut path = path.clone();
            path.source.set_port(self.port.get());
            zoo(&path, self.round.get())
        };
        self.paths.iter().flat_map(of).collect()
    }

    /// What arrives of these packets, in no order.
    fn deliver(&self, specimens: &[Specimen]) -> Vec<String> {
        drain(&self.at_server, |_| {});
        for frame in specimens.iter().flat_map(|specimen| &specimen.frames) {
            let sent = send(self.to_router.as_raw_fd(), frame, MsgFlags::empty()).unwrap();
            assert_eq!(sent, frame.len());
        }
        let server = self.bed.host("server").unwrap();
        let own = server.interface("router").unwrap().mac;
        let mut arrived = Vec::new();
        let mut last = Instant::now();
        while last.elapsed() < QUIET {
            drain(&self.at_server, |frame| {
                // What the server itself sends is seen as well.
                let is_own = frame.get(6..12) == Some(&own);
                if let Some(packet) = describe(frame).filter(|_| !is_own) {
                    last = Instant::now();
                    arrived.push(packet);
                }
            });
            thread::sleep(Duration::from_millis(2));
        }
        arrived.sort();
        arrived
    }

    /// How the plain packet of each family fares.
    fn outcomes(&self) -> [Outcome; 2] {
        let zoo = self.zoo();
        ["IPv4 plain", "IPv6 plain"].map(|name| {
            let plain = zoo.iter().find(|specimen| specimen.name == name);
            let before = self.forwarded();
            let arrived = self.deliver(std::slice::from_ref(plain.unwrap()));
            match arrived.is_empty() {
                true => Outcome::Refused,
                false if self.forwarded() > before => Outcome::Fast,
                false => Outcome::Kernel,
            }
        })
    }

    /// How many packets the data plane has forwarded.
    fn forwarded(&self) -> u64 {
        if self.served.is_none() {
            return 0;
        }
        let status = answer(&self.folder.path().join("r.sock"), &["status"]);
        let packets = status["packets"].as_array().unwrap();
        let found = packets.iter().find(|packets| packets["end"] == "forwarded");
        found.map_or(0, |found| found["packets"].as_u64().unwrap())
    }

    /// Waits until packets fare like this and these arrive.
    fn await_delivery(
        &self,
        what: &str,
        expected: Option<[Outcome; 2]>,
        reference: &[String],
    ) -> Result<(), String> {
        let started = Instant::now();
        loop {
            let (outcomes, arrived) = (self.outcomes(), self.deliver(&self.zoo()));
            if expected.is_none_or(|expected| outcomes == expected) && arrived == reference {
                return Ok(());
            }
            let only = |some: &[String], others: &[String]| {
                let only = some.iter().filter(|packet| !others.contains(packet));
                only.cloned().collect::<Vec<_>>().join("\n")
            };
            if started.elapsed() > DEADLINE {
                return Err(format!(
                    "{what}: {outcomes:?} for {expected:?}\nleaked:\n{}\nlost:\n{}",
                    only(&arrived, reference),
                    only(reference, &arrived)
                ));
            }
        }
    }
}

/// The address that differs in the last bit.
fn neighbour_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => IpAddr::from((v4.to_bits() ^ 1).to_be_bytes()),
        IpAddr::V6(v6) => IpAddr::from((v6.to_bits() ^ 1).to_be_bytes()),
    }
}

fn shell(host: &testbed::Host, line: &str) {
    let run = || Command::new("sh").args(["-ec", line]).output().unwrap();
    let output = host.run(run).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
}

/// A socket that sees every frame of the calling thread's namespace.
fn capture() -> OwnedFd {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let protocol = SockProtocol::EthAll;
    socket(AddressFamily::Packet, SockType::Raw, flags, protocol).unwrap()
}

fn drain(capture: &OwnedFd, mut each: impl FnMut(&[u8])) {
    let mut frame = vec![0; 1 << 16];
    while let Ok(length) = recv(capture.as_raw_fd(), &mut frame, MsgFlags::empty()) {
        each(&frame[..length]);
    }
}

#[test]
fn what_passes_is_what_the_kernel_lets_through() {
    compare(&singles());
}

#[test]
#[ignore = "pairs of policies"]
fn what_passes_under_two_policies_is_what_the_kernel_lets_through() {
    compare(&pairs());
}

fn compare(cases: &[Case]) {
    if !sys::require::root() {
        return;
    }
    let references = references(cases);
    let check = |datapath: &str| {
        let rig = Rig::new(&format!("differential-{datapath}"), Some(datapath));
        let mut failures = Vec::new();
        for (number, (case, reference)) in cases.iter().zip(&references).enumerate() {
            rig.apply(number, case);
            thread::sleep(SETTLE);
            let what = format!("{datapath}: {}", case.apply);
            failures.extend(rig.await_delivery(&what, case.router, reference).err());
            rig.sh(&case.undo);
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

/// What the kernel alone lets through.
fn references(cases: &[Case]) -> Vec<Vec<String>> {
    let kernel = Rig::new("differential-kernel", None);
    let reference = |(number, case): (usize, &Case)| {
        kernel.apply(number, case);
        let mut arrived = kernel.deliver(&kernel.zoo());
        // Packets may be late on a busy machine.
        loop {
            let again = kernel.deliver(&kernel.zoo());
            if again == arrived {
                break;
            }
            arrived = again;
        }
        if let Some(expected) = case.router {
            let passes = kernel.outcomes().map(|outcome| outcome != Outcome::Refused);
            let expected = expected.map(|outcome| outcome != Outcome::Refused);
            assert_eq!(passes, expected, "{}", case.apply);
        }
        kernel.sh(&case.undo);
        arrived
    };
    cases.iter().enumerate().map(reference).collect()
}
