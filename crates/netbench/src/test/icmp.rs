//! `icmp`: echo requests, which the kernel of the other machine answers. It needs no server.

use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use nix::libc::{
    BPF_B, BPF_IMM, BPF_IND, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_LDX, BPF_MSH, BPF_RET,
};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use super::method::Method;
use super::{Facts, Quantity, Rate, Sizes, Transport};
use crate::client::{Error, Watch, measure_alone};
use crate::flow::requests::{self, Exchange};
use crate::flow::sequence::{MIN_NUMBERED, latest_number, write_number};
use crate::flow::{Clock, Counter, datagram, payload};
use crate::outcome::Outcome;
use crate::socket::{self, Source, path_mtu_to, timed_out, tune};
use crate::spec::Spec;

const NO_PERMISSION: Error = Error::Missing {
    what: "icmp needs CAP_NET_RAW, or a group within net.ipv4.ping_group_range",
    remedy: "run it as root, or let all groups: sysctl -w net.ipv4.ping_group_range='0 2147483647'",
};
/// Type, code, checksum, identifier and sequence number.
const HEADER: usize = 8;
const SEQUENCE: Range<usize> = 6..8;
/// Bytes of a number at the beginning of the payload: the sequence number counts fewer requests than may be lost in a row.
const NUMBER: usize = 8;
/// Types of echo requests and replies.
const REQUEST4: u8 = 8;
const REQUEST6: u8 = 128;
const REPLY4: u8 = 0;
const REPLY6: u8 = 129;
/// Bytes in a unit of an IPv4 header's length.
const WORD: usize = 4;

pub(super) static FACTS: Facts = Facts {
    quantity: Quantity::Latency,
    transport: Transport::Datagrams,
    sizes: Sizes::Message { default: 56 },
    rate: Rate::Default(100),
    single_flow: true,
    busy_poll: false,
};

pub(super) static METHOD: Method = Method::Client(measure);

fn measure(
    targets: &[SocketAddr],
    spec: &Spec,
    source: &Source,
    watch: Watch<'_>,
) -> Result<Outcome, Error> {
    let (target, echo) = open(targets, spec, source)?;
    let echo = Mutex::new(echo);
    let run = |_flow, clock: &mut Clock<'_>, counter: Counter<'_>| {
        counter.count_connected();
        let mut echo = echo.lock().unwrap_or_else(PoisonError::into_inner);
        counter.register(&(&echo.socket).into())?;
        clock.start(spec, 0);
        let open = spec.rate.is_some();
        echo.socket.set_nonblocking(open)?;
        let mut requests = Requests {
            echo: &mut echo,
            counter,
        };
        let ran = match open {
            true => requests::run_open(&mut requests, clock, counter),
            false => requests::run_closed(&mut requests, clock, counter),
        };
        ran.map_err(|cause| io::Error::new(cause.kind(), format!("icmp to {target}: {cause}")))
    };
    let mut outcome = measure_alone(spec, &run, watch)?;
    outcome.packet_bytes = spec.largest_packet(target.is_ipv6());
    outcome.path_mtu = path_mtu_to(SocketAddr::new(target, 0), source).ok();
    Ok(outcome)
}

/// A socket to the first of these addresses that has a route.
fn open(targets: &[SocketAddr], spec: &Spec, source: &Source) -> Result<(IpAddr, Echo), Error> {
    let mut failed = Error::Io(io::ErrorKind::AddrNotAvailable.into());
    for to in targets {
        let target = to.ip();
        match Echo::open(*to, spec, source) {
            Ok(echo) => return Ok((target, echo)),
            Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
                return Err(NO_PERMISSION);
            }
            Err(cause) => failed = Error::Icmp { target, cause },
        }
    }
    Err(failed)
}

struct Echo {
    socket: Socket,
    v6: bool,
    /// The kernel chooses the identifier and filters replies by it.
    unprivileged: bool,
    request: Vec<u8>,
    /// For replies; allocated before anything is timed.
    room: Vec<u8>,
    identifier: [u8; 2],
    /// The number of the last request.
    newest: u64,
}

/// Echo requests of an open loop.
struct Requests<'a, 'b> {
    echo: &'a mut Echo,
    counter: Counter<'b>,
}

impl Echo {
    fn open(mut target: SocketAddr, spec: &Spec, source: &Source) -> io::Result<Self> {
        let (domain, protocol) = match target {
            SocketAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
            SocketAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
        };
        // A group within `net.ipv4.ping_group_range` needs no privilege; root needs no such group.
        let (socket, unprivileged) = match Socket::new(domain, Type::DGRAM, Some(protocol)) {
            Ok(socket) => (socket, true),
            Err(_) => (Socket::new(domain, Type::RAW, Some(protocol))?, false),
        };
        if !unprivileged {
            // A raw socket receives all ICMP messages, which could fill its buffer.
            socket.attach_filter(&replies_only(target.is_ipv6()))?;
        }
        target.set_port(0);
        source.bind_address(&socket, target)?;
        tune(&socket, spec)?;
        socket.connect(&target.into())?;
        socket.set_read_timeout(Some(socket::POLL_INTERVAL))?;
        Ok(Self {
            socket,
            v6: target.is_ipv6(),
            unprivileged,
            request: request(spec.message),
            room: vec![0; datagram::MAX_DATAGRAM_BYTES],
            identifier: socket::random()?,
            newest: 0,
        })
    }

