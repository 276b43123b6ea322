//! Replaying a capture: at its own pace, scaled, or at a rate; as it is, or with every UDP datagram
//! sent to one target.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use packet::checksum;
use packet::parse::{Fragment, PacketHeaders, Verdict, parse};
use packet::pcap::{ETHERNET, OwnedFrame, Reader};
use packet::protocol;
use sys::mmsg::{self, Family, Outgoing};

use crate::lateness::Lateness;
use crate::schedule::{LEAD_NS, Monotonic, Pacer, Schedule, interval_ps};
use crate::{Amount, Error, Load, SendReport};

/// Which capture, when, and where to.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// A pcap or pcapng file; it is read whole before the first frame is sent.
    pub path: PathBuf,
    pub timing: Timing,
    /// Send only UDP, to the load's first destination and destination MAC. Everything else is sent
    /// as it was captured.
    pub redirect: bool,
}

/// When each frame is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timing {
    /// The captured times. A frame older than the one before it is due together with that.
    Original,
    /// The captured times, this many times as fast.
    Scaled(f64),
    /// Frames a second, whatever was captured.
    Rate(f64),
}

/// Frames that were not replayed, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkipCounts {
    /// The capture does not hold all of the frame.
    pub truncated: u64,
    /// Not an Ethernet frame.
    pub link_type: u64,
    /// Longer than the device's MTU allows.
    pub too_long: u64,
    /// Redirecting: not UDP, or not IP.
    pub not_udp: u64,
    /// Redirecting: a fragment, whose checksum cannot be kept right.
    pub fragment: u64,
    /// Redirecting: of another IP version than the target.
    pub other_family: u64,
    /// Redirecting: malformed headers.
    pub malformed: u64,
}

/// A frame and when it is due, in nanoseconds after the first.
#[derive(Debug, PartialEq, Eq)]
struct ScheduledFrame {
    after_ns: u64,
    frame: Vec<u8>,
}

pub(crate) fn run(load: &Load, replay: &Replay, stop: &AtomicBool) -> Result<SendReport, Error> {
    let target = match (replay.redirect, load.destinations.first()) {
        (true, None) => return Err(Error::Load("redirecting needs a destination".into())),
        (true, Some(&to)) => Some((to, load.destination_mac)),
        (false, _) => None,
    };
    let link = netdev::Netlink::new()?.link_by_index(load.ifindex)?;
    let records = read(&replay.path)?;
    let (frames, skipped) = prepare(records, replay.timing, target, link.mtu as usize + 14)?;
    let socket = sys::socket::raw_sender(load.ifindex)
        .map_err(Error::io(format!("sending from {}", link.name)))?;
    let mut sent = send(load, &frames, &socket, stop)?;
    sent.skipped = skipped;
    Ok(sent)
}

fn read(path: &Path) -> Result<Vec<OwnedFrame>, Error> {
    let name = path.display();
    let file = File::open(path).map_err(Error::io(format!("opening {name}")))?;
    Reader::new(file)
        .and_then(Iterator::collect)
        .map_err(|error| Error::Load(format!("{name}: {error}")))
}

/// Selects the frames to send, and computes when each is due.
fn prepare(
    records: Vec<OwnedFrame>,
    timing: Timing,
    target: Option<(SocketAddr, [u8; 6])>,
    longest: usize,
) -> Result<(Vec<ScheduledFrame>, SkipCounts), Error> {
    let (speed, schedule) = match timing {
        Timing::Original => (1.0, None),
        Timing::Scaled(speed) if speed > 0.0 && speed.is_finite() => (speed, None),
        Timing::Rate(rate) if (1e-3..=1e9).contains(&rate) => {
            let interval_ps = interval_ps(rate);
            let start_ns = 0;
            (
                1.0,
                Some(Schedule {
                    start_ns,
                    interval_ps,
                }),
            )
        }
        _ => {
            return Err(Error::Load(
                "a replay's speed or rate must be above 0".into(),
            ));
        }
    };
    let first = records.first().map_or(0, |record| record.timestamp_ns);
    let mut frames: Vec<ScheduledFrame> = Vec::with_capacity(records.len());
    let mut skipped = SkipCounts::default();
    for mut record in records {
        let Some(()) = check_record(&mut record, target, longest, &mut skipped) else {
            continue;
        };
        let after_ns = match schedule {
            Some(schedule) => schedule.due(frames.len() as u64),
            None => scale(since(first, record.timestamp_ns), speed),
        };
        frames.push(ScheduledFrame {
            after_ns: frames.last().map_or(0, |due| due.after_ns).max(after_ns),
            frame: record.frame,
        });
    }
    Ok((frames, skipped))
}

