//! NVIDIA's devices by CUDA: the driver and its compiler are loaded when they are first asked for.

mod compile;
mod event;
mod graph;
mod lane;
mod memory;
mod persistent;
mod stream;

use std::ffi::{CString, c_int};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUfunction, CUresult, cuDriverGetVersion,
    is_culib_present,
};
use datapath::Missing;

use crate::{Backend, DeviceInfo, Error, Kind};

pub(crate) use compile::binary;
pub(crate) use event::Clock;
pub(crate) use graph::Graph;
pub(crate) use lane::Lane;
pub(crate) use memory::Buffer;
pub(crate) use persistent::PersistentKernel;
use stream::Stream;

/// An open device.
#[derive(Debug)]
pub(crate) struct Device {
    context: Arc<Context>,
    /// Which are there for as long as the context.
    kernels: Vec<Function>,
    multiprocessors: usize,
    /// Number of its persistent kernels.
    persistent: Arc<AtomicUsize>,
    /// The stream of copies to and from buffers.
    copies: Mutex<Stream>,
}

/// The device's primary context.
#[derive(Debug)]
struct Context {
    device: CUdevice,
    handle: CUcontext,
    name: String,
    largest: u64,
}

// SAFETY: contexts are made for all threads of a process; each makes it its own before a call.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

#[derive(Clone, Copy, Debug)]
struct Function(CUfunction);

// SAFETY: a handle, which any thread may use.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

pub(crate) fn devices() -> Result<Vec<DeviceInfo>, Missing> {
    let unusable = |error: DriverError| {
        let what = format!("the NVIDIA driver does not start: {}", error_name(error));
        Missing::new(what, "ask nvidia-smi, which says why")
    };
    // SAFETY: asks for a library, which does nothing when it is loaded.
    if !unsafe { is_culib_present() } {
        return Err(Missing::new(
            "there is no libcuda.so.1",
            "install the driver of the NVIDIA device; CUDA's toolkit is not needed",
        ));
    }
    result::init().map_err(unusable)?;
    compile::check()?;
    let count = result::device::get_count().map_err(unusable)?;
    let driver = driver();
    let infos = (0..count).filter_map(|at| describe(at, &driver).ok());
    Ok(infos.collect())
}

fn describe(at: c_int, driver: &str) -> Result<DeviceInfo, DriverError> {
    let device = result::device::get(at)?;
    // SAFETY: a device that was just found.
    let memory = unsafe { result::device::total_mem(device)? } as u64;
    Ok(DeviceInfo {
        backend: Backend::Cuda,
        index: usize::try_from(at).unwrap_or_default(),
        kind: Kind::Gpu,
        model: result::device::get_name(device)?,
        driver: driver.to_owned(),
        memory,
        largest: memory,
    })
}

fn driver() -> String {
    let mut version = 0;
    // SAFETY: writes one number.
    let asked = unsafe { cuDriverGetVersion(&raw mut version) };
    match asked {
        CUresult::CUDA_SUCCESS => format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
        _ => "CUDA".to_owned(),
    }
}

