//! The live-frame back end: a BPF program writes each frame and redirects it, run by the kernel in
//! long calls (setting one up costs as much as thousands of packets).

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, libbpf_sys};

use crate::frame::{self, Template};
use crate::schedule::{Monotonic, Pacer};
use crate::skel::live::{LiveSkel, LiveSkelBuilder, types};
use crate::{Amount, Error, Load, Sent};

/// Frames in the first call, and at most in later ones: each call sleeps some 25 ms for its set-up,
/// and only between calls it is found out that the time is over.
const CALL: u64 = 262_144;
const LONGEST_CALL: u64 = 8 * CALL;
const MAX_BATCH: usize = 256;

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
    }
    open.maps
        .flows
        .set_max_entries(flows)
        .map_err(Error::bpf("sizing the flow table"))?;
    let skel = open
        .load()
        .map_err(Error::bpf("loading the generator program"))?;
    for (index, template) in (0_u32..).zip(&templates) {
        skel.maps
            .flows
            .update(&index.to_ne_bytes(), &flow(template), MapFlags::ANY)
            .map_err(Error::bpf("writing the flow table"))?;
    }
    let mut sent = send(load, &skel, &templates[0], stop)?;
    sent.flows = (0..flows)
        .map(|index| next_sequence(&skel, index))
        .collect::<Result<_, _>>()?;
    Ok(sent)
}

fn send(
    load: &Load,
    skel: &LiveSkel<'_>,
    template: &Template,
    stop: &AtomicBool,
) -> Result<Sent, Error> {
    let mut frame = vec![0; template.headers.len()];
    frame.extend(frame::filler(load.payload_len));
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
        let done = run_program(skel, &frame, call, load.burst.min(MAX_BATCH))?;
        sent.sent += done;
        sent.elapsed_ns = sys::clock::monotonic_ns() - start;
        pacer.rest();
    }
    sent.scheduled = sent.sent;
    sent.thread_cpu_ns = sys::clock::thread_cpu_ns() - cpu_before;
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    {
        sent.achieved_pps = sent.sent as f64 * 1e9 / sent.elapsed_ns.max(1) as f64;
    }
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
