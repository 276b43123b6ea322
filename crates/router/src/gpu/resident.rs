//! A way for batches to a kernel that stays on the device.

use std::sync::Arc;

use gpu::{Argument, Buffer, Device, PersistentKernel};

use super::header;
use super::launch::{Input, Tables};
use super::source::PERSIST;
use super::{Error, Width, width};
use crate::engine::Function;

/// How often the kernel looks at the bell in vain before it leaves: less than a second on any device.
const PATIENCE: u32 = 1 << 16;
/// Keys that there is room for from the beginning: a driver may have whoever asks for more wait until kernels that stay
/// in other threads have left.
const LEAST: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct Resident {
    kernel: PersistentKernel,
    function: Function,
    result: Width,
    /// Bytes that there is room for.
    room: (usize, usize),
    /// Where decisions lie before they are cut.
    scratch: Buffer,
    /// By which the kernel's groups tell each other of batches.
    relay: Buffer,
    /// What the kernel was started with.
    started: Option<Tables>,
}

impl Resident {
    pub(super) fn new(device: &Device, function: Function, result: Width) -> Result<Self, Error> {
        let room = (
            header::LENGTH + LEAST * size_of::<acl::Key6>(),
            LEAST * size_of::<u32>(),
        );
        let mut relay = device.buffer(gpu::BROADCAST_BYTES)?;
        device.write(&mut relay, 0, &[0; gpu::BROADCAST_BYTES])?;
        Ok(Self {
            relay,
            kernel: device.persistent_kernel(PERSIST, room.0, room.1)?,
            scratch: scratch(device, result, room.1)?,
            function,
            result,
            room,
            started: None,
        })
    }

    /// Sends what `write` writes. Nothing is on the way.
    pub(super) fn send(
        &mut self,
        device: &Device,
        tables: &Tables,
        mut input: Input,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), Error> {
        let keys = input.keys[0] + input.keys[1];
        let content = header::LENGTH..header::LENGTH + input.bytes;
        input.bytes = content.end;
        self.make_room(device, input.bytes, keys * size_of::<u32>())?;
        if !self.started.as_ref().is_some_and(|with| with.same(tables)) {
            self.start(tables)?;
        }
        let to = self.kernel.input();
        header::write(&input, to);
        write(&mut to[content]);
        self.kernel.ring(keys, width::bytes(keys, tables.bits));
        Ok(())
    }

    /// What came back of the batch on the way.
    pub(super) fn wait(&mut self) -> Result<&[u8], Error> {
        Ok(self.kernel.wait()?)
    }

    /// Lets go of the tables. Nothing is on the way.
    pub(super) fn rest(&mut self) -> Result<(), Error> {
        self.kernel.stop()?;
        self.started = None;
        Ok(())
    }

    fn start(&mut self, tables: &Tables) -> Result<(), Error> {
        self.rest()?;
        let [arena4, arena6] = tables.lists.arenas().map(Argument::Buffer);
        let arguments = [
            Argument::Doorbell,
            Argument::Buffer(&self.relay),
            Argument::Input,
            Argument::Output,
            Argument::Number(self.function as u32),
            Argument::Number(tables.bits),
            Argument::Number(PATIENCE),
            Argument::Buffer(&self.scratch),
            arena4,
            Argument::Buffer(&tables.counts.0[0]),
            arena6,
            Argument::Buffer(&tables.counts.0[1]),
            Argument::Buffer(&tables.routes),
        ];
        // SAFETY: the arguments are the kernel's parameters (gpu/persist.h); of every batch keys lie within the
        // input and decisions within output and scratch, which `send` sees to. Indices in tables and arenas are
        // as in `Way::send`. The tables are held until the kernel has left, and written by nobody who does not
        // hold them alone.
        unsafe { self.kernel.start(&arguments)? };
        self.started = Some(tables.clone());
        Ok(())
    }

    fn make_room(&mut self, device: &Device, there: usize, back: usize) -> Result<(), Error> {
        if there <= self.room.0 && back <= self.room.1 {
            return Ok(());
        }
        // Before memory is asked for, for which a driver may wait until no kernel is there.
        self.rest()?;
        let room = (
            there.next_power_of_two().max(self.room.0),
            back.next_power_of_two().max(self.room.1),
        );
        self.kernel.grow(room.0, room.1)?;
        self.scratch = scratch(device, self.result, room.1)?;
        self.room = room;
        Ok(())
    }
}

/// Decisions that are not cut yet; they lie in the output where they are not cut at all.
fn scratch(device: &Device, result: Width, bytes: usize) -> Result<Buffer, Error> {
    let bytes = if result == Width::U32 { 1 } else { bytes };
    Ok(device.buffer(bytes)?)
}

impl Tables {
    /// Whether a kernel that was started with the one can go on with the other.
    fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.routes, &other.routes)
            && Arc::ptr_eq(&self.lists, &other.lists)
            && Arc::ptr_eq(&self.counts, &other.counts)
            && self.bits == other.bits
    }
}
