//! A part of a batch in flight: its kernels, and the tables that they read.

use std::sync::Arc;

use gpu::{Buffer, Clock, Device, Lane, Launch};

use super::batch_times::{self, BatchTimes};
use super::lists::{HitBuffers, Lists};
use super::persistent::PersistentLane;
use super::recordings::{self, RecordingCache};
use super::steps::{Form, Step, Work};
use super::{Error, LaunchMode, Options, Width, header, width};
use crate::engine::{Decision, Function};

/// Minimum capacity of a lane, in keys.
const MIN_KEYS: usize = 32;

/// The tables that kernels read.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    pub(super) routes: Arc<Buffer>,
    pub(super) lists: Arc<Lists>,
    pub(super) counts: Arc<HitBuffers>,
    /// Bits of an encoded decision.
    pub(super) bits: u32,
}

/// One stream to the device and back.
#[derive(Debug)]
pub(super) struct BatchStream {
    lane: Lane,
    function: Function,
    options: Options,
    /// Capacity in bytes of input and output.
    capacity: (usize, usize),
    /// Twice the capacity for decisions, if they are combined or encoded before they go back.
    scratch: Option<Buffer>,
    /// Recordings for this lane.
    recordings: RecordingCache,
    /// Used instead of the lane if a persistent kernel runs.
    persistent: Option<PersistentLane>,
    /// The tables of the batch in flight.
    in_flight: Option<Tables>,
    keys: usize,
    /// The clock that times batches, if any, and the bytes that the last batch moved.
    clock: Option<Clock>,
    moved: Option<usize>,
}

/// The layout of a batch's input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    /// Number of keys of IPv4 and of IPv6.
    pub(super) keys: [usize; 2],
    /// Offsets of the keys of both families or, for whole frames, of the positions of their IP headers.
    pub(super) at: [usize; 2],
    /// Size of the input.
    pub(super) bytes: usize,
    pub(super) form: Form,
}

impl BatchStream {
    pub(super) fn new(
        device: &Device,
        function: Function,
        options: &Options,
    ) -> Result<Self, Error> {
        let capacity = (
            MIN_KEYS * size_of::<acl::Key6>(),
            MIN_KEYS * size_of::<u32>(),
        );
        let stays = options.launch_mode == LaunchMode::Persistent;
        let persistent = stays.then(|| PersistentLane::new(device, function, options.result));
        Ok(Self {
            persistent: persistent.transpose()?,
            lane: device.lane(options.memory, capacity.0, capacity.1)?,
            scratch: scratch(device, function, options, capacity.1)?,
            function,
            options: options.clone(),
            capacity,
            recordings: RecordingCache::default(),
            in_flight: None,
            keys: 0,
            clock: None,
            moved: None,
        })
    }

    /// Times batches from now on. Each kernel must be launched by a call of its own.
    pub(super) fn time(&mut self, device: &Device, clock: Clock) -> Result<(), Error> {
        self.await_batch()?;
        self.clock = Some(clock);
        self.lane = self.lane(device)?;
        Ok(())
    }

    /// The times of the last batch, which must have been collected; none if this stream had no part in it.
    pub(super) fn batch_times(&self) -> Result<Option<BatchTimes>, Error> {
        let times = |moved| {
            let times = self.lane.times()?;
            Ok(BatchTimes { times, moved })
        };
        self.moved.map(times).transpose()
    }

    /// Notes that this stream has no part in a batch.
    pub(super) fn pass(&mut self) {
        self.moved = None;
    }

    /// Sends a batch, whose input `write` writes.
    pub(super) fn send(
        &mut self,
        device: &Device,
        tables: Tables,
        input: Input,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), Error> {
        self.await_batch()?;
        match (&mut self.persistent, self.options.launch_mode) {
            (Some(persistent), _) => persistent.send(device, &tables, input, write)?,
            (None, LaunchMode::Graph) => self.replay(device, &tables, input, write)?,
            (None, _) => self.launch(device, &tables, input, write)?,
        }
        self.keys = input.keys[0] + input.keys[1];
        self.in_flight = Some(tables);
        Ok(())
    }

