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

/// Bytes of a key of IPv4 and of IPv6, as the kernels of a function read them.
pub(super) fn key_bytes(function: Function) -> [usize; 2] {
    if function.filters() {
        [size_of::<acl::Key4>(), size_of::<acl::Key6>()]
    } else {
        [4, 16]
    }
}

impl Way {
    pub(super) fn new(device: &Device, function: Function, memory: Memory) -> Result<Self, Error> {
        let [_, v6] = key_bytes(function);
        let room = (LEAST * v6, LEAST * size_of::<u32>());
        Ok(Self {
            lane: device.lane(memory, room.0, room.1)?,
            function,
            memory,
            room,
            held: None,
        })
    }

    /// Sends so many keys of IPv4 and of IPv6, which `write` writes one after the other.
    pub(super) fn send(
        &mut self,
        device: &Device,
        tables: Tables,
        keys: [usize; 2],
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), Error> {
        self.collect()?;
        let bytes = key_bytes(self.function);
        let there = keys[0] * bytes[0] + keys[1] * bytes[1];
        let back = (keys[0] + keys[1]) * size_of::<u32>();
        if there > self.room.0 || back > self.room.1 {
            self.room = (there.next_power_of_two(), back.next_power_of_two());
            self.lane = device.lane(self.memory, self.room.0, self.room.1)?;
        }
        write(&mut self.lane.input()?[..there]);
        let number = |number: usize| Argument::Number(u32::try_from(number).unwrap_or(u32::MAX));
        let arguments = |family: usize| {
            let before = if family == 0 {
                [0, 0]
            } else {
                [keys[0] * bytes[0], keys[0]]
            };
            let mut all = vec![
                Argument::Input,
                number(before[0]),
                Argument::Output,
                number(before[1]),
                number(keys[family]),
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
        // SAFETY: the arguments are the kernels' parameters (gpu/kernels.h); keys and decisions are as many as
        // they are told, and indices in tables and arenas come from `Original` and `Arena`, whose builders
        // name nothing beyond their arrays. All of the buffers are held until the batch was waited for, and
        // written by nobody who does not hold them alone.
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
