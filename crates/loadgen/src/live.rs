//! The live-frame back end: a BPF program writes each frame and redirects it, run by the kernel in
//! long calls (setting one up costs as much as thousands of packets). With a rate it is one call, in
//! which the program itself waits until a burst is due, and occupies its CPU meanwhile.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bpf::{Map, Run};
use stats::Histogram;

use crate::frame::{self, Template};
use crate::schedule::{LEAD_NS, Monotonic, Pacer, Schedule, interval_ps};
use crate::skel::live::{LiveSkel, LiveSkelBuilder, types};
use crate::{Amount, Error, Load, SendReport};

/// Frames of a call: the first has the minimum. Each call sleeps some 25 ms for its set-up, and only
/// between calls the generator sees that the time is over.
const MIN_CALL_FRAMES: u64 = 262_144;
const MAX_CALL_FRAMES: u64 = 8 * MIN_CALL_FRAMES;
pub(crate) const MAX_BATCH: usize = 256;

pub(crate) fn run(load: &Load, stop: &AtomicBool) -> Result<SendReport, Error> {
    let mut storage = MaybeUninit::uninit();
    let templates: Vec<_> = load
        .destinations
        .iter()
        .map(|&to| Template::new(load, to))
        .collect();
    let flows = u32::try_from(templates.len()).map_err(|_| Error::Load("too many flows".into()))?;
    let builder = LiveSkelBuilder::default();
    let mut skel = bpf::load(builder, &mut storage, "the generator program", |open| {
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            knobs.device = load.ifindex;
            knobs.flow_count = flows;
            knobs.run_id = load.run;
            knobs.header_length = u32::try_from(templates[0].headers.len()).unwrap_or(0);
            knobs.burst = u32::try_from(load.burst).unwrap_or(1);
            if let Some(rate) = load.rate {
                knobs.interval_ps = interval_ps(rate);
                knobs.lead_ns = LEAD_NS;
            }
        }
        open.maps
            .flows
            .set_max_entries(flows)
            .map_err(Error::bpf("sizing the flow table"))
    })?;
    let table = Map::new(&skel.maps.flows)?;
    for (index, template) in (0..).zip(&templates) {
        table
            .set(&index, &flow(template))
            .map_err(Error::bpf("writing the flow table"))?;
    }
    let mut sent = match load.rate {
        Some(rate) => send_paced(load, &skel, &templates[0], rate)?,
        None => send(load, &mut skel, &templates[0], stop)?,
    };
    let sequences = (0..flows).map(|index| {
        let flow = table
            .get(&index)
            .map_err(Error::bpf("reading the flow table"));
        Ok(flow?.unwrap_or_default().next)
    });
    sent.flows = sequences.collect::<Result<_, Error>>()?;
    Ok(sent)
}

/// One call for all, so that no call's set-up makes packets late.
fn send_paced(
    load: &Load,
    skel: &LiveSkel<'_>,
    template: &Template,
    rate: f64,
) -> Result<SendReport, Error> {
    let schedule = Schedule {
        start_ns: 0,
        interval_ps: interval_ps(rate),
    };
    let packets = match load.amount {
        Amount::Packets(packets) => packets,
        Amount::Time(time) => schedule.packets_in(u64::try_from(time.as_nanos()).unwrap_or(0)),
    };
    if packets == 0 || i32::try_from(packets).is_err() {
        return Err(Error::Load(format!(
            "a paced load of live frames is one call of 1 to {} packets, not {packets}",
            i32::MAX
        )));
    }
    let cpu_before = sys::clock::thread_cpu_ns();
    run_program(skel, &blank(load, template), packets, load.burst)?;
    let ended = sys::clock::monotonic_ns();
    let started = skel.maps.bss_data.as_deref().map_or(0, |bss| bss.start_ns);
    let lateness = lateness(skel)?;
    let mut sent = SendReport {
        scheduled: packets,
        sent: packets,
        elapsed_ns: ended.saturating_sub(started),
        // The receiver delays packets only if it shares the generator's CPU.
        lateness_outside_send: lateness.clone(),
        lateness,
        thread_cpu_ns: sys::clock::thread_cpu_ns() - cpu_before,
        ..SendReport::default()
    };
    sent.sending_ns = sent.elapsed_ns;
    sent.achieved_pps = per_second(sent.sent, sent.elapsed_ns);
    Ok(sent)
}

