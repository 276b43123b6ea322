//! A generated capture: conversations of many kinds at once, the same for the same seed.
//!
//! It does not model a real network. It has what flow software must handle: few long
//! conversations and many short ones, both directions, several protocols, and scans.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use packet::build;
use packet::pcap::{ETHERNET, Writer};
use splitmix::SplitMix64;

/// Conversations at a time.
const CONVERSATIONS: usize = 2000;
/// When the capture starts.
const START_NS: u64 = 1_700_000_000_000_000_000;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// Writes a capture of `packets` packets; returns its output.
pub fn write<W: Write>(output: W, packets: usize, seed: u64) -> io::Result<W> {
    let mut writer = Writer::new(output, ETHERNET)?;
    let mut random = SplitMix64::new(seed);
    let mut due = BinaryHeap::new();
    let mut conversations: Vec<Conversation> = Vec::new();
    for index in 0..CONVERSATIONS.min(packets) {
        conversations.push(Conversation::random(&mut random));
        due.push(Reverse((START_NS + random.below(1_000_000_000), index)));
    }
    for _ in 0..packets {
        let Some(Reverse((time_ns, index))) = due.pop() else {
            break;
        };
        writer.write(time_ns.cast_signed(), &conversations[index].next_frame())?;
        let pause = if conversations[index].is_over() {
            conversations[index] = Conversation::random(&mut random);
            random.below(10_000_000)
        } else {
            // Most packets follow soon, a few after a pause.
            let longest = [20_000_000, 3_000_000_000][usize::from(random.below(50) == 0)];
            random.below(longest)
        };
        due.push(Reverse((time_ns + pause + 1000, index)));
    }
    writer.finish()
}

/// The kind of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Handshake, data mostly from the server, FIN from both sides.
    Tcp,
    /// Question and answer.
    Dns,
    /// Datagrams one way, now and then one back.
    Udp,
    Ping,
    /// A SYN that a RST answers, or nothing does.
    Scan,
}

#[derive(Debug)]
struct Conversation {
    kind: Kind,
    client: SocketAddr,
    server: SocketAddr,
    sent: u64,
    packets: u64,
    size: usize,
}

impl Conversation {
    fn random(random: &mut SplitMix64) -> Self {
        let kind = match random.below(100) {
            0..40 => Kind::Tcp,
            40..65 => Kind::Dns,
            65..75 => Kind::Udp,
            75..78 => Kind::Ping,
            _ => Kind::Scan,
        };
        let packets = match kind {
            // Heavy-tailed: one in a hundred has hundreds of packets.
            Kind::Tcp => 7 + 400 / (1 + random.below(120)),
            Kind::Udp => 1 + 600 / (1 + random.below(100)),
            Kind::Dns => 2,
            Kind::Ping => 2 * (1 + random.below(5)),
            Kind::Scan => 1 + random.below(2),
        };
        let port = match kind {
            Kind::Tcp => [443, 80, 22, 8443][random.index(4)],
            Kind::Dns => 53,
            Kind::Scan => u16::try_from(1 + random.below(1024)).unwrap_or(1),
            Kind::Udp | Kind::Ping => 5004,
        };
        Self {
            kind,
            client: SocketAddr::new(address(10, random), ephemeral(random)),
            server: SocketAddr::new(address(172, random), port),
            sent: 0,
            packets,
            size: 40 + random.index(1300),
        }
    }

    fn is_over(&self) -> bool {
        self.sent >= self.packets
    }

    fn next_frame(&mut self) -> Vec<u8> {
        let at = self.sent;
        self.sent += 1;
        let left = self.packets - self.sent;
        match self.kind {
            Kind::Tcp => self.tcp(at, left),
            Kind::Dns => self.udp(at == 0, if at == 0 { 40 } else { 120 }),
            Kind::Udp => self.udp(at % 16 != 15, self.size),
            Kind::Ping if at.is_multiple_of(2) => build::echo(self.client.ip(), self.server.ip())
                .payload(vec![7; 56])
                .frame(),
            Kind::Ping => build::echo(self.server.ip(), self.client.ip())
                .payload(vec![7; 56])
                .frame(),
            Kind::Scan if at == 0 => self.segment(true, SYN, 0),
            Kind::Scan => self.segment(false, RST | ACK, 0),
        }
    }

    fn tcp(&self, at: u64, left: u64) -> Vec<u8> {
        match (at, left) {
            (0, _) => self.segment(true, SYN, 0),
            (1, _) => self.segment(false, SYN | ACK, 0),
            (2, _) => self.segment(true, ACK, 0),
            (3, _) => self.segment(true, PSH | ACK, self.size / 4),
            (_, 2) => self.segment(true, FIN | ACK, 0),
            (_, 1) => self.segment(false, FIN | ACK, 0),
            (_, 0) => self.segment(true, ACK, 0),
            (at, _) if at % 3 == 0 => self.segment(true, ACK, 0),
            _ => self.segment(false, PSH | ACK, self.size),
        }
    }

    fn segment(&self, forward: bool, flags: u8, payload: usize) -> Vec<u8> {
        let (from, to) = self.ends(forward);
        build::tcp(from, to, flags, 0)
            .payload(vec![0; payload])
            .frame()
    }

    fn udp(&self, forward: bool, payload: usize) -> Vec<u8> {
        let (from, to) = self.ends(forward);
        build::udp(from, to).payload(vec![0; payload]).frame()
    }

    fn ends(&self, forward: bool) -> (SocketAddr, SocketAddr) {
        if forward {
            (self.client, self.server)
        } else {
            (self.server, self.client)
        }
    }
}

fn address(net: u8, random: &mut SplitMix64) -> IpAddr {
    let mut byte = || u8::try_from(random.below(256)).unwrap_or(0);
    Ipv4Addr::new(net, byte(), byte(), byte()).into()
}

fn ephemeral(random: &mut SplitMix64) -> u16 {
    u16::try_from(32_768 + random.below(28_000)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use packet::pcap::Reader;

    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_capture_in_order_of_time() {
        let capture = write(Vec::new(), 5000, 1).unwrap();
        assert_eq!(capture, write(Vec::new(), 5000, 1).unwrap());
        assert_ne!(capture, write(Vec::new(), 5000, 2).unwrap());
        let times: Vec<i64> = Reader::new(capture.as_slice())
            .unwrap()
            .map(|captured| captured.unwrap().timestamp_ns)
            .collect();
        assert_eq!(times.len(), 5000);
        assert!(times.is_sorted());
    }
}
