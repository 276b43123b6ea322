//! Echo requests: the other machine's kernel answers, and no server is needed.

use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use nix::libc::{
    BPF_B, BPF_IMM, BPF_IND, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_LDX, BPF_MSH, BPF_RET,
};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use super::{Error, Progress, Watch};
use crate::flow::Totals;
use crate::outcome::{Outcome, Times};
use crate::pace::Pace;
use crate::socket::{self, timed_out};
use crate::spec::Spec;

/// What has not been answered for so long is lost.
const PATIENCE: Duration = Duration::from_secs(1);
const DENIED: Error = Error::Missing {
    what: "icmp needs CAP_NET_RAW, or a group within net.ipv4.ping_group_range",
    remedy: "run it as root, or let all groups: sysctl -w net.ipv4.ping_group_range='0 2147483647'",
};
/// How often it is said how far it is.
const SHOWN: Duration = Duration::from_millis(100);
/// Type, code, checksum, identifier and sequence number.
const HEADER: usize = 8;
/// Types of answers to echo requests.
const ANSWER4: u8 = 0;
const ANSWER6: u8 = 129;
/// Of an IPv4 header: words of four bytes are counted in half a byte.
const WORD: usize = 4;

pub(super) fn measure(
    targets: &[SocketAddr],
    spec: &Spec,
    watch: Watch<'_>,
) -> Result<Outcome, Error> {
    let (target, mut echo) = first(targets, spec)?;
    let failed = |cause| Error::Icmp { target, cause };
    let totals = Totals::default();
    totals.sizes(&(&echo.socket).into());
    let mut times = Times::default();
    let mut pace = spec.rate.map(|rate| Pace::new(rate, 0, 1));
    let begun = Instant::now();
    let (mut window, mut shown) = (None, begun);
    let mut early = None;
    loop {
        let now = Instant::now();
        if window.is_none() && now >= begun + spec.warmup() {
            window = Some((totals.mark(), now));
        }
        let measured = window.map(|(_, since)| now - since);
        if measured.is_some_and(|measured| measured >= spec.duration()) {
            break;
        }
        if now - shown >= SHOWN {
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
            // No rate is so low that nobody would be told for long.
            Some(pace) => pace.wait(|| shown.elapsed() >= SHOWN),
            None => Some(now),
        };
        let Some(sent) = sent else { continue };
        if pace.is_some() && measured.is_some() {
            times.began_late(sent.max(now).elapsed());
        }
        match echo.ask().map_err(failed)? {
            Some(bytes) => {
                totals.count(bytes);
                if measured.is_some() {
                    times.took(sent.elapsed());
                }
            }
            None if measured.is_some() => totals.lose(),
            None => {}
        }
    }
    let window = window.map_or_else(|| totals.mark(), |(window, _)| window);
    let near = totals.close(&window, spec.flows);
    if let (Some(pace), Some((opened, closed))) = (pace, totals.measured()) {
        times.leave_out_all(&pace, opened, closed);
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

/// The first of these that there is a way to.
fn first(targets: &[SocketAddr], spec: &Spec) -> Result<(IpAddr, Echo), Error> {
    let mut failed = Error::Io(io::ErrorKind::AddrNotAvailable.into());
    for to in targets {
        let target = to.ip();
        match Echo::open(*to, spec) {
            Ok(echo) => return Ok((target, echo)),
            Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => return Err(DENIED),
            Err(cause) => failed = Error::Icmp { target, cause },
        }
    }
    Err(failed)
}

struct Echo {
    socket: Socket,
    v6: bool,
    /// The kernel gives the identifier and takes away what is not ours.
    unprivileged: bool,
    request: Vec<u8>,
    /// For what comes back: made before it is timed.
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
        // Whom `net.ipv4.ping_group_range` admits needs no privilege; root may do without it.
        let (socket, unprivileged) = match Socket::new(domain, Type::DGRAM, Some(protocol)) {
            Ok(socket) => (socket, true),
            Err(_) => (Socket::new(domain, Type::RAW, Some(protocol))?, false),
        };
        if !unprivileged {
            // It hears what others are told, too, of which there may be more than it has room for.
            socket.attach_filter(&answers_only(target.is_ipv6()))?;
        }
        target.set_port(0);
        socket.connect(&target.into())?;
        socket.set_read_timeout(Some(socket::LOOK))?;
        Ok(Self {
            socket,
            v6: target.is_ipv6(),
            unprivileged,
            request: vec![0; HEADER + spec.message as usize],
            room: vec![0; 1 << 16],
            identifier: socket::random()?,
            sequence: 0,
        })
    }

    /// Sends a request and waits for its answer: how many bytes came back, none if none did.
    fn ask(&mut self) -> io::Result<Option<usize>> {
        self.sequence = self.sequence.wrapping_add(1);
        let (kind, answer) = if self.v6 {
            (128, ANSWER6)
        } else {
            (8, ANSWER4)
        };
        let sequence = self.sequence.to_be_bytes();
        let [high, low] = self.identifier;
        let header = [kind, 0, 0, 0, high, low, sequence[0], sequence[1]];
        for (to, from) in self.request.iter_mut().zip(header) {
            *to = from;
        }
        // Of ICMPv6 the kernel makes it, with addresses that are known to it alone.
        if !self.v6 {
            let sum = checksum(&self.request).to_be_bytes();
            for (to, from) in self.request.iter_mut().skip(2).zip(sum) {
                *to = from;
            }
        }
        match self.socket.send(&self.request) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            // No route any more, or a full queue: nothing comes back.
            _ => {}
        }
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let received = match (&self.socket).read(&mut self.room) {
                Ok(received) => received,
                Err(error) if timed_out(&error) => continue,
                Err(_) => return Ok(None),
            };
            if let Some(message) = self.message(self.room.get(..received).unwrap_or_default())
                && message.first() == Some(&answer)
                && message.get(6..8) == Some(&sequence[..])
                && (self.unprivileged || message.get(4..6) == Some(&self.identifier[..]))
            {
                return Ok(Some(message.len() - HEADER));
            }
        }
        Ok(None)
    }

    /// A raw socket hears IPv4 headers as well.
    fn message<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let raw = !self.unprivileged && !self.v6;
        let begin = match raw {
            true => usize::from(bytes.first()? & 0xf) * WORD,
            false => 0,
        };
        bytes.get(begin..).filter(|message| message.len() >= HEADER)
    }
}

/// Drops what is no answer to a request for an echo: a raw socket hears IPv4 headers before it, and no IPv6 ones.
fn answers_only(v6: bool) -> [SockFilter; 5] {
    let step = |code: u32, otherwise, value| {
        SockFilter::new(u16::try_from(code).unwrap_or(0), 0, otherwise, value)
    };
    let (begin, answer) = if v6 {
        (step(BPF_LDX | BPF_IMM, 0, 0), ANSWER6)
    } else {
        (step(BPF_LDX | BPF_B | BPF_MSH, 0, 0), ANSWER4)
    };
    [
        begin,
        step(BPF_LD | BPF_B | BPF_IND, 0, 0),
        step(BPF_JMP | BPF_JEQ | BPF_K, 1, answer.into()),
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
    fn checksums_are_those_of_the_protocol() {
        // The example of RFC 1071, section 3.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&bytes), !0xddf2);
        assert_eq!(checksum(&[0xff]), !0xff00);
    }
}
