//! A part of a batch on its way: which kernels work on it, and what they read, held until they have.

use std::sync::Arc;

use gpu::{Buffer, Clock, Device, Lane, Launch};

use super::lists::{Lists, OnDevice};
use super::recorded::{self, Recorded};
use super::resident::Resident;
use super::steps::{Form, Step, Work};
use super::timed::{self, Timed};
use super::{Error, Launching, Options, Width, header, width};
use crate::engine::{Decision, Function};

/// Keys that lanes have room for at least.
const LEAST: usize = 32;

/// What kernels look up in.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    pub(super) routes: Arc<Buffer>,
    pub(super) lists: Arc<Lists>,
    pub(super) counts: Arc<OnDevice>,
    /// Of a decision, as it comes back.
    pub(super) bits: u32,
}

/// A way to the device and back.
#[derive(Debug)]
pub(super) struct Way {
    lane: Lane,
    function: Function,
    options: Options,
    /// Bytes that there is room for.
    room: (usize, usize),
    /// Twice the room for decisions, where they do not go back as they are made.
    scratch: Option<Buffer>,
    /// Of the lane.
    recorded: Recorded,
    /// In place of the lane, where a kernel stays.
    resident: Option<Resident>,
    /// Of the batch on the way.
    held: Option<Tables>,
    keys: usize,
    /// By which its batches are timed, if they are, and what the last one moved, if there was one.
    clock: Option<Clock>,
    moved: Option<usize>,
}

/// What of a batch goes to the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    /// How many there are of IPv4 and of IPv6.
    pub(super) keys: [usize; 2],
    /// Where they begin: keys, or where in the input whole frames have their IP headers.
    pub(super) at: [usize; 2],
    /// All of it.
    pub(super) bytes: usize,
    pub(super) form: Form,
}

impl Way {
    pub(super) fn new(
        device: &Device,
        function: Function,
        options: &Options,
    ) -> Result<Self, Error> {
        let room = (LEAST * size_of::<acl::Key6>(), LEAST * size_of::<u32>());
        let stays = options.launching == Launching::Persistent;
        let resident = stays.then(|| Resident::new(device, function, options.result));
        Ok(Self {
            resident: resident.transpose()?,
            lane: device.lane(options.memory, room.0, room.1)?,
            scratch: scratch(device, function, options, room.1)?,
            function,
            options: options.clone(),
            room,
            recorded: Recorded::default(),
            held: None,
            keys: 0,
            clock: None,
            moved: None,
        })
    }

    /// Has batches timed from now on, which are launched by a call for each kernel.
    pub(super) fn time(&mut self, device: &Device, clock: Clock) -> Result<(), Error> {
        self.await_batch()?;
        self.clock = Some(clock);
        self.lane = self.lane(device)?;
        Ok(())
    }

    /// Of the last batch, which was collected; nothing where this way had no part in it.
    pub(super) fn timed(&self) -> Result<Option<Timed>, Error> {
        let timed = |moved| {
            let times = self.lane.times()?;
            Ok(Timed { times, moved })
        };
        self.moved.map(timed).transpose()
    }

    /// Has no part in a batch.
    pub(super) fn pass(&mut self) {
        self.moved = None;
    }

    /// Sends what `write` writes.
    pub(super) fn send(
        &mut self,
        device: &Device,
        tables: Tables,
        input: Input,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), Error> {
        self.await_batch()?;
        match (&mut self.resident, self.options.launching) {
            (Some(resident), _) => resident.send(device, &tables, input, write)?,
            (None, Launching::Graph) => self.replay(device, &tables, input, write)?,
            (None, _) => self.launch(device, &tables, input, write)?,
        }
        self.keys = input.keys[0] + input.keys[1];
        self.held = Some(tables);
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
        self.make_room(device, input.bytes, keys)?;
        write(&mut self.lane.input()?[..input.bytes]);
        let work = Work {
            function: self.function,
            schedule: self.options.schedule,
            bits: tables.bits,
            input,
            tables,
            scratch: self.scratch.as_ref(),
            apart: self.room.1 / size_of::<u32>(),
        };
        let steps = work.steps();
        let launches: Vec<Launch<'_>> = steps.iter().map(Step::launch).collect();
        let back = width::bytes(keys, tables.bits);
        // SAFETY: the arguments are the kernels' parameters (gpu/kernels.h, gpu/results.h); keys lie within the
        // input and decisions within the output, or within the scratch that is as large twice, as many as
        // kernels are told, IP headers within their frames, and indices in tables and arenas come from
        // `Original` and `Arena`, whose builders name nothing beyond their arrays. All of the buffers are held
        // until the batch was waited for, and written by nobody who does not hold them alone.
        unsafe { self.lane.run(&launches, input.bytes, back)? };
        let moved = timed::moved(self.function, self.options.memory, &input, back);
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
        let items = recorded::items(input.keys[0] + input.keys[1]);
        self.make_room(device, recorded::bytes(input.bytes), items)?;
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
            apart: self.room.1 / size_of::<u32>(),
        };
        self.recorded.send(&mut self.lane, &work)
    }

    /// The decisions about the batch on the way, those of IPv4 first, once they are there; none where none is.
    pub(super) fn collect(&mut self) -> Result<impl Iterator<Item = Decision>, Error> {
        let keys = std::mem::take(&mut self.keys);
        let bits = self.held.take().map_or(u32::BITS, |held| held.bits);
        let bytes = match &mut self.resident {
            Some(resident) => resident.wait()?,
            None => self.lane.wait()?,
        };
        Ok((0..keys).map(width::decisions(bytes, bits)))
    }

    /// Lets go of what is only of use to the next batch. Nothing is on the way.
    pub(super) fn rest(&mut self) -> Result<(), Error> {
        self.resident.as_mut().map_or(Ok(()), Resident::rest)
    }

    /// Nothing is on the way then.
    fn await_batch(&mut self) -> Result<(), Error> {
        self.collect().map(drop)
    }

    /// One with this room.
    fn lane(&self, device: &Device) -> Result<Lane, Error> {
        let (memory, (there, back)) = (self.options.memory, self.room);
        let lane = match &self.clock {
            Some(clock) => device.timed_lane(clock, memory, there, back),
            None => device.lane(memory, there, back),
        };
        Ok(lane?)
    }

    /// For so many bytes there, and decisions back.
    fn make_room(&mut self, device: &Device, there: usize, decisions: usize) -> Result<(), Error> {
        let back = decisions * size_of::<u32>();
        if there <= self.room.0 && back <= self.room.1 {
            return Ok(());
        }
        self.room = (
            there.next_power_of_two().max(self.room.0),
            back.next_power_of_two().max(self.room.1),
        );
        self.recorded = Recorded::default();
        self.lane = self.lane(device)?;
        self.scratch = scratch(device, self.function, &self.options, self.room.1)?;
        Ok(())
    }
}

/// Where decisions lie that do not go back as they are made.
fn scratch(
    device: &Device,
    function: Function,
    options: &Options,
    bytes: usize,
) -> Result<Option<Buffer>, Error> {
    let used = options.schedule.joins(function) || options.result != Width::U32;
    Ok(used.then(|| device.buffer(2 * bytes)).transpose()?)
}
