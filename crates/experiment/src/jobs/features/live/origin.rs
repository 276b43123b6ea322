//! The results of the origin's method for the same traffic, beside the true ones. The origin is the work that
//! this experiment reproduces. It compared a loop over a packet socket with a loader of an XDP program:
//!
//! - The socket on the loopback device sees each packet twice, as it is sent and as it comes in; XDP
//!   sees it once. The difference was taken for capacity.
//! - CPU time was that of the measuring process. For the XDP program this only starts a loader and
//!   waits; neither the loader nor the kernel's work is in it.
//! - "Success" was the share of UDP among all packets seen. The generator's ports have no listener, so
//!   each datagram causes an ICMP error: the share is half, whatever sees it.
//! - Latency was the time from the kernel's stamp to the end of the loop for the socket, and the
//!   program's own run time for XDP.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use loadgen::{Amount, SendReport};
use probes::account::Usage;
use sys::capture::{Capture, Socket};

use super::stage::Stage;
use crate::jobs::features::load::TrialSpec;
use crate::outcome::Outcome;

/// The origin's method is observed for this long at most.
const WINDOW: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const UDP: u8 = 17;

/// The packets that a method saw.
#[derive(Clone, Copy, Debug, Default)]
struct Observation {
    packets: u64,
    udp: u64,
    cpu_ns: u64,
    /// From the kernel's stamp, summed up.
    waited_ns: u64,
}

/// Sends the load once more, and notes what the origin's method says of it.
pub(super) fn note(
    stage: &Stage,
    spec: &TrialSpec<'_>,
    usage: &Usage,
    outcome: &mut Outcome,
) -> Result<()> {
    let over = AtomicBool::new(false);
    let before = stage.came()?;
    let (saw, sent) = thread::scope(|scope| -> Result<(Observation, SendReport)> {
        let method = scope.spawn(|| {
            if spec.arm == "recv" {
                stage.inside(|| socket_loop(&over))?
            } else {
                parent(&over)
            }
        });
        let time = spec.load.duration.0.min(WINDOW);
        let sent = stage.generate(spec.load, Amount::Time(time));
        thread::sleep(POLL_INTERVAL);
        over.store(true, Ordering::Relaxed);
        let saw = method
            .join()
            .map_err(|_| anyhow::anyhow!("the origin's loop panicked"))??;
        Ok((saw, sent?))
    })?;
    let seconds = sent.elapsed_ns as f64 / 1e9;
    let mut value = |name: &str, value: f64| outcome.values.insert(name.to_owned(), value);
    value("origin_cpu_pct", saw.cpu_ns as f64 / seconds / 1e7);
    if saw.packets > 0 {
        value("origin_pps", saw.udp as f64 / seconds);
        value(
            "origin_success_pct",
            100.0 * saw.udp as f64 / saw.packets as f64,
        );
        value(
            "origin_latency_us",
            saw.waited_ns as f64 / saw.packets as f64 / 1e3,
        );
        return Ok(());
    }
    // XDP sees what comes in, once; that it has seen it all is in the trial's account.
    let came = stage.came()? - before;
    value("origin_pps", sent.sent as f64 / seconds);
    value(
        "origin_success_pct",
        100.0 * sent.sent as f64 / came.max(1) as f64,
    );
    let mut programs = usage.programs.iter();
    let ran = programs.find(|program| program.name == "count_flows" && program.runs > 0);
    if let Some(program) = ran {
        let each = program.run_ns as f64 / program.runs as f64;
        value("origin_latency_us", each / 1e3);
    }
    Ok(())
}

/// The origin's baseline: every frame of the device, in and out, one call each.
fn socket_loop(over: &AtomicBool) -> Result<Observation> {
    let socket = Socket::open()?;
    socket.prepare_receive(POLL_INTERVAL)?;
    socket.bind(&Capture {
        ifindex: 1,
        outgoing: true,
        promiscuous: false,
        fanout: None,
    })?;
    let mut room = vec![0; 2048];
    let mut saw = Observation::default();
    let before = sys::clock::thread_cpu_ns();
    while !over.load(Ordering::Relaxed) {
        match socket.receive(&mut room) {
            Ok((seen, frame)) => {
                saw.packets += 1;
                // Ethernet, and the protocol of IPv4.
                saw.udp += u64::from(frame.get(23) == Some(&UDP));
                let waited = now_ns().saturating_sub(seen.time_ns);
                saw.waited_ns += u64::try_from(waited).unwrap_or(0);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    saw.cpu_ns = sys::clock::thread_cpu_ns() - before;
    Ok(saw)
}

/// The origin's measuring process beside an XDP program: it waits.
fn parent(over: &AtomicBool) -> Result<Observation> {
    let before = sys::clock::thread_cpu_ns();
    while !over.load(Ordering::Relaxed) {
        thread::sleep(POLL_INTERVAL);
    }
    Ok(Observation {
        cpu_ns: sys::clock::thread_cpu_ns() - before,
        ..Observation::default()
    })
}

fn now_ns() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_nanos()).unwrap_or(i64::MAX))
}