/// Nanoseconds from one time to another; none when that is older.
fn since(first_ns: i64, time_ns: i64) -> u64 {
    u64::try_from(time_ns.saturating_sub(first_ns)).unwrap_or(0)
}

/// Prepares a record for sending, or counts why it is skipped.
fn check_record(
    record: &mut OwnedFrame,
    target: Option<(SocketAddr, [u8; 6])>,
    longest: usize,
    skipped: &mut SkipCounts,
) -> Option<()> {
    let counter = if record.link_type != ETHERNET {
        &mut skipped.link_type
    } else if record.frame.len() < record.original_length as usize {
        &mut skipped.truncated
    } else if record.frame.len() > longest {
        &mut skipped.too_long
    } else {
        match target.map(|(to, mac)| redirect(&mut record.frame, to, mac)) {
            None | Some(Ok(())) => return Some(()),
            Some(Err(RedirectError::Malformed)) => &mut skipped.malformed,
            Some(Err(RedirectError::Fragment)) => &mut skipped.fragment,
            Some(Err(RedirectError::NotUdp)) => &mut skipped.not_udp,
            Some(Err(RedirectError::OtherFamily)) => &mut skipped.other_family,
        }
    };
    *counter += 1;
    None
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RedirectError {
    Malformed,
    Fragment,
    NotUdp,
    OtherFamily,
}

/// Gives a UDP frame another destination; checksums follow by difference, so that a wrong one stays
/// wrong and an absent one absent.
fn redirect(frame: &mut [u8], to: SocketAddr, mac: [u8; 6]) -> Result<(), RedirectError> {
    let parsed = parse(frame).map_err(|_| RedirectError::Malformed)?;
    if parsed.fragment != Fragment::None {
        return Err(RedirectError::Fragment);
    }
    if parsed.verdict != Verdict::Complete || parsed.protocol != protocol::UDP {
        return Err(RedirectError::NotUdp);
    }
    if parsed.destination.is_ipv4() != to.is_ipv4() {
        return Err(RedirectError::OtherFamily);
    }
    frame[..6].copy_from_slice(&mac);
    rewrite(frame, &parsed, to);
    Ok(())
}

fn rewrite(frame: &mut [u8], parsed: &PacketHeaders, to: SocketAddr) {
    let (from_ip, to_ip) = (octets(parsed.destination), octets(to.ip()));
    let address = parsed.l3 + if to.is_ipv4() { 16 } else { 24 };
    if to.is_ipv4() {
        let check = read16(frame, parsed.l3 + 10);
        let check = checksum::replace_bytes(check, &from_ip, &to_ip);
        write16(frame, parsed.l3 + 10, check);
    }
    frame[address..address + to_ip.len()].copy_from_slice(&to_ip);
    let check = read16(frame, parsed.l4 + 6);
    if check != 0 {
        let check = checksum::replace_bytes(check, &from_ip, &to_ip);
        let check = match checksum::replace(check, parsed.destination_port, to.port()) {
            0 => u16::MAX,
            check => check,
        };
        write16(frame, parsed.l4 + 6, check);
    }
    write16(frame, parsed.l4 + 2, to.port());
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn read16(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

fn write16(frame: &mut [u8], at: usize, value: u16) {
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a capture's length in nanoseconds, and a positive speed"
)]
fn scale(ns: u64, speed: f64) -> u64 {
    (ns as f64 / speed).round() as u64
}

fn send(
    load: &Load,
    frames: &[ScheduledFrame],
    socket: &OwnedFd,
    stop: &AtomicBool,
) -> Result<SendReport, Error> {
    let cpu_before = sys::clock::thread_cpu_ns();
    let mut pacer = Pacer::new(Monotonic, load.fifo);
    let start = pacer.now() + LEAD_NS;
    let mut lateness = Lateness::new();
    let mut sent = SendReport::default();
    let outgoing = Outgoing::connected(Family::V4);
    for ScheduledFrame { after_ns, frame } in limited(frames, load.amount) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let due = start + after_ns;
        let entered = pacer.wait(due);
        let result = mmsg::send_one(socket, frame, &outgoing, mmsg::DONT_WAIT);
        lateness.record(due, entered, pacer.now(), 1);
        sent.scheduled += 1;
        match result.map_err(|error| (error.raw_os_error(), error)) {
            Ok(_) => sent.sent += 1,
            Err((Some(libc::EAGAIN | libc::ENOBUFS), _)) => sent.refused += 1,
            Err((_, error)) if sent.sent == 0 => {
                return Err(Error::io("the first frame cannot be sent")(error));
            }
            Err(_) => sent.errors += 1,
        }
    }
    sent.elapsed_ns = pacer.now().saturating_sub(start);
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    {
        sent.achieved_pps = sent.sent as f64 * 1e9 / sent.elapsed_ns.max(1) as f64;
    }
    sent.flows = vec![sent.sent];
    (sent.lateness, sent.lateness_outside_send) = lateness.histograms();
    sent.thread_cpu_ns = sys::clock::thread_cpu_ns() - cpu_before;
    Ok(sent)
}

fn limited(frames: &[ScheduledFrame], amount: Amount) -> impl Iterator<Item = &ScheduledFrame> {
    let (packets, time) = match amount {
        Amount::Packets(packets) => (
            usize::try_from(packets).unwrap_or(usize::MAX),
            Duration::MAX,
        ),
        Amount::Time(time) => (usize::MAX, time),
    };
    frames
        .iter()
        .take(packets)
        .take_while(move |due| Duration::from_nanos(due.after_ns) < time)
}

#[cfg(test)]
mod tests {
    use packet::build;

    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

    fn record(timestamp_ns: i64, frame: Vec<u8>) -> OwnedFrame {
        OwnedFrame {
            timestamp_ns,
            original_length: u32::try_from(frame.len()).unwrap(),
            link_type: ETHERNET,
            frame,
        }
    }

    fn due_times(timing: Timing) -> Vec<u64> {
        let records = [1000, 3000, 2000, 9000].map(|time| record(time, vec![0; 60]));
        let (frames, _) = prepare(records.into(), timing, None, 1514).unwrap();
        frames.iter().map(|due| due.after_ns).collect()
    }

    #[test]
    fn times_are_kept_scaled_or_replaced() {
        assert_eq!(due_times(Timing::Original), [0, 2000, 2000, 8000]);
        assert_eq!(due_times(Timing::Scaled(4.0)), [0, 500, 500, 2000]);
        assert_eq!(due_times(Timing::Rate(1e6)), [0, 1000, 2000, 3000]);
        assert!(prepare(vec![], Timing::Scaled(0.0), None, 1514).is_err());
    }

    /// A redirected frame is the frame that would have been built for the target.
    #[test]
    fn redirected_frames_are_right() {
        for (source, from, to) in [
            ("192.0.2.1:7", "198.51.100.9:53", "203.0.113.200:9000"),
            (
                "[2001:db8::1]:7",
                "[2001:db8::9]:53",
                "[2001:db8:ffff::2]:9000",
            ),
        ] {
            let (source, to): (SocketAddr, SocketAddr) =
                (source.parse().unwrap(), to.parse().unwrap());
            let build = |to: SocketAddr, mac| {
                let datagram = build::udp(source, to).macs([2, 0, 0, 0, 0, 1], mac);
                datagram.payload(*b"some payload!")
            };
            let mut frame = build(from.parse().unwrap(), [2, 0, 0, 0, 0, 2]).frame();
            redirect(&mut frame, to, MAC).unwrap();
            assert_eq!(frame, build(to, MAC).frame());
        }
    }

    #[test]
    fn what_is_skipped_is_counted_by_reason() {
        let v4: SocketAddr = "192.0.2.1:7".parse().unwrap();
        let v6: SocketAddr = "[2001:db8::1]:7".parse().unwrap();
        let mut cut = record(0, build::udp(v4, v4).payload([0; 90]).frame());
        cut.original_length += 1;
        let mut cooked = record(0, vec![0; 60]);
        cooked.link_type = 113;
        let mut bad_version = build::udp(v4, v4).frame();
        bad_version[14] = 0x75;
        let records = vec![
            cut,
            cooked,
            record(0, build::udp(v4, v4).payload(vec![0; 1500]).frame()),
            record(0, build::tcp(v4, v4, 2, 0).frame()),
            record(
                0,
                build::udp(v4, v4)
                    .fragment(0, true)
                    .payload([0; 64])
                    .frame(),
            ),
            record(0, build::udp(v6, v6).frame()),
            record(0, bad_version),
            record(0, build::udp(v4, v4).frame()),
        ];
        let (frames, skipped) =
            prepare(records.clone(), Timing::Original, Some((v4, MAC)), 1514).unwrap();
        let each = SkipCounts {
            truncated: 1,
            link_type: 1,
            too_long: 1,
            not_udp: 1,
            fragment: 1,
            other_family: 1,
            malformed: 1,
        };
        assert_eq!((skipped, frames.len()), (each, 1));
        let (frames, skipped) = prepare(records, Timing::Original, None, 1514).unwrap();
        assert_eq!(
            (skipped.truncated, skipped.too_long, frames.len()),
            (1, 1, 5)
        );
    }
}