fn lateness(skel: &LiveSkel<'_>) -> Result<Histogram, Error> {
    let histogram = Map::<u32, types::histogram>::new(&skel.maps.lateness)?.get(&0);
    let histogram = histogram.map_err(Error::bpf("reading how late packets were"))?;
    // The program's histogram has exactly the buckets of ours.
    let counts = histogram.unwrap_or_default().counts;
    Ok(Histogram::from_counts(&counts).unwrap_or_default())
}

/// A frame of the right length; the program writes the rest.
fn blank(load: &Load, template: &Template) -> Vec<u8> {
    let mut frame = vec![0; template.headers.len()];
    frame.extend(frame::filler(load.payload_len));
    frame
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
fn per_second(packets: u64, elapsed_ns: u64) -> f64 {
    packets as f64 * 1e9 / elapsed_ns.max(1) as f64
}

fn send(
    load: &Load,
    skel: &mut LiveSkel<'_>,
    template: &Template,
    stop: &AtomicBool,
) -> Result<SendReport, Error> {
    let frame = blank(load, template);
    let start = sys::clock::monotonic_ns();
    let cpu_before = sys::clock::thread_cpu_ns();
    let (packets, time) = match load.amount {
        Amount::Packets(packets) => (packets, Duration::MAX),
        Amount::Time(time) => (u64::MAX, time),
    };
    let mut sent = SendReport::default();
    let mut pacer = Pacer::new(Monotonic, load.fifo);
    while sent.sent < packets
        && Duration::from_nanos(sent.elapsed_ns) < time
        && !stop.load(Ordering::Relaxed)
    {
        let call = next_call(&sent, time).min(packets - sent.sent);
        if let Some(bss) = skel.maps.bss_data.as_deref_mut() {
            bss.start_ns = 0;
        }
        let done = run_program(skel, &frame, call, load.burst.min(MAX_BATCH))?;
        let now = sys::clock::monotonic_ns();
        let first = skel
            .maps
            .bss_data
            .as_deref()
            .map_or(now, |bss| bss.start_ns);
        sent.sent += done;
        sent.sending_ns += now.saturating_sub(first);
        sent.elapsed_ns = now - start;
        pacer.rest();
    }
    sent.scheduled = sent.sent;
    sent.thread_cpu_ns = sys::clock::thread_cpu_ns() - cpu_before;
    sent.achieved_pps = per_second(sent.sent, sent.elapsed_ns);
    Ok(sent)
}

/// Frames that fit the time that is left, at the rate so far.
fn next_call(sent: &SendReport, time: Duration) -> u64 {
    let elapsed = u128::from(sent.elapsed_ns);
    let left = time.as_nanos().saturating_sub(elapsed);
    let fit = left.saturating_mul(u128::from(sent.sent)) / elapsed.max(1);
    u64::try_from(fit)
        .unwrap_or(MAX_CALL_FRAMES)
        .clamp(MIN_CALL_FRAMES, MAX_CALL_FRAMES)
}

/// Runs the program on `repeat` frames and returns that number.
fn run_program(skel: &LiveSkel<'_>, frame: &[u8], repeat: u64, batch: usize) -> Result<u64, Error> {
    let run = Run {
        frame,
        repeat,
        live: true,
        batch,
        ..Default::default()
    };
    bpf::run(skel.progs.generate.as_fd(), &run)
        .map_err(Error::io("running the generator program"))?;
    Ok(repeat)
}

fn flow(template: &Template) -> types::live_flow {
    let mut flow = types::live_flow {
        // The program adds words as they lie in memory.
        sum: u16::from_ne_bytes(template.sum.to_be_bytes()).into(),
        ..Default::default()
    };
    flow.headers[..template.headers.len()].copy_from_slice(&template.headers);
    flow
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_grow_to_what_fits_the_time() {
        let sent = |sent, elapsed_ns| SendReport {
            sent,
            elapsed_ns,
            ..SendReport::default()
        };
        let second = Duration::from_secs(1);
        assert_eq!(next_call(&SendReport::default(), second), MIN_CALL_FRAMES);
        assert_eq!(
            next_call(&sent(MIN_CALL_FRAMES, 100_000_000), second),
            MAX_CALL_FRAMES
        );
        assert_eq!(
            next_call(&sent(MIN_CALL_FRAMES, 333_333_333), second),
            2 * MIN_CALL_FRAMES
        );
        assert_eq!(
            next_call(&sent(4 * MIN_CALL_FRAMES, 999_000_000), second),
            MIN_CALL_FRAMES
        );
        assert_eq!(
            next_call(&sent(MIN_CALL_FRAMES, 1), Duration::MAX),
            MAX_CALL_FRAMES
        );
    }
}
