//! The live-frame back end: a BPF program writes each frame and redirects it, run by the kernel in
//! long calls (setting one up costs as much as thousands of packets). With a rate it is one call, in
//! which the program itself waits until a burst is due, and occupies its CPU meanwhile.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, libbpf_sys};
use stats::Histogram;

use crate::frame::{self, Template};
use crate::schedule::{LEAD_NS, Monotonic, Pacer, Schedule, interval_ps};
use crate::skel::live::{LiveSkel, LiveSkelBuilder, types};
use crate::{Amount, Error, Load, Sent};

/// Frames in the first call, and at most in later ones: each call sleeps some 25 ms for its set-up,
/// and only between calls it is found out that the time is over.
const CALL: u64 = 262_144;
const LONGEST_CALL: u64 = 8 * CALL;
pub(crate) const MAX_BATCH: usize = 256;

const _: () = assert!(size_of::<types::live_flow>() == 80, "live.bpf.c");

pub(crate) fn run(load: &Load, stop: &AtomicBool) -> Result<Sent, Error> {
    let mut storage = MaybeUninit::uninit();
    let mut open = LiveSkelBuilder::default()
        .open(&mut storage)
        .map_err(Error::bpf("opening the generator program"))?;
    let templates: Vec<_> = load
        .destinations
        .iter()
        .map(|&to| Template::new(load, to))
        .collect();
    let flows = u32::try_from(templates.len()).map_err(|_| Error::Load("too many flows".into()))?;
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
        .map_err(Error::bpf("sizing the flow table"))?;
    let mut skel = open
        .load()
        .map_err(Error::bpf("loading the generator program"))?;
    for (index, template) in (0_u32..).zip(&templates) {
        skel.maps
            .flows
            .update(&index.to_ne_bytes(), &flow(template), MapFlags::ANY)
            .map_err(Error::bpf("writing the flow table"))?;
    }
    let mut sent = match load.rate {
        Some(rate) => send_paced(load, &skel, &templates[0], rate)?,
        None => send(load, &mut skel, &templates[0], stop)?,
    };
    sent.flows = (0..flows)
        .map(|index| next_sequence(&skel, index))
        .collect::<Result<_, _>>()?;
    Ok(sent)
}

/// One call for all, so that no call's set-up makes packets late.
fn send_paced(
    load: &Load,
    skel: &LiveSkel<'_>,
    template: &Template,
    rate: f64,
) -> Result<Sent, Error> {
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
    let mut sent = Sent {
        scheduled: packets,
        sent: packets,
        elapsed_ns: ended.saturating_sub(started),
        // What pushes packets back is the receiver only where it shares the generator's CPU.
        lateness_outside_send: lateness.clone(),
        lateness,
        thread_cpu_ns: sys::clock::thread_cpu_ns() - cpu_before,
        ..Sent::default()
    };
    sent.sending_ns = sent.elapsed_ns;
    sent.achieved_pps = per_second(sent.sent, sent.elapsed_ns);
    Ok(sent)
}

fn lateness(skel: &LiveSkel<'_>) -> Result<Histogram, Error> {
    let value = skel
        .maps
        .lateness
        .lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(Error::bpf("reading how late packets were"))?
        .unwrap_or_default();
    let counts: Vec<u64> = value
        .chunks_exact(8)
        .filter_map(|bytes| bytes.try_into().ok().map(u64::from_ne_bytes))
        .collect();
    // The program's histogram has exactly the buckets of ours.
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
) -> Result<Sent, Error> {
    let frame = blank(load, template);
    let start = sys::clock::monotonic_ns();
    let cpu_before = sys::clock::thread_cpu_ns();
    let (packets, time) = match load.amount {
        Amount::Packets(packets) => (packets, Duration::MAX),
        Amount::Time(time) => (u64::MAX, time),
    };
    let mut sent = Sent::default();
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
fn next_call(sent: &Sent, time: Duration) -> u64 {
    let elapsed = u128::from(sent.elapsed_ns);
    let left = time.as_nanos().saturating_sub(elapsed);
    let fit = left.saturating_mul(u128::from(sent.sent)) / elapsed.max(1);
    u64::try_from(fit)
        .unwrap_or(LONGEST_CALL)
        .clamp(CALL, LONGEST_CALL)
}

/// Runs the program on `repeat` frames and returns that number.
fn run_program(skel: &LiveSkel<'_>, frame: &[u8], repeat: u64, batch: usize) -> Result<u64, Error> {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        data_in: frame.as_ptr().cast(),
        data_size_in: u32::try_from(frame.len()).unwrap_or(0),
        repeat: i32::try_from(repeat).unwrap_or(i32::MAX),
        flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
        batch_size: u32::try_from(batch).unwrap_or(0),
        ..Default::default()
    };
    let program = skel.progs.generate.as_fd().as_raw_fd();
    // SAFETY: the frame and the options outlive the call, and their sizes are theirs.
    let result = unsafe { libbpf_sys::bpf_prog_test_run_opts(program, &raw mut options) };
    if result < 0 {
        let source = std::io::Error::from_raw_os_error(-result);
        return Err(Error::io("running the generator program")(source));
    }
    Ok(repeat)
}

/// A `struct live_flow`.
fn flow(template: &Template) -> [u8; 80] {
    let mut value = [0; 80];
    value[..template.headers.len()].copy_from_slice(&template.headers);
    // The program adds words as they lie in memory.
    value[64..66].copy_from_slice(&template.sum.to_be_bytes());
    value
}

fn next_sequence(skel: &LiveSkel<'_>, index: u32) -> Result<u64, Error> {
    let value = skel
        .maps
        .flows
        .lookup(&index.to_ne_bytes(), MapFlags::ANY)
        .map_err(Error::bpf("reading the flow table"))?;
    let next = value.and_then(|value| value.get(72..80)?.try_into().ok());
    Ok(next.map_or(0, u64::from_ne_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_grow_to_what_fits_the_time() {
        let sent = |sent, elapsed_ns| Sent {
            sent,
            elapsed_ns,
            ..Sent::default()
        };
        let second = Duration::from_secs(1);
        assert_eq!(next_call(&Sent::default(), second), CALL);
        assert_eq!(next_call(&sent(CALL, 100_000_000), second), LONGEST_CALL);
        assert_eq!(next_call(&sent(CALL, 333_333_333), second), 2 * CALL);
        assert_eq!(next_call(&sent(4 * CALL, 999_000_000), second), CALL);
        assert_eq!(next_call(&sent(CALL, 1), Duration::MAX), LONGEST_CALL);
    }
}
