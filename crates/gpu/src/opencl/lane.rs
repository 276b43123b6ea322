//! A queue with its own kernels, because a kernel's arguments belong to one thread, and the memory at
//! both of its ends.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use opencl3::command_queue::CommandQueue;
use opencl3::event::Event;
use opencl3::kernel::Kernel;
use opencl3::memory::{
    CL_MAP_READ, CL_MAP_WRITE_INVALIDATE_REGION, CL_MEM_ALLOC_HOST_PTR, CL_MEM_READ_WRITE, ClMem,
};
use opencl3::types::{CL_BLOCKING, CL_NON_BLOCKING, cl_map_flags, cl_mem, cl_uint};

use super::{Buffer, Device, queue};
use crate::device::Memories;
use crate::lane::{Argument, Launch};
use crate::times::{Part, Times};
use crate::{Error, Memory};

/// Work items that are worked on together, at most.
pub(super) const GROUP: usize = 128;

#[derive(Debug)]
pub(crate) struct Lane {
    pub(super) device: Arc<Device>,
    pub(super) queue: CommandQueue,
    /// With the work items of a group.
    kernels: Vec<(Kernel, usize)>,
    pub(super) input: End,
    pub(super) output: End,
    /// The events of the last batch, if it is timed.
    timed: Option<Vec<(Part, Event)>>,
}

/// Memory at one end of a lane: the device's, and what the host sees of it.
#[derive(Debug)]
pub(super) struct End {
    buffer: Buffer,
    bytes: usize,
    /// The access of the host when it is mapped.
    access: cl_map_flags,
    host: Host,
}

#[derive(Debug)]
enum Host {
    Pageable(Vec<u8>),
    Pinned(Mapping),
    /// The buffer itself: this many bytes from its start, while the host has them.
    Mapped(Option<(NonNull<u8>, usize)>),
}

/// Memory of the host that the device reaches, mapped for as long as it is there.
#[derive(Debug)]
struct Mapping {
    /// Keeps the memory.
    _buffer: Buffer,
    start: NonNull<u8>,
}

// SAFETY: what the pointers point to is the lane's own, and moves with it.
unsafe impl Send for End {}

impl Lane {
    pub(crate) fn new(
        device: Arc<Device>,
        memory: Memory,
        (there, back): (usize, usize),
        timed: bool,
    ) -> Result<Self, Error> {
        let queue = queue(&device.context, timed).map_err(device.failed("making a queue"))?;
        let mut kernels = Vec::new();
        for name in &device.kernels {
            kernels.push(kernel(&device, name)?);
        }
        Ok(Self {
            input: End::new(
                &device,
                &queue,
                memory,
                there,
                CL_MAP_WRITE_INVALIDATE_REGION,
            )?,
            output: End::new(&device, &queue, memory, back, CL_MAP_READ)?,
            device,
            queue,
            kernels,
            timed: timed.then(Vec::new),
        })
    }

    /// Nothing is on the way.
    pub(crate) fn input(&mut self) -> Result<&mut [u8], Error> {
        self.input
            .take(&self.device, &self.queue, self.input.bytes)?;
        Ok(self.input.bytes_mut())
    }

