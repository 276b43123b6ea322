//! One thread's batches: keys are written where the device reads them, decisions read where it writes
//! them.

use std::ops::Range;
use std::sync::Arc;

use acl::{Address, Key};

use super::launch::{Tables, Way};
use super::lists::{Counts, Lists};
use super::{Error, Options, Shared};
use crate::engine::{Answers, Decision, Function, Headers, Processor};

/// Packets after which counts of rules are told: before numbers of 32 bits come to their end.
const UNTOLD: usize = 1 << 20;

/// Decides by a device, for one thread.
#[derive(Debug)]
pub struct OnDevice {
    function: Function,
    shared: Arc<Shared>,
    lists: Arc<Lists>,
    counts: Counts,
    /// Packets that rules were counted for since it was told.
    untold: usize,
    ways: Vec<Way>,
}

impl OnDevice {
    pub(super) fn new(
        function: Function,
        shared: &Arc<Shared>,
        options: &Options,
    ) -> Result<Self, Error> {
        let lists = shared.lists();
        let way = |_| Way::new(&shared.device, function, options.memory);
        Ok(Self {
            function,
            counts: lists.count(&shared.device)?,
            lists,
            untold: 0,
            ways: (0..options.streams.get())
                .map(way)
                .collect::<Result<_, _>>()?,
            shared: Arc::clone(shared),
        })
    }

    /// The tables of now, and counts for their rules.
    fn tables(&mut self) -> Result<Tables, Error> {
        let lists = self.shared.lists();
        if !Arc::ptr_eq(&lists, &self.lists) {
            self.tell()?;
            self.counts = lists.count(&self.shared.device)?;
            self.lists = lists;
        }
        Ok(Tables {
            routes: self.shared.routes()?,
            lists: Arc::clone(&self.lists),
            counts: Arc::clone(&self.counts.on_device),
        })
    }

    /// Tells what was counted. Nothing is on the way.
    fn tell(&mut self) -> Result<(), Error> {
        self.untold = 0;
        self.lists.tell(&mut self.counts, &self.shared.device)
    }

    fn send(&mut self, headers: &Headers) -> Result<(), Error> {
        let tables = self.tables()?;
        let (v4, v6) = headers.keyed();
        let parts = self.ways.len();
        for (number, way) in self.ways.iter_mut().enumerate() {
            let (v4, v6) = (part(number, parts, v4), part(number, parts, v6));
            let keys = [v4.len(), v6.len()];
            if keys == [0, 0] {
                continue;
            }
            way.send(&self.shared.device, tables.clone(), keys, |to| {
                if self.function.filters() {
                    let to = write(&headers.keys4[v4], to);
                    write(&headers.keys6[v6], to);
                } else {
                    let (to4, to6) = to.split_at_mut(4 * v4.len());
                    to4.copy_from_slice(headers.destinations4[v4].as_flattened());
                    to6.copy_from_slice(headers.destinations6[v6].as_flattened());
                }
            })?;
        }
        Ok(())
    }

    fn collect(&mut self, headers: &Headers, answers: &mut Answers) -> Result<(), Error> {
        answers.v4.clear();
        answers.v6.clear();
        let (v4, v6) = headers.keyed();
        let parts = self.ways.len();
        for (number, way) in self.ways.iter_mut().enumerate() {
            let (v4, v6) = (part(number, parts, v4), part(number, parts, v6));
            if v4.len() + v6.len() > 0 {
                let (decisions, _) = way.collect()?.as_chunks();
                let decision = |bytes: &[u8; 4]| Decision::from_bits(u32::from_le_bytes(*bytes));
                let (of4, of6) = decisions.split_at(v4.len());
                answers.v4.extend(of4.iter().map(decision));
                answers.v6.extend(of6.iter().map(decision));
            }
        }
        Ok(())
    }
}

impl Processor for OnDevice {
    type Error = Error;

    fn function(&self) -> Function {
        self.function
    }

    fn process_batch(&mut self, headers: &Headers, answers: &mut Answers) -> Result<(), Error> {
        self.send(headers)?;
        self.collect(headers, answers)?;
        self.untold += headers.len();
        if self.untold >= UNTOLD {
            self.tell()?;
        }
        Ok(())
    }
}

impl Drop for OnDevice {
    fn drop(&mut self) {
        let settled = self.ways.iter_mut().all(|way| way.collect().is_ok());
        if settled && self.function.filters() {
            // A device that is gone has told what it could.
            let _ = self.tell();
        }
    }
}

/// One of so many parts of a batch.
fn part(number: usize, parts: usize, keys: usize) -> Range<usize> {
    keys * number / parts..keys * (number + 1) / parts
}

/// Writes keys as they lie in packets, and as `Key` has them; what is left to write to.
pub(super) fn write<'a, A: Address>(keys: &[Key<A>], to: &'a mut [u8]) -> &'a mut [u8]
where
    A::Octets: AsRef<[u8]>,
{
    let (these, rest) = to.split_at_mut(size_of_val(keys));
    let octets = A::BITS as usize / 8;
    for (key, to) in keys.iter().zip(these.chunks_exact_mut(size_of::<Key<A>>())) {
        to[0] = key.protocol;
        to[4..4 + octets].copy_from_slice(key.source.as_ref());
        to[4 + octets..4 + 2 * octets].copy_from_slice(key.destination.as_ref());
        to[4 + 2 * octets..6 + 2 * octets].copy_from_slice(&key.source_port);
        to[6 + 2 * octets..8 + 2 * octets].copy_from_slice(&key.destination_port);
    }
    rest
}
