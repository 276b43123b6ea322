//! The loop that paced back ends share: wait, stamp, send, account.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use packet::payload::Header;

use crate::lateness::Lateness;
use crate::schedule::{Clock, LEAD_NS, Monotonic, Pacer, Schedule, interval_ps};
use crate::{Amount, Error, Load, SendReport};

/// Hands packets to the kernel.
pub(crate) trait Transmit {
    /// Sends one datagram for each header, in order, without waiting for room.
    fn send(&mut self, headers: &[Header]) -> BurstResult;

    /// Waits for what is still on its way out; returns how many packets taken before were lost.
    fn finish(&mut self) -> u64 {
        0
    }
}

/// How many datagrams of a burst the kernel took, from the front, and why not all of them.
#[derive(Debug)]
pub(crate) struct BurstResult {
    pub(crate) packets: usize,
    pub(crate) rest: Remainder,
}

#[derive(Debug)]
pub(crate) enum Remainder {
    Nothing,
    NoRoom,
    Failed(io::Error),
}

pub(crate) fn run(
    load: &Load,
    transmit: &mut impl Transmit,
    stop: &AtomicBool,
) -> Result<SendReport, Error> {
    let cpu_before = sys::clock::thread_cpu_ns();
    let mut sent = run_by(load, transmit, Monotonic, stop)?;
    sent.thread_cpu_ns = sys::clock::thread_cpu_ns() - cpu_before;
    Ok(sent)
}

fn run_by(
    load: &Load,
    transmit: &mut impl Transmit,
    clock: impl Clock,
    stop: &AtomicBool,
) -> Result<SendReport, Error> {
    let mut pacer = Pacer::new(clock, load.fifo);
    let start_ns = pacer.now() + LEAD_NS;
    let schedule = load.rate.map(|rate| Schedule {
        start_ns,
        interval_ps: interval_ps(rate),
    });
    let (packets, deadline) = limits(load.amount, start_ns, schedule);
    let mut lateness = Lateness::new();
    let mut sent = SendReport {
        flows: vec![0; load.destinations.len()],
        ..SendReport::default()
    };
    let mut headers = Vec::with_capacity(load.burst);
    let mut now = pacer.wait(start_ns);
    while sent.scheduled < packets && now < deadline && !stop.load(Ordering::Relaxed) {
        let burst = usize::try_from(packets - sent.scheduled)
            .unwrap_or(usize::MAX)
            .min(load.burst);
        let due = schedule.map(|schedule| schedule.due(sent.scheduled));
        let entered = match due {
            Some(due) => pacer.wait(due),
            None => pacer.rest(),
        };
        stamp(
            &mut headers,
            load,
            &sent,
            burst,
            due.unwrap_or(entered),
            entered,
        );
        let result = transmit.send(&headers);
        now = pacer.now();
        if let Some(due) = due {
            lateness.record(due, entered, now, burst as u64);
        }
        account(&mut sent, &headers, result)?;
    }
    let lost = transmit.finish();
    sent.sent -= lost;
    sent.errors += lost;
    sent.elapsed_ns = pacer.now() - start_ns;
    sent.achieved_pps = pace(&sent, schedule);
    (sent.lateness, sent.lateness_outside_send) = lateness.histograms();
    Ok(sent)
}

/// Packets to send, and the time to stop at.
fn limits(amount: Amount, start_ns: u64, schedule: Option<Schedule>) -> (u64, u64) {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    match (amount, schedule) {
        (Amount::Packets(packets), _) => (packets, u64::MAX),
        (Amount::Time(time), Some(schedule)) => (schedule.packets_in(ns(time)), u64::MAX),
        (Amount::Time(time), None) => (u64::MAX, start_ns.saturating_add(ns(time))),
    }
}

/// The headers of the next `burst` packets; flows take turns.
fn stamp(
    headers: &mut Vec<Header>,
    load: &Load,
    sent: &SendReport,
    burst: usize,
    intended_ns: u64,
    sent_ns: u64,
) {
    let flows = load.destinations.len();
    let first = usize::try_from(sent.scheduled % flows as u64).unwrap_or(0);
    headers.clear();
    headers.extend((0..burst).map(|i| {
        let flow = (first + i) % flows;
        Header {
            run: load.run,
            flow: u32::try_from(flow).unwrap_or(u32::MAX),
            sequence: sent.flows[flow] + (i / flows) as u64,
            intended_ns,
            sent_ns,
        }
    }));
}

/// Counts a burst. What was not taken gives its sequence numbers back.
fn account(sent: &mut SendReport, headers: &[Header], result: BurstResult) -> Result<(), Error> {
    let left = (headers.len() - result.packets) as u64;
    sent.scheduled += headers.len() as u64;
    sent.sent += result.packets as u64;
    for header in &headers[..result.packets] {
        sent.flows[header.flow as usize] = header.sequence + 1;
    }
    match result.rest {
        Remainder::Nothing => {}
        Remainder::NoRoom => sent.refused += left,
        // A load that cannot leave at all is a mistake, and a count of errors would hide which.
        Remainder::Failed(error) if sent.sent == 0 => {
            return Err(Error::io("the first packet cannot be sent")(error));
        }
        Remainder::Failed(_) => sent.errors += left,
    }
    Ok(())
}

