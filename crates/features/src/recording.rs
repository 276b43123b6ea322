//! Records the frames whose packets make rows into a capture file, unchanged.
//!
//! Each worker collects complete records, and a separate thread writes them. A live run does not wait for the disk:
//! frames without space in the queue are counted as lost.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use packet::pcap::{self, Frame};

use crate::sink::{Error, FrameFiles, Mode, Series};

/// Bytes of records that a worker collects before it sends them to the thread.
const PIECE: usize = 256 << 10;
/// The maximum number of pieces that wait for the disk: 16 MiB.
const DEPTH: usize = 64;

/// A capture that is being written. Dropping it unfinished leaves no empty file behind.
#[derive(Debug)]
pub struct Recording {
    recorder: Recorder,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Records the frames of one worker. Each further worker uses a clone.
#[derive(Debug)]
pub struct Recorder {
    pieces: SyncSender<Message>,
    mode: Mode,
    shared: Arc<Shared>,
    collected: Piece,
}

/// Counts recorded and lost frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingCounters {
    /// Packets written to a file.
    pub packets: u64,
    /// Packets lost for lack of space, in the queue or on the disk.
    pub lost: u64,
}

/// A message to the thread.
#[derive(Debug)]
enum Message {
    Records(Piece),
    /// The end of the recording.
    End,
}

/// Complete records of one link type.
#[derive(Debug, Default)]
struct Piece {
    link_type: u32,
    records: Vec<u8>,
    packets: u64,
}

#[derive(Debug, Default)]
struct Shared {
    packets: AtomicU64,
    lost: AtomicU64,
    finishing: AtomicBool,
    failed: AtomicBool,
    /// The first error.
    error: Mutex<Option<Error>>,
}

impl Recording {
    /// Opens the first file and starts the thread. A live run continues when the disk is full, and writes again when
    /// space is available.
    pub fn start(path: &Path, series: Series, mode: Mode) -> Result<Self, Error> {
        let files = FrameFiles::create(path, series)?;
        let (pieces, work) = sync_channel(DEPTH);
        let shared = Arc::<Shared>::default();
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("features-pcap".to_owned())
            .spawn(move || theirs.write(files, &work))
            .map_err(Error::thread)?;
        let recorder = Recorder {
            pieces,
            mode,
            shared: Arc::clone(&shared),
            collected: Piece::default(),
        };
        Ok(Self {
            recorder,
            shared,
            thread: Some(thread),
        })
    }

    /// A recorder for one of the run's workers.
    pub fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// The counters so far.
    pub fn recorded(&self) -> RecordingCounters {
        RecordingCounters {
            packets: self.shared.packets.load(Ordering::Relaxed),
            lost: self.shared.lost.load(Ordering::Relaxed),
        }
    }

    /// Completes the capture with the frames that its recorders have sent. Returns the counters and the first error.
    pub fn finish(mut self) -> (RecordingCounters, Result<(), Error>) {
        self.shared.finishing.store(true, Ordering::Relaxed);
        self.end();
        let error = self.shared.error().take();
        (self.recorded(), error.map_or(Ok(()), Err))
    }

    fn end(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        // Sending fails only if the thread has panicked, which joining it reports.
        let _told = self.recorder.pieces.send(Message::End);
        if thread.join().is_err() {
            self.shared.fail(Error::Stuck);
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.end();
    }
}

impl Recorder {
    /// Records a frame.
    #[inline]
    pub(crate) fn record(&mut self, frame: &Frame<'_>) {
        if self.collected.link_type != frame.link_type {
            self.flush();
            self.collected.link_type = frame.link_type;
        }
        let captured = u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX);
        let length = frame.original_length.max(captured);
        let (header, kept) = pcap::record(frame.timestamp_ns, length, frame.bytes);
        let records = &mut self.collected.records;
        records.extend_from_slice(&header);
        records.extend_from_slice(kept);
        self.collected.packets += 1;
        if records.len() >= PIECE {
            self.flush();
        }
    }

    /// Sends the collected records to the thread.
    pub(crate) fn flush(&mut self) {
        let link_type = self.collected.link_type;
        let piece = std::mem::take(&mut self.collected);
        self.collected.link_type = link_type;
        let packets = piece.packets;
        let taken = packets == 0
            || match self.mode {
                Mode::Whole => self.pieces.send(Message::Records(piece)).is_ok(),
                Mode::Live => self.pieces.try_send(Message::Records(piece)).is_ok(),
            };
        if !taken {
            self.shared.lost.fetch_add(packets, Ordering::Relaxed);
        }
    }

    /// Whether the run must end, because it may not lose frames and writing has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.mode == Mode::Whole && self.shared.failed.load(Ordering::Relaxed)
    }
}

impl Clone for Recorder {
    fn clone(&self) -> Self {
        Self {
            pieces: self.pieces.clone(),
            mode: self.mode,
            shared: Arc::clone(&self.shared),
            collected: Piece::default(),
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.flush();
    }
}

impl Shared {
    /// The body of the thread.
    fn write(&self, mut files: FrameFiles, messages: &Receiver<Message>) {
        while let Ok(Message::Records(piece)) = messages.recv() {
            let appended = files.append(piece.link_type, piece.records);
            let counter = if appended.is_ok() {
                &self.packets
            } else {
                &self.lost
            };
            counter.fetch_add(piece.packets, Ordering::Relaxed);
            appended.unwrap_or_else(|error| self.fail(error));
        }
        if self.finishing.load(Ordering::Relaxed) {
            files.finish().unwrap_or_else(|error| self.fail(error));
        } else {
            files.abandon();
        }
    }

    fn error(&self) -> MutexGuard<'_, Option<Error>> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, error: Error) {
        let mut first = self.error();
        // A closed pipe is not a failure: the run continues to write its rows.
        let is_failure = !error.is_closed_pipe();
        self.failed.fetch_or(is_failure, Ordering::Relaxed);
        if first.is_none() {
            if is_failure {
                tracing::warn!(
                    "{error}: packets are missing from the capture until it can be written"
                );
            }
            *first = Some(error);
        }
    }
}