    fn launch(
        &mut self,
        device: &Device,
        tables: &Tables,
        input: Input,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), Error> {
        let keys = input.keys[0] + input.keys[1];
        self.reserve(device, input.bytes, keys)?;
        write(&mut self.lane.input()?[..input.bytes]);
        let work = Work {
            function: self.function,
            schedule: self.options.schedule,
            bits: tables.bits,
            input,
            tables,
            scratch: self.scratch.as_ref(),
            apart: self.capacity.1 / size_of::<u32>(),
        };
        let steps = work.steps();
        let launches: Vec<Launch<'_>> = steps.iter().map(Step::launch).collect();
        let back = width::bytes(keys, tables.bits);
        // SAFETY: the arguments are the kernels' parameters (gpu/kernels.h, gpu/results.h); keys lie within the
        // input and decisions within the output, or within the scratch that is as large twice, as many as
        // kernels are told, IP headers within their frames, and indices in tables and arenas come from
        // `HostTables` and `Arena`, whose builders name nothing beyond their arrays. All of the buffers are held
        // until the batch was waited for, and written by nobody who does not hold them alone.
        unsafe { self.lane.run(&launches, input.bytes, back)? };
        let moved = batch_times::bytes_moved(self.function, self.options.memory, &input, back);
        self.moved = Some(moved);
        Ok(())
    }

    fn replay(
        &mut self,
        device: &Device,
        tables: &Tables,
        mut input: Input,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), Error> {
        let content = header::LENGTH..header::LENGTH + input.bytes;
        input.bytes = content.end;
        let items = recordings::items(input.keys[0] + input.keys[1]);
        self.reserve(device, recordings::bytes(input.bytes), items)?;
        let to = self.lane.input()?;
        header::write(&input, to);
        write(&mut to[content]);
        let work = Work {
            function: self.function,
            schedule: self.options.schedule,
            bits: tables.bits,
            input,
            tables,
            scratch: self.scratch.as_ref(),
            apart: self.capacity.1 / size_of::<u32>(),
        };
        self.recordings.send(&mut self.lane, &work)
    }

    /// Waits for the batch in flight, and returns its decisions, IPv4's first; none without a batch.
    pub(super) fn collect(&mut self) -> Result<impl Iterator<Item = Decision>, Error> {
        let keys = std::mem::take(&mut self.keys);
        let bits = self
            .in_flight
            .take()
            .map_or(u32::BITS, |tables| tables.bits);
        let bytes = match &mut self.persistent {
            Some(persistent) => persistent.wait()?,
            None => self.lane.wait()?,
        };
        Ok((0..keys).map(width::decisions(bytes, bits)))
    }

    /// Releases tables that are kept for the next batch. No batch may be in flight.
    pub(super) fn release_tables(&mut self) -> Result<(), Error> {
        self.persistent
            .as_mut()
            .map_or(Ok(()), PersistentLane::release_tables)
    }

    /// Waits for the batch in flight.
    fn await_batch(&mut self) -> Result<(), Error> {
        self.collect().map(drop)
    }

    /// A lane with the current capacity.
    fn lane(&self, device: &Device) -> Result<Lane, Error> {
        let (memory, (there, back)) = (self.options.memory, self.capacity);
        let lane = match &self.clock {
            Some(clock) => device.timed_lane(clock, memory, there, back),
            None => device.lane(memory, there, back),
        };
        Ok(lane?)
    }

    /// Grows the lane for an input in bytes and a number of decisions.
    fn reserve(&mut self, device: &Device, there: usize, decisions: usize) -> Result<(), Error> {
        let back = decisions * size_of::<u32>();
        if there <= self.capacity.0 && back <= self.capacity.1 {
            return Ok(());
        }
        self.capacity = (
            there.next_power_of_two().max(self.capacity.0),
            back.next_power_of_two().max(self.capacity.1),
        );
        self.recordings = RecordingCache::default();
        self.lane = self.lane(device)?;
        self.scratch = scratch(device, self.function, &self.options, self.capacity.1)?;
        Ok(())
    }
}

/// Memory for decisions that are combined or encoded before they go back.
fn scratch(
    device: &Device,
    function: Function,
    options: &Options,
    bytes: usize,
) -> Result<Option<Buffer>, Error> {
    let used = options.schedule.joins(function) || options.result != Width::U32;
    Ok(used.then(|| device.buffer(2 * bytes)).transpose()?)
}
