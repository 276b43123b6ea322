//! A change trial: a subscriber joins and leaves a running stream again and again, while the
//! others' packets are accounted for exactly.

use std::io::IoSliceMut;
use std::mem;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use nix::sys::socket::sockopt::{RcvBufForce, ReceiveTimestampns};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;
use packet::payload::Header;
use probes::delay::MatchKey;
use serde_json::json;
use sys::clock::monotonic_ns;

use super::RelayBench;
use super::delay::{generate, probe, run_id};
use super::losses::Losses;
use super::process::RelayProcess;
use super::stage::Stage;
use crate::jobs::relay::load::{Load, TrialSpec};
use crate::outcome::Outcome;

/// The time between two changes: many packets at the rates used here.
const CHANGE_INTERVAL: Duration = Duration::from_millis(20);
/// A change without an effect after this time has failed.
const DEADLINE: Duration = Duration::from_secs(2);
/// Silence after which nothing more waits in the visitor's socket.
const QUIET: Duration = Duration::from_millis(50);
/// The bytes of the visitor's receive buffer. It holds all that a trial sends, because lost packets would look like a
/// late join or an early leave.
const RECEIVE_BUFFER: usize = 64 << 20;

pub(super) fn trial(bench: &RelayBench, spec: &TrialSpec<'_>) -> Result<(Stage, Outcome)> {
    let stage = Stage::set(&bench.layout(spec))?;
    let relay = stage.relay().context("only a relay changes live")?;
    let run = run_id(spec.seed);
    let probe = probe(&stage, MatchKey::Lowroad { run }, false, 1 << 16)?;
    let losses = Losses::watch(&stage)?;
    let mut visitor = Visitor::listen(&stage, run)?;
    let done = AtomicBool::new(false);
    let (sent, visits) = thread::scope(|scope| {
        let (done, visitor) = (&done, &mut visitor);
        let changing = scope.spawn(move || visit(relay, visitor, done));
        let sent = generate(bench, &stage, spec.load, run, None);
        done.store(true, Ordering::Relaxed);
        let visits = changing
            .join()
            .map_err(|_| anyhow::anyhow!("a thread died"));
        (sent, visits)
    });
    let (sent, visits) = (sent?, visits??);
    probe.settle(
        sent.sent * spec.load.subscribers as u64,
        Duration::from_millis(200),
    )?;
    let report = probe.report(None)?;
    let changes = Changes::of(&visits, &visitor.all()?, interval_ns(spec.load));
    let mut outcome = Outcome::default();
    outcome.counts.extend(
        report
            .counts()
            .map(|(name, count)| (name.to_owned(), count)),
    );
    // To the probe, the visitor is not a subscriber; the packets that it should get are not foreign.
    for name in ["received", "foreign"] {
        outcome
            .counts
            .entry(name.to_owned())
            .and_modify(|count| *count -= changes.welcome.min(*count));
    }
    let foreign = outcome.counts["foreign"] as f64;
    outcome.values.insert("foreign_packets".to_owned(), foreign);
    losses.note(&mut outcome)?;
    if let Some(median) = stats::median(&changes.effect_ms) {
        outcome
            .values
            .insert("subscriber_change_ms".to_owned(), median);
    }
    if report
        .subscribers
        .iter()
        .any(|s| s.missing > 0 || s.duplicates > 0)
    {
        outcome
            .flags
            .push("stable subscribers did not get every packet once".to_owned());
    }
    outcome
        .counts
        .insert("changes".to_owned(), changes.effect_ms.len() as u64);
    Ok((stage, outcome))
}

fn interval_ns(load: &Load) -> u64 {
    load.rate
        .map(|rate| 1_000_000_000 / u64::from(rate.0))
        .unwrap_or_default()
}

/// When the visitor asked to join, and to leave, and was told that it had left.
#[derive(Clone, Copy, Debug)]
struct Visit {
    join: u64,
    leave: u64,
    left: u64,
}

/// The results of joining and leaving.
#[derive(Debug, Default, PartialEq)]
struct Changes {
    /// From the request to the first packet got, or the last one, in milliseconds.
    effect_ms: Vec<f64>,
    /// Packets the visitor was to get: none that came before it asked to join, and none that was
    /// sent after its leaving was confirmed.
    welcome: u64,
}

impl Changes {
    fn of(visits: &[Visit], packets: &[Packet], interval_ns: u64) -> Self {
        let mut changes = Self::default();
        let ends = visits.iter().skip(1).map(|next| next.join);
        for (visit, end) in visits.iter().zip(ends.chain([u64::MAX])) {
            let got = || {
                let between = packets
                    .iter()
                    .filter(|packet| (visit.join..end).contains(&packet.came));
                between.filter(|packet| packet.sent <= visit.left)
            };
            changes.welcome += got().count() as u64;
            let came = || got().map(|packet| packet.came);
            let (Some(first), Some(last)) = (came().min(), came().max()) else {
                continue;
            };
            changes.effect_ms.push((first - visit.join) as f64 / 1e6);
            // Packets tell the time of a change to within their interval.
            let leaving = last.saturating_sub(visit.leave).max(interval_ns);
            changes.effect_ms.push(leaving as f64 / 1e6);
        }
        changes
    }
}

