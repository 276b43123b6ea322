//! Random expressions about addresses and ports that occur in given packets.

use std::net::SocketAddr;

use features::{PacketReader, Sender};
use packet::pcap::OwnedFrame;

/// A generator: no test here needs to find a smaller case.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        // Marsaglia's xorshift64.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 1).unwrap() % limit
    }

    pub(crate) fn of<'a, T>(&mut self, choice: &'a [T]) -> &'a T {
        &choice[self.below(choice.len())]
    }
}

/// The endpoints of these frames' packets.
pub(crate) fn ends(frames: &[OwnedFrame]) -> Vec<SocketAddr> {
    let mut reader = PacketReader::default();
    let mut ends = Vec::new();
    for frame in frames {
        let frame = frame.as_frame();
        let Some(packet) = reader.read(&frame) else {
            continue;
        };
        ends.extend([Sender::First, Sender::Second].map(|sender| {
            let end = packet.key.endpoint(sender);
            SocketAddr::new(end.ip(packet.key.version), end.port)
        }));
    }
    ends.sort();
    ends.dedup();
    ends
}

/// What expressions are made of.
pub(crate) struct Grammar {
    /// Endpoints that packets have.
    pub(crate) ends: Vec<SocketAddr>,
    /// Also what tcpdump does not know: lists with commas, networks in these files.
    pub(crate) files: Option<Vec<String>>,
}

impl Grammar {
    pub(crate) fn expression(&self, random: &mut Random, depth: usize) -> String {
        let parts = 1 + random.below(3);
        let mut text = self.term(random, depth);
        for _ in 1..parts {
            let join = random.of(&["and", "or", "&&", "||"]);
            text = format!("{text} {join} {}", self.term(random, depth));
        }
        text
    }

    fn term(&self, random: &mut Random, depth: usize) -> String {
        match random.below(6) {
            0 => format!("not {}", self.term(random, depth)),
            1 if depth > 0 => format!("({})", self.expression(random, depth - 1)),
            _ => self.test(random),
        }
    }

    fn test(&self, random: &mut Random) -> String {
        let sides = ["", "src ", "dst ", "src or dst ", "src and dst "];
        let sides = *random.of(&sides);
        let end = *random.of(&self.ends);
        let other = *random.of(&self.ends);
        let (address, port) = (end.ip(), end.port());
        match random.below(12) {
            0 => (*random.of(&["ip", "ip6", "tcp", "udp", "icmp", "icmp6", "igmp", "esp"]))
                .to_owned(),
            1 => format!("proto {}", random.of(&[6, 17, 1, 58, 47, 50, 132])),
            2 => format!(
                "{} {}",
                random.of(&["less", "greater"]),
                40 + random.below(200)
            ),
            3 | 4 => format!("{sides}host {address}"),
            5 => format!("{sides}net {}", network(end, random)),
            6 | 7 => {
                let protocol = random.of(&["", "tcp ", "udp "]);
                format!("{protocol}{sides}port {port}")
            }
            8 => {
                let (low, high) = (port.min(other.port()), port.max(other.port()));
                format!("{sides}portrange {low}-{high}")
            }
            9 => format!("{sides}port ({port} or {})", other.port()),
            _ => match &self.files {
                None => format!("{sides}host {address} or {}", other.ip()),
                Some(files) => self.ours(sides, files, random),
            },
        }
    }

    fn ours(&self, sides: &str, files: &[String], random: &mut Random) -> String {
        let ends: Vec<SocketAddr> = (0..2 + random.below(9))
            .map(|_| *random.of(&self.ends))
            .collect();
        let list = |text: &dyn Fn(&SocketAddr) -> String| -> String {
            ends.iter().map(text).collect::<Vec<_>>().join(",")
        };
        match random.below(5) {
            0 => format!("{sides}port {}", list(&|end| end.port().to_string())),
            1 => format!("{sides}host {}", list(&|end| end.ip().to_string())),
            2 => format!("{sides}net in {}", random.of(files)),
            3 => format!("vlan {}", random.below(10)),
            _ => (*random.of(&["vlan", "gre", "sctp", "proto 33"])).to_owned(),
        }
    }
}

/// A network that has this address in it.
pub(crate) fn network(end: SocketAddr, random: &mut Random) -> String {
    match end {
        SocketAddr::V4(end) => {
            let bits = u32::try_from(random.below(33)).unwrap();
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            let address = std::net::Ipv4Addr::from_bits(end.ip().to_bits() & mask);
            format!("{address}/{bits}")
        }
        SocketAddr::V6(end) => {
            let bits = u32::try_from(random.below(129)).unwrap();
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            let address = std::net::Ipv6Addr::from_bits(end.ip().to_bits() & mask);
            format!("{address}/{bits}")
        }
    }
}