/// Packets a second: over the time that was planned, where that is longer than the time it took
/// (the last packet goes out at the beginning of its interval).
#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
fn pace(sent: &SendReport, schedule: Option<Schedule>) -> f64 {
    let planned = schedule.map_or(0, |s| s.due(sent.scheduled) - s.start_ns);
    let elapsed = sent.elapsed_ns.max(planned).max(1);
    sent.sent as f64 * 1e9 / elapsed as f64
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::Backend;

    /// Time that passes only by being read (1 ns) and by sending.
    struct FakeClock(Cell<u64>);

    impl Clock for &FakeClock {
        fn now(&self) -> u64 {
            self.0.set(self.0.get() + 1);
            self.0.get()
        }

        fn sleep_until(&self, ns: u64) {
            self.0.set(self.0.get().max(ns));
        }
    }

    /// Takes `room` packets of each burst.
    struct Script<'a> {
        clock: &'a FakeClock,
        send_ns: u64,
        room: usize,
        seen: Vec<(u32, u64, u64)>,
    }

    impl Transmit for Script<'_> {
        fn send(&mut self, headers: &[Header]) -> BurstResult {
            let packets = headers.len().min(self.room);
            self.clock.0.set(self.clock.0.get() + self.send_ns);
            let result = headers[..packets].iter();
            self.seen
                .extend(result.map(|h| (h.flow, h.sequence, h.intended_ns)));
            BurstResult {
                packets,
                rest: if packets < headers.len() {
                    Remainder::NoRoom
                } else {
                    Remainder::Nothing
                },
            }
        }
    }

    fn load(rate: Option<f64>, amount: Amount, burst: usize, flows: usize) -> Load {
        Load {
            backend: Backend::Socket,
            ifindex: 0,
            source: "192.0.2.1:1".parse().unwrap(),
            destinations: vec!["192.0.2.2:2".parse().unwrap(); flows],
            source_mac: [0; 6],
            destination_mac: [0; 6],
            payload_len: 40,
            rate,
            amount,
            burst,
            run: 1,
            cpu: None,
            fifo: false,
        }
    }

    fn simulate(load: &Load, send_ns: u64, room: usize) -> (SendReport, Vec<(u32, u64, u64)>) {
        let clock = FakeClock(Cell::new(0));
        let mut script = Script {
            clock: &clock,
            send_ns,
            room,
            seen: Vec::new(),
        };
        let sent = run_by(load, &mut script, &clock, &AtomicBool::new(false)).unwrap();
        (sent, script.seen)
    }

    #[test]
    fn flows_take_turns_and_count_for_themselves() {
        let load = load(Some(1e6), Amount::Packets(7), 2, 3);
        let (sent, seen) = simulate(&load, 0, 2);
        let order: Vec<_> = seen
            .iter()
            .map(|&(flow, number, _)| (flow, number))
            .collect();
        assert_eq!(
            order,
            [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (0, 2)]
        );
        assert_eq!(sent.flows, [3, 2, 2]);
        assert_eq!((sent.scheduled, sent.sent, sent.refused), (7, 7, 0));
    }

    #[test]
    fn bursts_are_due_at_their_first_packets_time() {
        let load = load(Some(1e6), Amount::Packets(4), 2, 1);
        let (_, seen) = simulate(&load, 0, 2);
        let start = seen[0].2;
        let due: Vec<_> = seen.iter().map(|&(_, _, due)| due - start).collect();
        assert_eq!(due, [0, 0, 2000, 2000]);
    }

    #[test]
    fn refused_packets_are_counted_and_leave_no_gap() {
        let load = load(Some(1e6), Amount::Packets(12), 4, 2);
        let (sent, seen) = simulate(&load, 0, 3);
        assert_eq!((sent.scheduled, sent.sent, sent.refused), (12, 9, 3));
        for flow in 0..2 {
            let numbers: Vec<_> = seen.iter().filter(|s| s.0 == flow).map(|s| s.1).collect();
            let expected: Vec<_> = (0..sent.flows[flow as usize]).collect();
            assert_eq!(numbers, expected, "flow {flow}");
        }
    }

    #[test]
    fn slow_sends_make_lateness_but_not_the_generators() {
        let load = load(Some(1e6), Amount::Packets(100), 1, 1);
        let (sent, _) = simulate(&load, 1500, 1);
        assert!(sent.lateness.max() > Some(40_000));
        // Each packet costs the loop a reading or two of this clock.
        assert!(sent.lateness_outside_send.max() < Some(400));
        assert_eq!(sent.lateness.count(), 100);
    }

    #[test]
    fn the_rate_is_what_was_asked_for() {
        let load = load(
            Some(10_000.0),
            Amount::Time(Duration::from_millis(10)),
            1,
            1,
        );
        let (sent, _) = simulate(&load, 100, 1);
        assert_eq!(sent.scheduled, 100);
        assert!((sent.achieved_pps - 10_000.0).abs() < 1.0);
    }

    #[test]
    fn flat_out_ends_with_its_time() {
        let load = load(None, Amount::Time(Duration::from_micros(10)), 1, 1);
        let (sent, _) = simulate(&load, 999, 1);
        assert_eq!(sent.sent, 10);
        assert!(sent.lateness.is_empty());
    }

    #[test]
    fn a_stop_ends_it() {
        let load = load(None, Amount::Packets(10), 1, 1);
        let clock = FakeClock(Cell::new(0));
        let mut script = Script {
            clock: &clock,
            send_ns: 1,
            room: 1,
            seen: Vec::new(),
        };
        let sent = run_by(&load, &mut script, &clock, &AtomicBool::new(true)).unwrap();
        assert_eq!(sent.scheduled, 0);
    }
}
