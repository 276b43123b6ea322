//! Under every policy of the kernel a router lets through what the kernel alone would, unchanged, and nothing else.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};
use test_support::differential::{Subject, compare};
use test_support::policies::{self, Case, Names, Outcome, optional, pairs, singles};
use test_support::zoo::{Path, Specimen, describe, zoo};
use testbed::{Bed, Child, Interface};

use crate::router_topology::{answer, serve_between, topology};

const DATAPATHS: [&str; 2] = ["xdp", "af-xdp"];
const PORT: u16 = 7001;
/// Nothing more comes after this long without a frame.
const QUIET: Duration = Duration::from_millis(40);

/// A client, a router and a server in a row.
struct Rig {
    bed: Bed,
    folder: tempfile::TempDir,
    names: Names,
    /// By IPv4 and by IPv6.
    paths: [Path; 2],
    round: u16,
    /// The port that packets come from.
    port: u16,
    to_router: OwnedFd,
    at_server: OwnedFd,
    served: Option<Child>,
}

impl Rig {
    fn new(datapath: &'static str) -> Self {
        Self::up(&format!("differential-{datapath}"), Some(datapath))
    }

    /// The kernel alone forwards.
    fn kernel() -> Self {
        Self::up("differential-kernel", None)
    }

    fn up(name: &str, datapath: Option<&str>) -> Self {
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
            own: addresses(&to_server),
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
        )
        .unwrap();
        let raw = || sys::socket::raw_sender(near.ifindex).unwrap();
        let to_router = client.run(raw).unwrap();
        let known = [(&to_client, &near), (&to_server, &far)];
        for (device, neighbour) in known {
            let mac = neighbour.mac.map(|byte| format!("{byte:02x}")).join(":");
            for address in addresses(neighbour) {
                let device = &device.name;
                let line =
                    format!("ip neigh replace {address} lladdr {mac} dev {device} nud permanent");
                shell(router, &line).unwrap();
            }
        }
        let served = datapath.map(|datapath| {
            serve_between(router, &["client", "server"], folder.path(), datapath, "")
        });
        Self {
            names,
            paths,
            round: 0,
            port: 0,
            to_router,
            at_server,
            served,
            folder,
            bed,
        }
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
}

impl Subject for Rig {
    fn open(&mut self, number: usize) {
        self.port = 4000 + u16::try_from(number).unwrap();
    }

    fn close(&mut self) {}

    fn run(&self, command: &str) -> Result<(), String> {
        shell(self.bed.host("router").unwrap(), &self.names.fill(command))
    }

    fn zoo(&mut self) -> Vec<Specimen> {
        self.round = self.round.wrapping_add(1);
        let of = |path: &Path| {
            let mut path = path.clone();
            path.source.set_port(self.port);
            zoo(&path, self.round)
        };
        self.paths.iter().flat_map(of).collect()
    }

    fn deliver(&mut self, specimens: &[Specimen]) -> Vec<String> {
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

    fn outcome(&mut self, _family: usize, plain: &Specimen) -> Outcome {
        let before = self.forwarded();
        let arrived = self.deliver(std::slice::from_ref(plain));
        match arrived.is_empty() {
            true => Outcome::Refused,
            false if self.forwarded() > before => Outcome::Fast,
            false => Outcome::Kernel,
        }
    }

    fn explanation(&self) -> String {
        let status = answer(&self.folder.path().join("r.sock"), &["status"]);
        status["policy"].to_string()
    }

    fn expected(&self, case: &Case) -> Option<[Outcome; 2]> {
        case.router
    }
}

/// The address that differs in the last bit.
fn neighbour_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => IpAddr::from((v4.to_bits() ^ 1).to_be_bytes()),
        IpAddr::V6(v6) => IpAddr::from((v6.to_bits() ^ 1).to_be_bytes()),
    }
}

fn shell(host: &testbed::Host, line: &str) -> Result<(), String> {
    let run = || Command::new("bash").args(["-ec", line]).output().unwrap();
    let output = host.run(run).unwrap();
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
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
    if sys::require::root() {
        compare(&singles(), Rig::kernel(), &DATAPATHS, Rig::new);
    }
}

#[test]
#[ignore = "pairs of policies"]
fn what_passes_under_two_policies_is_what_the_kernel_lets_through() {
    if sys::require::root() {
        compare(&pairs(), Rig::kernel(), &DATAPATHS, Rig::new);
    }
}

#[test]
fn policies_of_optional_modules_hold_for_forwarded_packets() {
    if sys::require::root() {
        let cases = optional();
        let unavailable = compare(&cases, Rig::kernel(), &DATAPATHS, Rig::new);
        policies::require(&cases, &unavailable);
    }
}
