//! A part of a batch on its way: which kernels work on it, and what they read, held until they have.

use std::sync::Arc;

use gpu::{Argument, Buffer, Device, Lane, Launch, Memory};

use super::Error;
use super::lists::{Lists, OnDevice};
use crate::engine::Function;

/// Keys that lanes have room for at least.
const LEAST: usize = 32;

/// What kernels look up in.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    pub(super) routes: Arc<Buffer>,
    pub(super) lists: Arc<Lists>,
    pub(super) counts: Arc<OnDevice>,
}

/// A way to the device and back.
#[derive(Debug)]
pub(super) struct Way {
    lane: Lane,
    function: Function,
    memory: Memory,
    /// Bytes that there is room for.
    room: (usize, usize),
    /// Of the batch on the way.
    held: Option<Tables>,
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
    pub(super) whole: bool,
}

impl Way {
    pub(super) fn new(device: &Device, function: Function, memory: Memory) -> Result<Self, Error> {
        let room = (LEAST * size_of::<acl::Key6>(), LEAST * size_of::<u32>());
        Ok(Self {
            lane: device.lane(memory, room.0, room.1)?,
            function,
            memory,
            room,
            held: None,
        })
    }

    /// Sends what `write` writes.
    pub(super) fn send(
        &mut self,
        device: &Device,
        tables: Tables,
        input: Input,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), Error> {
        self.collect()?;
        let Input {
            keys,
            at,
            bytes: there,
            whole,
        } = input;
        let back = (keys[0] + keys[1]) * size_of::<u32>();
        if there > self.room.0 || back > self.room.1 {
            self.room = (
                there.next_power_of_two().max(self.room.0),
                back.next_power_of_two().max(self.room.1),
            );
            self.lane = device.lane(self.memory, self.room.0, self.room.1)?;
        }
        write(&mut self.lane.input()?[..there]);
        let number = |number: usize| Argument::Number(u32::try_from(number).unwrap_or(u32::MAX));
        let arguments = |family: usize| {
            let before = if family == 0 { 0 } else { keys[0] };
            let mut all = vec![
                Argument::Input,
                number(at[family]),
                Argument::Output,
                number(before),
                number(keys[family]),
                number(whole.into()),
            ];
            if self.function.filters() {
                all.push(Argument::Buffer(tables.lists.arenas()[family]));
                all.push(Argument::Buffer(&tables.counts.0[family]));
            }
            if self.function.routes() {
                all.push(Argument::Buffer(&tables.routes));
            }
            all
        };
        let arguments = [arguments(0), arguments(1)];
        let launches = [0, 1].map(|family| Launch {
            kernel: 2 * self.function as usize + family,
            items: keys[family],
            arguments: &arguments[family],
        });
        let launches = match keys {
            [0, 0] => &[],
            [_, 0] => &launches[..1],
            [0, _] => &launches[1..],
            _ => &launches[..],
        };
        // SAFETY: the arguments are the kernels' parameters (gpu/kernels.h); keys lie within the input and
        // decisions within the output, as many as kernels are told, IP headers within their frames, and
        // indices in tables and arenas come from `Original` and `Arena`, whose builders name nothing beyond
        // their arrays. All of the buffers are held until the batch was waited for, and written by nobody
        // who does not hold them alone.
        unsafe { self.lane.run(launches, there, back)? };
        self.held = Some(tables);
        Ok(())
    }

    /// The decisions about the batch on the way, those of IPv4 first, once they are there; none where none is.
    pub(super) fn collect(&mut self) -> Result<&[u8], Error> {
        let decisions = self.lane.wait()?;
        self.held = None;
        Ok(decisions)
    }
}
