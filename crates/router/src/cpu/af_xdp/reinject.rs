//! Reinjects punted frames into the network stack, in a thread of its own. A run of the program takes about
//! ten milliseconds, during which other frames wait for the next run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use datapath::Error;

use super::counters::Counters;
use super::steering::{MAX_REINJECT, ReinjectProgram};

/// Capacity of the queue, in frames.
const QUEUE_LEN: usize = 1024;

/// A frame and its ingress device.
type Frame = (u32, Vec<u8>);

#[derive(Debug)]
pub(super) struct Reinjector {
    sender: Option<SyncSender<Frame>>,
    /// Frames that the kernel refused.
    dropped: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// The sending end of the queue, for one forwarding thread.
#[derive(Clone, Debug)]
pub(super) struct PuntSender(SyncSender<Frame>);

impl PuntSender {
    /// Returns false if the queue is full.
    pub(super) fn send(&self, ifindex: u32, frame: &[u8]) -> bool {
        self.0.try_send((ifindex, frame.to_vec())).is_ok()
    }
}

impl Reinjector {
    /// Starts the thread in the network namespace of the caller.
    pub(super) fn start() -> Result<Self, Error> {
        let program = ReinjectProgram::load()?;
        let (sender, frames) = sync_channel(QUEUE_LEN);
        let dropped = Arc::new(AtomicU64::new(0));
        let for_thread = Arc::clone(&dropped);
        let thread = thread::Builder::new()
            .name("router-back".into())
            .spawn(move || run(&program, &frames, &for_thread))
            .map_err(|error| Error::failed("starting the thread that gives frames back", error))?;
        Ok(Self {
            sender: Some(sender),
            dropped,
            thread: Some(thread),
        })
    }

    pub(super) fn sender(&self) -> Option<PuntSender> {
        self.sender.clone().map(PuntSender)
    }

    /// Reinjects the remaining frames and ends the thread. All other senders must have been dropped.
    pub(super) fn stop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed.
            let _ended = thread.join();
        }
    }

    pub(super) fn count(&self, counters: &mut Counters) {
        counters.drops_reinject += self.dropped.load(Ordering::Relaxed);
    }
}

fn run(program: &ReinjectProgram, frames: &Receiver<Frame>, dropped: &AtomicU64) {
    let mut next = frames.recv().ok();
    while let Some((ifindex, frame)) = next.take() {
        let mut batch = vec![frame];
        while batch.len() < MAX_REINJECT {
            match frames.try_recv() {
                Ok((same, frame)) if same == ifindex => batch.push(frame),
                Ok(other) => {
                    next = Some(other);
                    break;
                }
                Err(_) => break,
            }
        }
        if let Err(error) = program.reinject(ifindex, &batch) {
            let count = batch.len() as u64;
            dropped.fetch_add(count, Ordering::Relaxed);
            tracing::warn!(count, %error, "frames are lost");
        }
        if next.is_none() {
            next = frames.recv().ok();
        }
    }
}
