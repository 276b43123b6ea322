//! A plane that routes between the two, and what they do.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use lpm::{Prefix, Rib};
use netdev::XdpMode;
use router::forward::{Family, Forwarding, Plane, Punt};
use router::xdp::{End, Port, Settings, Xdp, start};
use testbed::{Bed, Host, Topology};

use crate::common::network::{self, TIMEOUT, hop};

pub(crate) const TO_SERVER: u16 = 1;
pub(crate) const TO_CLIENT: u16 = 2;
pub(crate) const LOCAL: u16 = 3;

pub(crate) struct Rig {
    pub(crate) bed: Bed,
    pub(crate) xdp: Xdp,
}

impl Rig {
    /// With routes to both networks, and the router's own addresses.
    pub(crate) fn new(name: &str, topology: &Topology, mode: XdpMode) -> Self {
        let bed = Bed::up(topology, name).unwrap();
        let router = bed.host("router").unwrap();
        let (mut v4, mut v6) = (Rib::new(), Rib::new());
        for (peer, number) in [("server", TO_SERVER), ("client", TO_CLIENT)] {
            let interface = router.interface(peer).unwrap();
            for (address, number, network) in
                [(interface.v4, number, true), (interface.v4, LOCAL, false)]
            {
                let IpAddr::V4(address) = address else {
                    panic!()
                };
                let len = if network { 24 } else { 32 };
                v4.insert(
                    Prefix::containing(address.to_bits(), len).unwrap(),
                    hop(number),
                );
            }
            for (address, number, len) in [(interface.v6, number, 64), (interface.v6, LOCAL, 128)] {
                let IpAddr::V6(address) = address else {
                    panic!()
                };
                v6.insert(
                    Prefix::containing(address.to_bits(), len).unwrap(),
                    hop(number),
                );
            }
        }
        let settings = Settings {
            mode,
            ..Settings::default()
        };
        let ports: Vec<Port> = router
            .interfaces()
            .iter()
            .map(|one| Port {
                ifindex: one.ifindex,
                tags: [0; 2],
                mac: one.mac,
            })
            .collect();
        let xdp = router
            .run(|| {
                let mut xdp = start(&settings, v4, v6).unwrap();
                for family in [Family::V4, Family::V6] {
                    let local = Forwarding::Punt(Punt::Local);
                    xdp.next_hop(family, hop(LOCAL), &local).unwrap();
                    for number in [TO_SERVER, TO_CLIENT] {
                        let unknown = Forwarding::Punt(Punt::Unresolved);
                        xdp.next_hop(family, hop(number), &unknown).unwrap();
                    }
                }
                xdp.listen(&ports).unwrap();
                xdp
            })
            .unwrap();
        Self { bed, xdp }
    }

    pub(crate) fn host(&self, name: &str) -> &Host {
        self.bed.host(name).unwrap()
    }

    /// Sends to both ends by what the bed says of them.
    pub(crate) fn introduce(&mut self) {
        for (peer, number) in [("server", TO_SERVER), ("client", TO_CLIENT)] {
            let to = Forwarding::Neighbour(network::adjacency(self.host("router"), peer));
            for family in [Family::V4, Family::V6] {
                self.next_hop(family, number, &to);
            }
        }
    }

    pub(crate) fn next_hop(&mut self, family: Family, number: u16, to: &Forwarding) {
        let router = self.bed.host("router").unwrap();
        let xdp = &mut self.xdp;
        router
            .run(|| xdp.next_hop(family, hop(number), to))
            .unwrap()
            .unwrap();
    }

    pub(crate) fn packets(&self, end: End) -> u64 {
        self.xdp.counters().unwrap().get(end).packets
    }

    /// The server's address.
    pub(crate) fn server(&self, family: Family) -> IpAddr {
        network::address(self.host("server"), "router", family)
    }

    /// What a program prints in a host, and whether it succeeds.
    pub(crate) fn print(&self, host: &str, command: &str) -> (bool, String) {
        network::print(self.host(host), command)
    }

    /// A conversation of a mebibyte in each direction.
    pub(crate) fn converse(&self, family: Family) {
        let at = SocketAddr::new(self.server(family), 7000);
        network::converse(self.host("client"), self.host("server"), at);
    }

    /// A datagram and its answer.
    pub(crate) fn ask(&self, family: Family) {
        let server = SocketAddr::new(self.server(family), 7001);
        let bind = |host: &str, at: SocketAddr| {
            let socket = self
                .host(host)
                .run(|| UdpSocket::bind(at).unwrap())
                .unwrap();
            socket.set_read_timeout(Some(TIMEOUT)).unwrap();
            socket
        };
        let (at, mut bytes) = (bind("server", server), [0; 16]);
        let any = if server.is_ipv4() {
            "0.0.0.0:0"
        } else {
            "[::]:0"
        };
        let client = bind("client", any.parse().unwrap());
        client.send_to(b"question", server).unwrap();
        let (length, from) = at.recv_from(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], b"question");
        at.send_to(b"answer", from).unwrap();
        let length = client.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], b"answer");
    }
}

pub(crate) fn flag(family: Family) -> &'static str {
    match family {
        Family::V4 => "-4",
        Family::V6 => "-6",
    }
}
