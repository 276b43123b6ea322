//! `icmp`: echo requests, which the kernel of the other machine answers. It needs no server.

use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use nix::libc::{
    BPF_B, BPF_IMM, BPF_IND, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_LDX, BPF_MSH, BPF_RET,
};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use super::method::Method;
use super::{Facts, Quantity, Rate, Sizes, Transport};
use crate::client::{Error, Progress, Watch};
use crate::flow::{ANSWER_TIMEOUT, Totals, datagram};
use crate::outcome::{Outcome, Times};
use crate::pace::Pace;
use crate::socket::{self, timed_out};
use crate::spec::Spec;

const NO_PERMISSION: Error = Error::Missing {
    what: "icmp needs CAP_NET_RAW, or a group within net.ipv4.ping_group_range",
    remedy: "run it as root, or let all groups: sysctl -w net.ipv4.ping_group_range='0 2147483647'",
};
/// The interval of calls to the watch.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Type, code, checksum, identifier and sequence number.
const HEADER: usize = 8;
/// Types of echo replies.
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

fn measure(targets: &[SocketAddr], spec: &Spec, watch: Watch<'_>) -> Result<Outcome, Error> {
    let (target, mut echo) = open(targets, spec)?;
    let failed = |cause| Error::Icmp { target, cause };
    let totals = Totals::default();
    totals.record_buffers(&(&echo.socket).into());
    let mut times = Times::default();
    let mut pace = spec.rate.map(|rate| Pace::new(rate, 0, 1));
    let begun = Instant::now();
    let (mut window, mut shown) = (None, begun);
    let mut early = None;
    loop {
        let now = Instant::now();
        if window.is_none() && now >= begun + spec.warmup() {
            window = Some((totals.open_window(), now));
        }
        let measured = window.map(|(_, since)| now - since);
        if measured.is_some_and(|measured| measured >= spec.duration()) {
            break;
        }
        if now - shown >= PROGRESS_INTERVAL {
            shown = now;
            let progress = Progress {
                measured,
                bytes: totals.bytes(),
                messages: totals.messages(),
                step: None,
            };
            if watch(&progress) == ControlFlow::Break(()) {
                early = Some("stopped".to_owned());
                break;
            }
        }
        let sent = match &mut pace {
            // At a low rate the watch is called meanwhile.
            Some(pace) => pace.wait(|| shown.elapsed() >= PROGRESS_INTERVAL),
            None => Some(now),
        };
        let Some(sent) = sent else { continue };
        if pace.is_some() && measured.is_some() {
            times.record_lateness(sent.max(now).elapsed());
        }
        match echo.request().map_err(failed)? {
            Some(bytes) => {
                totals.count(bytes);
                if measured.is_some() {
                    times.record(sent.elapsed());
                }
            }
            None if measured.is_some() => totals.count_lost(),
            None => {}
        }
    }
    let window = window.map_or_else(|| totals.open_window(), |(window, _)| window);
    let near = totals.close_window(&window, spec.flows);
    if let (Some(pace), Some((opened, closed))) = (pace, totals.window()) {
        times.record_all_unsent(&pace, opened, closed);
    }
    Ok(Outcome {
        spec: spec.clone(),
        near,
        far: None,
        latency: Some(times.latency),
        transfer: None,
        lost: totals.lost(),
        unsent: times.unsent,
        unfinished: times.unfinished,
        late: times.late,
        ended_early: early,
    })
}

/// A socket to the first of these addresses that has a route.
fn open(targets: &[SocketAddr], spec: &Spec) -> Result<(IpAddr, Echo), Error> {
    let mut failed = Error::Io(io::ErrorKind::AddrNotAvailable.into());
    for to in targets {
        let target = to.ip();
        match Echo::open(*to, spec) {
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
    sequence: u16,
}

impl Echo {
    fn open(mut target: SocketAddr, spec: &Spec) -> io::Result<Self> {
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
        socket.connect(&target.into())?;
        socket.set_read_timeout(Some(socket::POLL_INTERVAL))?;
        Ok(Self {
            socket,
            v6: target.is_ipv6(),
            unprivileged,
            request: vec![0; HEADER + spec.message as usize],
            room: vec![0; datagram::MAX_DATAGRAM_BYTES],
            identifier: socket::random()?,
            sequence: 0,
        })
    }

    /// Sends a request and waits for its reply: its bytes, or none if none came.
    fn request(&mut self) -> io::Result<Option<usize>> {
        self.sequence = self.sequence.wrapping_add(1);
        let (kind, reply) = if self.v6 { (128, REPLY6) } else { (8, REPLY4) };
        let sequence = self.sequence.to_be_bytes();
        let [high, low] = self.identifier;
        let header = [kind, 0, 0, 0, high, low, sequence[0], sequence[1]];
        for (to, from) in self.request.iter_mut().zip(header) {
            *to = from;
        }
        // The kernel computes that of ICMPv6, because it covers the addresses.
        if !self.v6 {
            let sum = checksum(&self.request).to_be_bytes();
            for (to, from) in self.request.iter_mut().skip(2).zip(sum) {
                *to = from;
            }
        }
        match self.socket.send(&self.request) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            // A lost route or a full queue: nothing comes back.
            _ => {}
        }
        let begun = Instant::now();
        while begun.elapsed() < ANSWER_TIMEOUT {
            let received = match (&self.socket).read(&mut self.room) {
                Ok(received) => received,
                Err(error) if timed_out(&error) => continue,
                Err(_) => return Ok(None),
            };
            if let Some(message) = self.message(self.room.get(..received).unwrap_or_default())
                && message.first() == Some(&reply)
                && message.get(6..8) == Some(&sequence[..])
                && (self.unprivileged || message.get(4..6) == Some(&self.identifier[..]))
            {
                return Ok(Some(message.len() - HEADER));
            }
        }
        Ok(None)
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

/// RFC 1071.
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