impl Device {
    pub(crate) fn open(
        info: &DeviceInfo,
        source: &str,
        kernels: &[&'static str],
    ) -> Result<Self, Error> {
        let name = info.to_string();
        let failed = |call| failed(&name, call);
        devices()?;
        let at = c_int::try_from(info.index).unwrap_or(c_int::MAX);
        let device = result::device::get(at).map_err(failed("finding it"))?;
        // SAFETY: a device that was just found.
        let handle = unsafe { result::primary_ctx::retain(device) };
        let context = Arc::new(Context {
            device,
            handle: handle.map_err(failed("making a context"))?,
            name: name.clone(),
            largest: info.largest,
        });
        context.enter()?;
        let binary = binary(
            source,
            &architecture(device).map_err(failed("asking it"))?,
            &name,
        )?;
        // SAFETY: what the compiler made for this device.
        let module = unsafe { result::module::load_data(binary.as_ptr().cast()) };
        let module = module.map_err(failed("loading the kernels"))?;
        let function = |name: &&str| {
            let name = CString::new(*name).unwrap_or_default();
            // SAFETY: of the module that was just loaded.
            unsafe { result::module::get_function(module, name) }.map(Function)
        };
        let kernels = kernels.iter().map(function).collect::<Result<_, _>>();
        Ok(Self {
            kernels: kernels.map_err(failed("finding a kernel"))?,
            multiprocessors: multiprocessors(device).map_err(failed("asking it"))?,
            persistent: Arc::default(),
            copies: Mutex::new(Stream::new(&context)?),
            context,
        })
    }

    pub(crate) fn buffer(&self, bytes: usize) -> Result<Buffer, Error> {
        Buffer::new(&self.context, bytes)
    }

    /// Within the buffer.
    pub(crate) fn write(&self, to: &mut Buffer, at: usize, bytes: &[u8]) -> Result<(), Error> {
        let mut copies = self.copies()?;
        // SAFETY: within the buffer, which is borrowed exclusively; it is copied when this returns.
        let written = unsafe { result::memcpy_htod_async(to.address(at), bytes, copies.handle()) };
        written.map_err(self.context.failed("writing to a buffer"))?;
        copies.wait()
    }

    /// Within the buffer.
    pub(crate) fn read(&self, from: &Buffer, at: usize, bytes: &mut [u8]) -> Result<(), Error> {
        let mut copies = self.copies()?;
        // SAFETY: within the buffer; the bytes are there when this returns.
        let read = unsafe { result::memcpy_dtoh_async(bytes, from.address(at), copies.handle()) };
        read.map_err(self.context.failed("reading a buffer"))?;
        copies.wait()
    }

    /// Copies `bytes` bytes, `times` times. Both buffers are of this device and at least this long.
    pub(crate) fn copy(
        &self,
        from: &Buffer,
        to: &mut Buffer,
        bytes: usize,
        times: u32,
    ) -> Result<(), Error> {
        let mut copies = self.copies()?;
        let (to, from) = (to.address(0), from.address(0));
        for _ in 0..times {
            // SAFETY: within both, of which the one that is written is borrowed exclusively; it is done when this
            // returns.
            let copied = unsafe { result::memcpy_dtod_async(to, from, bytes, copies.handle()) };
            copied.map_err(self.context.failed("copying a buffer"))?;
        }
        copies.wait()
    }

    /// From now on.
    pub(crate) fn clock(&self) -> Result<Clock, Error> {
        let mut copies = self.copies()?;
        // SAFETY: the stream is there, and waited for before anybody has the clock.
        let clock = unsafe { Clock::start(&self.context, copies.handle())? };
        copies.wait()?;
        Ok(clock)
    }

    fn copies(&self) -> Result<MutexGuard<'_, Stream>, Error> {
        self.context.enter()?;
        Ok(self.copies.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Context {
    /// The calling thread's context from now on.
    fn enter(&self) -> Result<(), Error> {
        // SAFETY: the context is there for as long as this.
        let entered = unsafe { result::ctx::set_current(self.handle) };
        entered.map_err(self.failed("entering its context"))
    }

    fn failed(&self, call: &'static str) -> impl Fn(DriverError) -> Error {
        failed(&self.name, call)
    }

    /// As `failed`, for an allocation.
    fn allocation_failed(&self, bytes: usize) -> impl Fn(DriverError) -> Error {
        let failed = self.failed("making a buffer");
        let (device, largest) = (self.name.clone(), self.largest);
        move |error| match error.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Error::Memory {
                device: device.clone(),
                bytes,
                largest,
            },
            _ => failed(error),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once, and nothing of it is left.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

fn failed(device: &str, call: &'static str) -> impl Fn(DriverError) -> Error {
    let device = device.to_owned();
    move |error| Error::Failed {
        device: device.clone(),
        call,
        why: error_name(error),
    }
}

/// The driver's name of an error: `CUDA_ERROR_NO_DEVICE`.
fn error_name(error: DriverError) -> String {
    let name = error.error_name().ok().and_then(|name| name.to_str().ok());
    name.map_or_else(|| format!("{:?}", error.0), str::to_owned)
}

/// The name of the device's architecture: `sm_90`.
fn architecture(device: CUdevice) -> Result<String, DriverError> {
    use CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
    };
    // SAFETY: a device that was found.
    let asked = |what| unsafe { result::device::get_attribute(device, what) };
    Ok(format!("sm_{}{}", asked(MAJOR)?, asked(MINOR)?))
}

fn multiprocessors(device: CUdevice) -> Result<usize, DriverError> {
    let what = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    // SAFETY: a device that was found.
    let count = unsafe { result::device::get_attribute(device, what)? };
    Ok(usize::try_from(count).unwrap_or_default())
}
