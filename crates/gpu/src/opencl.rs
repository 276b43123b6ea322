//! Devices by OpenCL, of any vendor; its library is loaded when it is first asked for.

mod lane;
mod persistent;
mod recording;

use std::ptr;
use std::sync::Mutex;

use datapath::Missing;
use opencl3::command_queue::{CL_QUEUE_PROFILING_ENABLE, CommandQueue};
use opencl3::context::Context;
use opencl3::device::{
    CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_GPU, Device as ClDevice,
};
use opencl3::error_codes::{
    CL_INVALID_BUFFER_SIZE, CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_HOST_MEMORY,
    CL_OUT_OF_RESOURCES, ClError, DLOPEN_RUNTIME_LOAD_FAILED,
};
use opencl3::memory::{Buffer as Memory, CL_MEM_READ_WRITE};
use opencl3::platform::get_platforms;
use opencl3::program::Program;
use opencl3::types::{CL_BLOCKING, cl_device_id, cl_mem_flags, cl_platform_id};

use crate::{Backend, DeviceInfo, Error, Kind};

pub(crate) use lane::Lane;
pub(crate) use persistent::PersistentKernel;
pub(crate) use recording::Recording;

/// Devices need nothing beyond OpenCL 1.2.
const DIALECT: &str = "-cl-std=CL1.2";

pub(crate) type Buffer = Memory<u8>;

/// An open device.
#[derive(Debug)]
pub(crate) struct Device {
    name: String,
    kind: Kind,
    largest: u64,
    context: Context,
    program: Program,
    kernels: Vec<&'static str>,
    /// The queue of copies to and from buffers.
    copies: CommandQueue,
    /// The device's platform.
    platform: Platform,
    extensions: String,
}

#[derive(Clone, Copy, Debug)]
struct Platform(cl_platform_id);

// SAFETY: a handle that is there as long as the process.
unsafe impl Send for Platform {}
// SAFETY: as above.
unsafe impl Sync for Platform {}

pub(crate) fn devices() -> Result<Vec<DeviceInfo>, Missing> {
    let ids = device_ids()?;
    let ids = ids.into_iter().enumerate();
    Ok(ids
        .filter_map(|(index, id)| describe(index, &ClDevice::new(id)).ok())
        .collect())
}

/// Devices of all platforms, always in the same order.
fn device_ids() -> Result<Vec<cl_device_id>, Missing> {
    let no_driver = || {
        Missing::new(
            "OpenCL finds no device",
            "install the OpenCL driver of the device's vendor; for a device that is this machine's own \
             processor: apt-get install pocl-opencl-icd",
        )
    };
    // If two threads make the first query at once, one of them gets no platforms.
    static QUERY_LOCK: Mutex<()> = Mutex::new(());
    let _guard = QUERY_LOCK.lock();
    let platforms = get_platforms().map_err(|error| match error {
        ClError(DLOPEN_RUNTIME_LOAD_FAILED) => Missing::new(
            "there is no libOpenCL.so.1",
            "apt-get install ocl-icd-libopencl1, and the OpenCL driver of the device's vendor",
        ),
        _ => no_driver(),
    })?;
    let devices = platforms
        .iter()
        .filter_map(|platform| platform.get_devices(CL_DEVICE_TYPE_ALL).ok());
    let devices: Vec<_> = devices.flatten().collect();
    if devices.is_empty() {
        return Err(no_driver());
    }
    Ok(devices)
}

fn describe(index: usize, found: &ClDevice) -> Result<DeviceInfo, ClError> {
    let kind = found.dev_type()?;
    Ok(DeviceInfo {
        backend: Backend::OpenCl,
        index,
        kind: if kind & CL_DEVICE_TYPE_GPU != 0 {
            Kind::Gpu
        } else if kind & CL_DEVICE_TYPE_CPU != 0 {
            Kind::Cpu
        } else {
            Kind::Other
        },
        model: found.name()?.trim().to_owned(),
        driver: format!("{} {}", found.vendor()?.trim(), found.driver_version()?),
        memory: found.global_mem_size()?,
        largest: found.max_mem_alloc_size()?,
    })
}

