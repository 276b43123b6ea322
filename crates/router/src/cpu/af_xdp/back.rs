//! Gives frames back to the stack, in a thread: a run of the program takes some ten milliseconds,
//! during which others wait and then go together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use datapath::Error;

use super::counters::Counters;
use super::steering::{GIVEN, GiveBack};

/// Frames that may wait.
const WAITING: usize = 1024;

/// A frame and the device that it came by.
type Frame = (u32, Vec<u8>);

#[derive(Debug)]
pub(super) struct Back {
    giver: Option<SyncSender<Frame>>,
    /// Frames that the kernel refused.
    lost: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// A thread's way to give frames back.
#[derive(Clone, Debug)]
pub(super) struct Giver(SyncSender<Frame>);

impl Giver {
    /// False when too many wait.
    pub(super) fn give(&self, ifindex: u32, frame: &[u8]) -> bool {
        self.0.try_send((ifindex, frame.to_vec())).is_ok()
    }
}

impl Back {
    /// In the network namespace of the calling thread.
    pub(super) fn start() -> Result<Self, Error> {
        let program = GiveBack::load()?;
        let (giver, frames) = sync_channel(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let for_thread = Arc::clone(&lost);
        let thread = thread::Builder::new()
            .name("router-back".into())
            .spawn(move || run(&program, &frames, &for_thread))
            .map_err(|error| Error::failed("starting the thread that gives frames back", error))?;
        Ok(Self {
            giver: Some(giver),
            lost,
            thread: Some(thread),
        })
    }

    pub(super) fn giver(&self) -> Option<Giver> {
        self.giver.clone().map(Giver)
    }

    /// Gives back what waits. Every other giver must be gone.
    pub(super) fn stop(&mut self) {
        self.giver = None;
        if let Some(thread) = self.thread.take() {
            // A panic of its has been printed.
            let _ended = thread.join();
        }
    }

    pub(super) fn count(&self, counters: &mut Counters) {
        counters.drops_give_back += self.lost.load(Ordering::Relaxed);
    }
}

fn run(program: &GiveBack, frames: &Receiver<Frame>, lost: &AtomicU64) {
    let mut next = frames.recv().ok();
    while let Some((ifindex, frame)) = next.take() {
        let mut together = vec![frame];
        while together.len() < GIVEN {
            match frames.try_recv() {
                Ok((same, frame)) if same == ifindex => together.push(frame),
                Ok(other) => {
                    next = Some(other);
                    break;
                }
                Err(_) => break,
            }
        }
        if let Err(error) = program.give_back(ifindex, &together) {
            let count = together.len() as u64;
            lost.fetch_add(count, Ordering::Relaxed);
            tracing::warn!(count, %error, "frames are lost");
        }
        if next.is_none() {
            next = frames.recv().ok();
        }
    }
}