/// Joins and leaves until the load ends.
fn visit(relay: &RelayProcess, visitor: &mut Visitor, done: &AtomicBool) -> Result<Vec<Visit>> {
    let mut visits = Vec::new();
    let mut client = relay.client()?;
    let mut ended = false;
    thread::sleep(CHANGE_INTERVAL);
    while !ended && !done.load(Ordering::Relaxed) {
        let join = monotonic_ns();
        client.call(
            "subscriber.add",
            json!({
                "stream": "stream",
                "subscriber": {"name": "visitor", "to": visitor.address.to_string()},
            }),
        )?;
        ended = !visitor.joined(join, done)?;
        thread::sleep(CHANGE_INTERVAL);
        let leave = monotonic_ns();
        client.call(
            "subscriber.remove",
            json!({"stream": "stream", "subscriber": "visitor"}),
        )?;
        let left = monotonic_ns();
        visits.push(Visit { join, leave, left });
        thread::sleep(CHANGE_INTERVAL);
    }
    Ok(visits)
}

/// When a packet of the visitor's was sent, and when it came to the visitor's machine.
#[derive(Clone, Copy, Debug)]
struct Packet {
    sent: u64,
    came: u64,
}

/// A socket in the receiver's namespace, and a thread that notes what comes.
struct Visitor {
    address: SocketAddr,
    arriving: Receiver<Packet>,
    arrived: Vec<Packet>,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Visitor {
    fn listen(stage: &Stage, run: u32) -> Result<Self> {
        let mut address = stage.subscribers[0];
        address.set_port(address.port() - 1);
        let socket = stage
            .bed
            .host("receiver")?
            .run(move || UdpSocket::bind(address))??;
        socket.set_read_timeout(Some(QUIET))?;
        setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER)?;
        // Its thread may read a packet long after that came.
        setsockopt(&socket, ReceiveTimestampns, &true)?;
        let since_boot = monotonic_ns();
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let (sender, arriving) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while let Some(received) = receive(&socket, &ended) {
                let (header, stamp) = received;
                let came = since_boot + nanoseconds(stamp.saturating_sub(epoch));
                let packet = Packet {
                    sent: header.sent_ns,
                    came,
                };
                if header.run == run && sender.send(packet).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            address,
            arriving,
            arrived: Vec::new(),
            stop,
            thread: Some(thread),
        })
    }

    /// Waits for a packet that came after the visitor asked to join; false when the load ended
    /// before.
    fn joined(&mut self, join: u64, done: &AtomicBool) -> Result<bool> {
        let deadline = Instant::now() + DEADLINE;
        while Instant::now() < deadline {
            if let Ok(packet) = self.arriving.recv_timeout(Duration::from_millis(5)) {
                self.arrived.push(packet);
                if packet.came >= join {
                    return Ok(true);
                }
            } else if done.load(Ordering::Relaxed) {
                return Ok(false);
            }
        }
        bail!(
            "an added subscriber got nothing for {} s",
            DEADLINE.as_secs()
        );
    }

    /// All packets that came, those that still wait in the socket too.
    fn all(mut self) -> Result<Vec<Packet>> {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("a thread died"))?;
        }
        self.arrived.extend(self.arriving.try_iter());
        Ok(mem::take(&mut self.arrived))
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the thread itself.
            let _ = thread.join();
        }
    }
}

/// The next packet of a generator's, and the time of day it came; `None` once it has `ended` and
/// nothing more waits.
fn receive(socket: &UdpSocket, ended: &AtomicBool) -> Option<(Header, Duration)> {
    let mut buffer = [0; 2048];
    let mut control = nix::cmsg_space!(TimeSpec);
    loop {
        let mut room = [IoSliceMut::new(&mut buffer)];
        let flags = MsgFlags::empty();
        match recvmsg::<()>(socket.as_raw_fd(), &mut room, Some(&mut control), flags) {
            Ok(message) => {
                let stamp = message.cmsgs().ok()?.find_map(|control| match control {
                    ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp)),
                    _ => None,
                })?;
                let length = message.bytes;
                if let Some(header) = Header::read(&buffer[..length]) {
                    return Some((header, stamp));
                }
            }
            Err(_) if ended.load(Ordering::Relaxed) => return None,
            Err(_) => {}
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(sent: u64, came: u64) -> Packet {
        Packet { sent, came }
    }

    #[test]
    fn packets_are_judged_by_when_they_were_sent_and_came() {
        let visit = |join, leave, left| Visit { join, leave, left };
        let visits = [
            visit(1_000_000, 5_000_000, 5_400_000),
            visit(9_000_000, 12_000_000, 12_300_000),
        ];
        let packets = [
            // No subscriber had asked for it.
            packet(900_000, 950_000),
            // It had waited in the relay.
            packet(900_000, 1_200_000),
            packet(5_300_000, 5_500_000),
            // After its leaving was confirmed, for the first and for the second time.
            packet(5_500_000, 5_600_000),
            packet(12_400_000, 12_500_000),
            packet(8_800_000, 9_100_000),
            packet(11_800_000, 12_100_000),
        ];
        let changes = Changes::of(&visits, &packets, 100_000);
        assert_eq!(changes.welcome, 4);
        assert_eq!(changes.effect_ms, [0.2, 0.5, 0.1, 0.1]);
        assert_eq!(Changes::of(&visits, &[], 100_000), Changes::default());
    }

    #[test]
    fn leaving_is_told_to_within_an_interval() {
        let visit = Visit {
            join: 0,
            leave: 1_000_000,
            left: 1_050_000,
        };
        let packets = [packet(300_000, 400_000), packet(900_000, 990_000)];
        let changes = Changes::of(&[visit], &packets, 100_000);
        assert_eq!(changes.effect_ms, [0.4, 0.1]);
    }
}
