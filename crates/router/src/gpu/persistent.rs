//! A lane to a persistent kernel, which polls for batches on the device.

use std::sync::Arc;

use gpu::{Argument, Buffer, Device, PersistentKernel};

use super::header;
use super::launch::{Input, Tables};
use super::source::PERSIST;
use super::{Error, Width, width};
use crate::engine::Function;

/// Number of unsuccessful polls after which the kernel ends: less than a second on any device.
const MAX_IDLE_POLLS: u32 = 1 << 16;
/// Initial capacity in keys. When a lane grows, a driver may wait until the persistent kernels of other
/// threads have ended.
const MIN_KEYS: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct PersistentLane {
    kernel: PersistentKernel,
    function: Function,
    result: Width,
    /// Capacity in bytes of input and output.
    capacity: (usize, usize),
    /// Memory for decisions before they are encoded.
    scratch: Buffer,
    /// Memory by which the kernel's groups signal batches to each other.
    relay: Buffer,
    /// The tables that the running kernel reads.
    started: Option<Tables>,
}

impl PersistentLane {
    pub(super) fn new(device: &Device, function: Function, result: Width) -> Result<Self, Error> {
        let capacity = (
            header::LENGTH + MIN_KEYS * size_of::<acl::Key6>(),
            MIN_KEYS * size_of::<u32>(),
        );
        let mut relay = device.buffer(gpu::BROADCAST_BYTES)?;
        device.write(&mut relay, 0, &[0; gpu::BROADCAST_BYTES])?;
        Ok(Self {
            relay,
            kernel: device.persistent_kernel(PERSIST, capacity.0, capacity.1)?,
            scratch: scratch(device, result, capacity.1)?,
            function,
            result,
            capacity,
            started: None,
        })
    }

    /// Sends a batch, whose input `write` writes. No batch may be in flight.
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
        self.reserve(device, input.bytes, keys * size_of::<u32>())?;
        if !self.started.as_ref().is_some_and(|with| with.same(tables)) {
            self.start(tables)?;
        }
        let to = self.kernel.input();
        header::write(&input, to);
        write(&mut to[content]);
        self.kernel.ring(keys, width::bytes(keys, tables.bits));
        Ok(())
    }

    /// Waits for the batch in flight, and returns its output.
    pub(super) fn wait(&mut self) -> Result<&[u8], Error> {
        Ok(self.kernel.wait()?)
    }

    /// Stops the kernel and releases its tables. No batch may be in flight.
    pub(super) fn release_tables(&mut self) -> Result<(), Error> {
        self.kernel.stop()?;
        self.started = None;
        Ok(())
    }

    fn start(&mut self, tables: &Tables) -> Result<(), Error> {
        self.release_tables()?;
        let [arena4, arena6] = tables.lists.arenas().map(Argument::Buffer);
        let arguments = [
            Argument::Doorbell,
            Argument::Buffer(&self.relay),
            Argument::Input,
            Argument::Output,
            Argument::Number(self.function as u32),
            Argument::Number(tables.bits),
            Argument::Number(MAX_IDLE_POLLS),
            Argument::Buffer(&self.scratch),
            arena4,
            Argument::Buffer(&tables.counts.0[0]),
            arena6,
            Argument::Buffer(&tables.counts.0[1]),
            Argument::Buffer(&tables.routes),
        ];
        // SAFETY: the arguments are the kernel's parameters (gpu/persist.h); of every batch keys lie within the
        // input and decisions within output and scratch, which `send` sees to. Indices in tables and arenas are
        // as in `BatchStream::send`. The tables are held until the kernel has left, and written by nobody who does not
        // hold them alone.
        unsafe { self.kernel.start(&arguments)? };
        self.started = Some(tables.clone());
        Ok(())
    }

    fn reserve(&mut self, device: &Device, there: usize, back: usize) -> Result<(), Error> {
        if there <= self.capacity.0 && back <= self.capacity.1 {
            return Ok(());
        }
        // The kernel ends before memory is allocated, because a driver may wait for that.
        self.release_tables()?;
        let capacity = (
            there.next_power_of_two().max(self.capacity.0),
            back.next_power_of_two().max(self.capacity.1),
        );
        self.kernel.grow(capacity.0, capacity.1)?;
        self.scratch = scratch(device, self.result, capacity.1)?;
        self.capacity = capacity;
        Ok(())
    }
}

/// Memory for decisions before they are encoded. Without encoding, decisions are written to the output.
fn scratch(device: &Device, result: Width, bytes: usize) -> Result<Buffer, Error> {
    let bytes = if result == Width::U32 { 1 } else { bytes };
    Ok(device.buffer(bytes)?)
}

impl Tables {
    /// Whether a kernel that reads these tables can continue with the others.
    fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.routes, &other.routes)
            && Arc::ptr_eq(&self.lists, &other.lists)
            && Arc::ptr_eq(&self.counts, &other.counts)
            && self.bits == other.bits
    }
}