    /// # Safety
    /// As the crate's [`crate::Lane::run`].
    pub(crate) unsafe fn run(
        &mut self,
        launches: &[Launch<'_>],
        there: usize,
        back: usize,
    ) -> Result<(), Error> {
        if let Some(timed) = &mut self.timed {
            timed.clear();
        }
        let sent = self.input.send(&self.device, &self.queue, there)?;
        self.note(Part::Upload, sent);
        self.output.release(&self.device, &self.queue)?;
        for launch in launches {
            // SAFETY: the caller's.
            let (kernel, items, group) =
                unsafe { self.prepare(&self.kernels[launch.kernel], launch)? };
            // SAFETY: all arguments are set; what the kernel reaches is the caller's word.
            let launched = unsafe {
                self.queue.enqueue_nd_range_kernel(
                    kernel.get(),
                    1,
                    ptr::null(),
                    &raw const items,
                    &raw const group,
                    &[],
                )
            };
            let launched = launched.map_err(self.device.failed("launching a kernel"))?;
            self.note(Part::Kernel, Some(launched));
        }
        let fetched = self.output.fetch(&self.device, &self.queue, back)?;
        self.note(Part::Download, fetched);
        self.queue
            .flush()
            .map_err(self.device.failed("sending a batch"))
    }

    /// A kernel with its arguments, all work items, and those of a group.
    ///
    /// # Safety
    /// As `run`.
    pub(super) unsafe fn prepare<'a>(
        &self,
        (kernel, group): &'a (Kernel, usize),
        launch: &Launch<'_>,
    ) -> Result<(&'a Kernel, usize, usize), Error> {
        let set = |(at, argument): (usize, &Argument<'_>)| {
            let at = cl_uint::try_from(at).unwrap_or(cl_uint::MAX);
            // SAFETY: a buffer's handle or a number, as the kernel's parameter is by the caller's word.
            unsafe {
                match argument {
                    Argument::Input => kernel.set_arg(at, &self.input.buffer.get()),
                    Argument::Output => kernel.set_arg(at, &self.output.buffer.get()),
                    Argument::Buffer(buffer) => match &buffer.inner {
                        Memories::OpenCl(buffer) => kernel.set_arg(at, &buffer.get()),
                        // The memory of another device has no address here.
                        Memories::Cuda(_) => kernel.set_arg(at, &ptr::null_mut::<c_void>()),
                    },
                    Argument::Number(number) => kernel.set_arg(at, number),
                    // No lane has one: nowhere.
                    Argument::Doorbell => kernel.set_arg(at, &ptr::null_mut::<c_void>()),
                }
            }
        };
        let mut all = launch.arguments.iter().enumerate();
        let set = all.try_for_each(set);
        set.map_err(self.device.failed("setting an argument"))?;
        Ok((kernel, launch.items.next_multiple_of(*group), *group))
    }

    fn note(&mut self, part: Part, event: Option<Event>) {
        if let (Some(timed), Some(event)) = (&mut self.timed, event) {
            timed.push((part, event));
        }
    }

    pub(crate) fn times(&self) -> Result<Times, Error> {
        let mut times = Times::default();
        for (part, event) in self.timed.iter().flatten() {
            let started = event.profiling_command_start();
            let span = started.and_then(|started| Ok(started..event.profiling_command_end()?));
            times.add(
                *part,
                span.map_err(self.device.failed("asking how long it took"))?,
            );
        }
        Ok(times)
    }

    pub(crate) fn wait(&mut self, back: usize) -> Result<&[u8], Error> {
        self.queue
            .finish()
            .map_err(self.device.failed("waiting for a batch"))?;
        self.output.take(&self.device, &self.queue, back)?;
        Ok(&self.output.bytes_mut()[..back])
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // Operations under way still read and write the host's memory.
        let _ = self.queue.finish();
    }
}

/// A kernel, and how many work items its groups have.
pub(super) fn kernel(device: &Device, name: &str) -> Result<(Kernel, usize), Error> {
    let kernel = Kernel::create(&device.program, name);
    let kernel = kernel.map_err(device.failed("finding a kernel"))?;
    let most = kernel.get_work_group_size(device.context.default_device());
    let most = most.map_err(device.failed("asking for a kernel's group"))?;
    Ok((kernel, most.clamp(1, GROUP)))
}

impl End {
    fn new(
        device: &Device,
        queue: &CommandQueue,
        memory: Memory,
        bytes: usize,
        access: cl_map_flags,
    ) -> Result<Self, Error> {
        let host_memory = CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR;
        let (flags, host) = match memory {
            Memory::Pageable => (CL_MEM_READ_WRITE, Host::Pageable(vec![0; bytes])),
            Memory::Pinned => {
                let buffer = device.memory(host_memory, bytes)?;
                let start = map(device, queue, &buffer, bytes, access)?;
                (
                    CL_MEM_READ_WRITE,
                    Host::Pinned(Mapping {
                        _buffer: buffer,
                        start,
                    }),
                )
            }
            Memory::Mapped => (host_memory, Host::Mapped(None)),
        };
        Ok(Self {
            buffer: device.memory(flags, bytes)?,
            bytes,
            access,
            host,
        })
    }