impl Device {
    pub(crate) fn open(
        info: &DeviceInfo,
        source: &str,
        kernels: &[&'static str],
        persistent: bool,
    ) -> Result<Self, Error> {
        let name = info.to_string();
        let failed = |call| failed(&name, call);
        let gone = || Error::NoDevice {
            name: info.name(),
            there: Vec::new(),
        };
        let found = ClDevice::new(*device_ids()?.get(info.index).ok_or_else(gone)?);
        if !found.endian_little().map_err(failed("asking it"))? {
            return Err(Error::Endian { device: name });
        }
        let dialect = if persistent {
            persistent::dialect(&found, &name)?
        } else {
            DIALECT
        };
        let context = Context::from_device(&found).map_err(failed("making a context"))?;
        let program = Program::create_and_build_from_source(&context, source, dialect);
        let program = program.map_err(|log| Error::Build {
            device: name.clone(),
            log: log.trim().to_owned(),
        })?;
        Ok(Self {
            kind: info.kind,
            largest: info.largest,
            copies: queue(&context, false).map_err(failed("making a queue"))?,
            platform: Platform(found.platform().map_err(failed("asking it"))?),
            extensions: found.extensions().map_err(failed("asking it"))?,
            context,
            program,
            kernels: kernels.to_vec(),
            name,
        })
    }

    pub(crate) fn buffer(&self, bytes: usize) -> Result<Buffer, Error> {
        self.memory(CL_MEM_READ_WRITE, bytes)
    }

    /// Memory whose content is not known.
    fn memory(&self, flags: cl_mem_flags, bytes: usize) -> Result<Buffer, Error> {
        // SAFETY: no memory of the host is named by the flags.
        let buffer = unsafe { Memory::create(&self.context, flags, bytes, ptr::null_mut()) };
        buffer.map_err(|error| match error {
            ClError(
                CL_MEM_OBJECT_ALLOCATION_FAILURE
                | CL_OUT_OF_RESOURCES
                | CL_OUT_OF_HOST_MEMORY
                | CL_INVALID_BUFFER_SIZE,
            ) => Error::Memory {
                device: self.name.clone(),
                bytes,
                largest: self.largest,
            },
            error => self.failed("making a buffer")(error),
        })
    }

    pub(crate) fn write(&self, to: &mut Buffer, at: usize, bytes: &[u8]) -> Result<(), Error> {
        // SAFETY: the bytes are within the buffer, which is borrowed exclusively, and are copied when this
        // returns.
        let written = unsafe {
            self.copies
                .enqueue_write_buffer(to, CL_BLOCKING, at, bytes, &[])
        };
        written
            .map(drop)
            .map_err(self.failed("writing to a buffer"))
    }

    pub(crate) fn read(&self, from: &Buffer, at: usize, bytes: &mut [u8]) -> Result<(), Error> {
        // SAFETY: the bytes are within the buffer, and are there when this returns.
        let read = unsafe {
            self.copies
                .enqueue_read_buffer(from, CL_BLOCKING, at, bytes, &[])
        };
        read.map(drop).map_err(self.failed("reading a buffer"))
    }

    /// Copies `bytes` bytes, `times` times. Both buffers are of this device and at least this long.
    pub(crate) fn copy(
        &self,
        from: &Buffer,
        to: &mut Buffer,
        bytes: usize,
        times: u32,
    ) -> Result<(), Error> {
        for _ in 0..times {
            // SAFETY: within both, of which the one that is written is borrowed exclusively; it is done when this
            // returns.
            let copied = unsafe { self.copies.enqueue_copy_buffer(from, to, 0, 0, bytes, &[]) };
            copied.map_err(self.failed("copying a buffer"))?;
        }
        let copied = self.copies.finish();
        copied.map_err(self.failed("copying a buffer"))
    }

    fn failed(&self, call: &'static str) -> impl Fn(ClError) -> Error {
        failed(&self.name, call)
    }
}

fn failed(device: &str, call: &'static str) -> impl Fn(ClError) -> Error {
    let device = device.to_owned();
    move |error| Error::Failed {
        device: device.clone(),
        call,
        why: error.to_string(),
    }
}

/// A queue that works in order.
fn queue(context: &Context, timed: bool) -> Result<CommandQueue, ClError> {
    let properties = if timed { CL_QUEUE_PROFILING_ENABLE } else { 0 };
    CommandQueue::create_default(context, properties)
}
