//! A client, a router and a server, each in a namespace.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use lpm::NextHop;
use router::forward::{Adjacency, Family};
use testbed::{Host, HostSpec, LinkKind, LinkSpec, Neighbours, Topology};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn topology(neighbours: Neighbours, server_mtu: u32) -> Topology {
    let mut topology = Topology::default();
    for name in ["client", "router", "server"] {
        let mut host = HostSpec::native();
        host.settings.forward = name == "router";
        host.settings.neighbours = neighbours;
        topology.host.insert(name.to_owned(), host);
    }
    for (ends, mtu) in [
        (["client", "router"], 1500),
        (["router", "server"], server_mtu),
    ] {
        let mut link = LinkSpec::new(LinkKind::Direct, &ends);
        // A frame is forwarded as it is.
        link.settings.tx_checksum = false;
        link.settings.tso = false;
        link.settings.udp_segmentation = false;
        link.settings.mtu = mtu;
        topology.link.push(link);
    }
    topology
}

pub(crate) fn hop(number: u16) -> NextHop {
    NextHop::new(number).unwrap()
}

/// Waits for a condition.
pub(crate) fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether the first three of a `ping` were answered, however late.
pub(crate) fn none_is_lost(said: &str) -> bool {
    (1..=3).all(|number| said.contains(&format!("icmp_seq={number} ")))
}

/// The address that a host has on the link to another.
pub(crate) fn address(host: &Host, peer: &str, family: Family) -> IpAddr {
    let interface = host.interface(peer).unwrap();
    match family {
        Family::V4 => interface.v4,
        Family::V6 => interface.v6,
    }
}

/// How a host's frames reach another, by what the bed says of both.
pub(crate) fn adjacency(host: &Host, peer: &str) -> Adjacency {
    let interface = host.interface(peer).unwrap();
    Adjacency {
        ifindex: interface.ifindex,
        source: interface.mac,
        destination: interface.peers[0].mac,
        vlan: None,
        mtu: interface.mtu,
    }
}

/// Whether a program succeeds in a host, and what it prints.
pub(crate) fn print(host: &Host, command: &str) -> (bool, String) {
    let mut words = command.split_whitespace();
    let mut program = Command::new(words.next().unwrap());
    program.args(words);
    let done = host.run(|| program.output().unwrap()).unwrap();
    let mut text = String::from_utf8_lossy(&done.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&done.stderr));
    (done.status.success(), text)
}

/// A conversation of a mebibyte in each direction.
pub(crate) fn converse(client: &Host, server: &Host, at: SocketAddr) {
    const BYTES: usize = 1 << 20;
    let listener = server.run(|| TcpListener::bind(at).unwrap()).unwrap();
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = vec![0; BYTES];
        stream.read_exact(&mut all).unwrap();
        stream.write_all(&all).unwrap();
    });
    let talk = || {
        let mut stream = TcpStream::connect_timeout(&at, TIMEOUT).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let sent: Vec<u8> = (0..=250).cycle().take(BYTES).collect();
        stream.write_all(&sent).unwrap();
        let mut back = vec![0; BYTES];
        stream.read_exact(&mut back).unwrap();
        assert!(back == sent, "what came back is not what was sent");
    };
    client.run(talk).unwrap();
    echo.join().unwrap();
}