    /// Sends a request. False if the socket has no room for it now.
    fn send(&mut self, number: u64, counter: Counter<'_>) -> io::Result<bool> {
        let kind = if self.v6 { REQUEST6 } else { REQUEST4 };
        let [high, low] = self.identifier;
        let header = [kind, 0, 0, 0, high, low];
        for (to, from) in self.request.iter_mut().zip(header) {
            *to = from;
        }
        if let Some(sequence) = self.request.get_mut(SEQUENCE) {
            sequence.copy_from_slice(&sequence_of(number));
        }
        if let Some(payload) = self.request.get_mut(HEADER..) {
            write_number(payload, number);
        }
        self.newest = number;
        // The kernel computes that of ICMPv6, because it covers the addresses.
        if !self.v6 {
            let sum = checksum(&self.request).to_be_bytes();
            for (to, from) in self.request.iter_mut().skip(2).zip(sum) {
                *to = from;
            }
        }
        match self.socket.send(&self.request) {
            Ok(_) => Ok(true),
            Err(error) if timed_out(&error) => Ok(false),
            // A lost route, a full queue or a firewall: nothing comes back.
            Err(_) => {
                counter.count_send_error();
                Ok(true)
            }
        }
    }

    /// The next reply, if one arrives before a read times out: the number of its request, and the size of its payload.
    fn reply(&mut self, counter: Counter<'_>) -> io::Result<Option<(u64, usize)>> {
        // What a router reports of an earlier request is its loss.
        let Ok(received) = (&self.socket).read(&mut self.room) else {
            return Ok(None);
        };
        let reply = if self.v6 { REPLY6 } else { REPLY4 };
        let message = self.message(self.room.get(..received).unwrap_or_default());
        let ours = message.filter(|message| {
            message.first() == Some(&reply)
                && (self.unprivileged || message.get(4..6) == Some(&self.identifier[..]))
        });
        let Some(message) = ours else {
            return Ok(None);
        };
        let payload = message.get(HEADER..).unwrap_or_default();
        let number = match payload.len() < MIN_NUMBERED {
            false => {
                counter
                    .record_datagram(payload.get(..NUMBER).unwrap_or(payload))
                    .0
            }
            // The sequence number of ICMP is all there is room for.
            true => {
                let sequence = message.get(SEQUENCE).unwrap_or_default();
                counter.record_datagram(sequence);
                latest_number(sequence, sequence.len(), self.newest)
            }
        };
        Ok(Some((number, payload.len())))
    }

    /// The ICMP message of what was received: a raw socket receives IPv4 headers as well.
    fn message<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let raw = !self.unprivileged && !self.v6;
        let begin = match raw {
            true => usize::from(bytes.first()? & 0xf) * WORD,
            false => 0,
        };
        bytes.get(begin..).filter(|message| message.len() >= HEADER)
    }
}

impl Exchange for Requests<'_, '_> {
    fn socket(&self) -> BorrowedFd<'_> {
        self.echo.socket.as_fd()
    }

    fn send(&mut self, number: u64) -> io::Result<bool> {
        self.echo.send(number, self.counter)
    }

    fn receive(&mut self) -> io::Result<Option<(u64, usize)>> {
        self.echo.reply(self.counter)
    }

    fn is_lossy(&self) -> bool {
        true
    }
}

/// A request with a payload of this size, in bytes.
fn request(payload: u32) -> Vec<u8> {
    [&[0; HEADER], payload::pattern(payload)].concat()
}

/// The low bytes of a request's number.
fn sequence_of(number: u64) -> [u8; 2] {
    let [.., high, low] = number.to_be_bytes();
    [high, low]
}

/// A filter that passes echo replies only. A raw socket receives IPv4 headers, and no IPv6 headers.
fn replies_only(v6: bool) -> [SockFilter; 5] {
    let step = |code: u32, otherwise, value| {
        SockFilter::new(u16::try_from(code).unwrap_or(0), 0, otherwise, value)
    };
    let (begin, reply) = if v6 {
        (step(BPF_LDX | BPF_IMM, 0, 0), REPLY6)
    } else {
        (step(BPF_LDX | BPF_B | BPF_MSH, 0, 0), REPLY4)
    };
    [
        begin,
        step(BPF_LD | BPF_B | BPF_IND, 0, 0),
        step(BPF_JMP | BPF_JEQ | BPF_K, 1, reply.into()),
        step(BPF_RET | BPF_K, 0, u32::MAX),
        step(BPF_RET | BPF_K, 0, 0),
    ]
}

/// RFC 1071. `packet::checksum` is the same, but that crate links a decompressor, which would make the agent larger.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([pair[0], low]))
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_matches_rfc1071() {
        // The example of RFC 1071, section 3.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&bytes), !0xddf2);
        assert_eq!(checksum(&[0xff]), !0xff00);
    }
}
