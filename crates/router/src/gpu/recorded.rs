//! Batches' ways that were recorded, by what they were recorded for.

use std::sync::Arc;

use gpu::{Lane, Launch, Recording};

use super::Error;
use super::header::rounded;
use super::steps::{Step, Work};
use super::width;

/// Work items and bytes that a recording is for are multiples of at least this.
const ITEMS: usize = 128;
const BYTES: usize = 256;

/// Of one lane, which has room for sizes that are rounded up.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    lists: u64,
    all: Vec<(For, Recording)>,
}

/// What a recording is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct For {
    /// The two copies of the routes stay where they are: where this one is.
    routes: usize,
    bits: u32,
    items: usize,
    there: usize,
}

impl Recorded {
    /// Sends a batch that is written, what it is before it.
    pub(super) fn send(&mut self, lane: &mut Lane, work: &Work<'_>) -> Result<(), Error> {
        let lists = work.tables.lists.number();
        if lists != self.lists {
            self.all.clear();
            self.lists = lists;
        }
        let this = For::of(work);
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

impl For {
    fn of(work: &Work<'_>) -> Self {
        Self {
            routes: Arc::as_ptr(&work.tables.routes).addr(),
            bits: work.bits,
            items: items(work.input.keys[0] + work.input.keys[1]),
            there: bytes(work.input.bytes),
        }
    }
}

/// As many work items as a recording for so many keys has.
pub(super) fn items(keys: usize) -> usize {
    rounded(keys, ITEMS)
}

/// As many bytes as it sends of so many.
pub(super) fn bytes(input: usize) -> usize {
    rounded(input, BYTES)
}

fn record(lane: &mut Lane, work: &Work<'_>, this: For) -> Result<Recording, Error> {
    let steps = work.lasting_steps(this.items);
    let launches: Vec<Launch<'_>> = steps.iter().map(Step::launch).collect();
    let back = width::bytes(this.items, work.bits);
    // SAFETY: as `Way::send`; kernels find at the beginning of the input how many keys there are, no more than
    // work items, for which lane and scratch have room.
    Ok(unsafe { lane.record(&launches, this.there, back)? })
}