    /// So many bytes are the host's from now on: a driver may copy what is mapped.
    fn take(&mut self, device: &Device, queue: &CommandQueue, bytes: usize) -> Result<(), Error> {
        if let Host::Mapped(mapped @ None) = &mut self.host
            && bytes > 0
        {
            let start = map(device, queue, &self.buffer, bytes, self.access)?;
            *mapped = Some((start, bytes));
        }
        Ok(())
    }

    /// The device's from now on.
    pub(super) fn release(&mut self, device: &Device, queue: &CommandQueue) -> Result<(), Error> {
        if let Host::Mapped(mapped) = &mut self.host
            && let Some((start, _)) = mapped.take()
        {
            // SAFETY: what was mapped is unmapped once, and not looked at until it is mapped again.
            let unmapped = unsafe {
                queue.enqueue_unmap_mem_object(
                    self.buffer.get(),
                    start.as_ptr().cast::<c_void>(),
                    &[],
                )
            };
            unmapped.map_err(device.failed("unmapping a buffer"))?;
        }
        Ok(())
    }

    /// What is sent by an event; nothing is where the device reads what is the host's.
    pub(super) fn send(
        &mut self,
        device: &Device,
        queue: &CommandQueue,
        bytes: usize,
    ) -> Result<Option<Event>, Error> {
        self.release(device, queue)?;
        if matches!(self.host, Host::Mapped(_)) || bytes == 0 {
            return Ok(None);
        }
        let from = host(&mut self.host, self.bytes);
        let from = &from[..bytes];
        // SAFETY: these bytes are not written before the lane has waited, which also happens when it is
        // dropped.
        let sent =
            unsafe { queue.enqueue_write_buffer(&mut self.buffer, CL_NON_BLOCKING, 0, from, &[]) };
        sent.map(Some).map_err(device.failed("sending a batch"))
    }

    pub(super) fn fetch(
        &mut self,
        device: &Device,
        queue: &CommandQueue,
        bytes: usize,
    ) -> Result<Option<Event>, Error> {
        if matches!(self.host, Host::Mapped(_)) || bytes == 0 {
            return Ok(None);
        }
        let to = host(&mut self.host, self.bytes);
        let to = &mut to[..bytes];
        // SAFETY: these bytes are neither read nor written before the lane has waited, which also happens
        // when it is dropped.
        let fetched =
            unsafe { queue.enqueue_read_buffer(&self.buffer, CL_NON_BLOCKING, 0, to, &[]) };
        fetched.map(Some).map_err(device.failed("fetching a batch"))
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        host(&mut self.host, self.bytes)
    }
}

/// The host's memory. It is empty while the buffer is the device's.
fn host(host: &mut Host, bytes: usize) -> &mut [u8] {
    let mapped = match host {
        Host::Pageable(bytes) => return bytes,
        Host::Pinned(mapping) => Some((mapping.start, bytes)),
        Host::Mapped(mapped) => *mapped,
    };
    match mapped {
        // SAFETY: this many bytes are mapped there, and only the end's owner accesses them while nothing is
        // under way.
        Some((start, bytes)) => unsafe { slice::from_raw_parts_mut(start.as_ptr(), bytes) },
        None => &mut [],
    }
}

fn map(
    device: &Device,
    queue: &CommandQueue,
    buffer: &Buffer,
    bytes: usize,
    access: cl_map_flags,
) -> Result<NonNull<u8>, Error> {
    let mut start: cl_mem = ptr::null_mut();
    // SAFETY: no more than the buffer has; the call waits until it is mapped.
    let mapped =
        unsafe { queue.enqueue_map_buffer(buffer, CL_BLOCKING, access, 0, bytes, &mut start, &[]) };
    mapped.map_err(device.failed("mapping a buffer"))?;
    let nowhere = || Error::Failed {
        device: device.name.clone(),
        call: "mapping a buffer",
        why: "it is nowhere".to_owned(),
    };
    NonNull::new(start.cast()).ok_or_else(nowhere)
}
