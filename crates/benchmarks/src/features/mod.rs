//! What a packet costs in features: for each schema, and for each program of the kernel.

mod arms;
mod frames;

use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use features::pcap::Progress;
use process::shutdown::Shutdown;

use crate::Error;

pub use arms::{Arm, ArmKind, Round};
pub use frames::Frames;

/// An arm that is about to be measured.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    pub arm: &'static str,
    /// The first round is 1.
    pub round: usize,
    pub rounds: usize,
    /// Whether it is the first arm of its round.
    pub first: bool,
    pub elapsed: Duration,
}

/// Measures each arm once in every round, until the rounds are over or shutdown is requested. Arms keep what
/// was measured before an error.
///
/// # Errors
/// Frames that an arm cannot read; nothing was measured, because this machine lacks what all arms need or
/// shutdown was requested.
pub fn run(
    arms: &mut [Arm],
    frames: &Frames,
    rounds: NonZeroUsize,
    shutdown: &Shutdown,
    before: &(dyn Fn(Pass) + Sync),
) -> Result<(), Error> {
    let progress = Progress::default();
    let measured = thread::scope(|scope| {
        let (arms, progress) = (&mut *arms, &progress);
        let measuring = scope.spawn(move || measure(arms, frames, rounds.get(), progress, before));
        while !measuring.is_finished() {
            if shutdown.wait(Duration::from_millis(100)) {
                progress.stop.store(true, Ordering::Relaxed);
                break;
            }
        }
        measuring.join()
    });
    measured.map_err(|_| Error::failed("measuring panicked"))??;
    if !arms.iter().all(Arm::is_unmeasured) {
        return Ok(());
    }
    if progress.stop.load(Ordering::Relaxed) {
        return Err(Error::failed("stopped before anything was measured"));
    }
    Err(Error::Missing(
        arms.iter().filter_map(Arm::missing).collect(),
    ))
}

fn measure(
    arms: &mut [Arm],
    frames: &Frames,
    rounds: usize,
    progress: &Progress,
    before: &(dyn Fn(Pass) + Sync),
) -> Result<(), Error> {
    let started = Instant::now();
    for round in 0..rounds {
        for at in 0..arms.len() {
            // Each round begins with another arm, so that no arm always follows the same one.
            let count = arms.len();
            let arm = &mut arms[(at + round) % count];
            before(Pass {
                arm: arm.name(),
                round: round + 1,
                rounds,
                first: at == 0,
                elapsed: started.elapsed(),
            });
            arm.measure(frames, progress)?;
            if progress.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
    }
    Ok(())
}
