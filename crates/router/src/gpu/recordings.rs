//! Recorded launches of batches, by the tables and sizes that they were recorded for.

use std::sync::Arc;

use gpu::{Lane, Launch, Recording};

use super::Error;
use super::header::rounded;
use super::steps::{Step, Work};
use super::width;

/// Granularity of a recording's work items and bytes.
const ITEMS: usize = 128;
const BYTES: usize = 256;

/// The recordings of one lane, whose capacity allows for rounded sizes.
#[derive(Debug, Default)]
pub(super) struct RecordingCache {
    lists: u64,
    all: Vec<(RecordingKey, Recording)>,
}

/// The batches that a recording can launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RecordingKey {
    /// The address of this copy of the routes. Both copies keep their addresses.
    routes: usize,
    bits: u32,
    items: usize,
    there: usize,
}

impl RecordingCache {
    /// Sends a batch, whose input and header have been written.
    pub(super) fn send(&mut self, lane: &mut Lane, work: &Work<'_>) -> Result<(), Error> {
        let lists = work.tables.lists.number();
        if lists != self.lists {
            self.all.clear();
            self.lists = lists;
        }
        let this = RecordingKey::of(work);
        let known = self.all.iter().position(|(known, _)| *known == this);
        let at = match known {
            Some(at) => at,
            None => {
                self.all.push((this, record(lane, work, this)?));
                self.all.len() - 1
            }
        };
        // SAFETY: recorded in this lane, for these tables, whose lists are the same and whose routes lie where
        // they lay; the tables are held until the batch was waited for. The rest as for recording.
        unsafe { lane.replay(&self.all[at].1)? };
        Ok(())
    }
}

impl RecordingKey {
    fn of(work: &Work<'_>) -> Self {
        Self {
            routes: Arc::as_ptr(&work.tables.routes).addr(),
            bits: work.bits,
            items: items(work.input.keys[0] + work.input.keys[1]),
            there: bytes(work.input.bytes),
        }
    }
}

/// Work items of the recording for a number of keys.
pub(super) fn items(keys: usize) -> usize {
    rounded(keys, ITEMS)
}

/// Bytes of the recording for an input of this size.
pub(super) fn bytes(input: usize) -> usize {
    rounded(input, BYTES)
}

fn record(lane: &mut Lane, work: &Work<'_>, this: RecordingKey) -> Result<Recording, Error> {
    let steps = work.recordable_steps(this.items);
    let launches: Vec<Launch<'_>> = steps.iter().map(Step::launch).collect();
    let back = width::bytes(this.items, work.bits);
    // SAFETY: as `BatchStream::send`; kernels find at the beginning of the input how many keys there are, no more than
    // work items, for which lane and scratch have room.
    Ok(unsafe { lane.record(&launches, this.there, back)? })
}
