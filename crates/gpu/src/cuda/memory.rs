//! Memory of a device, and memory of the host that a device reaches.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use cudarc::driver::result;
use cudarc::driver::sys::{
    CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, CUdeviceptr, cuMemHostGetDevicePointer_v2,
};

use super::Context;
use crate::Error;

/// Memory of a device.
#[derive(Debug)]
pub(crate) struct Buffer {
    context: Arc<Context>,
    start: CUdeviceptr,
}

/// Memory of the host that stays where it is.
#[derive(Debug)]
pub(super) struct Pinned {
    context: Arc<Context>,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the pointer's memory is its own, and moves with it.
unsafe impl Send for Pinned {}

impl Buffer {
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, Error> {
        context.enter()?;
        // SAFETY: the content is not read before it is written, and any bytes are a valid value.
        let start = unsafe { result::malloc_sync(bytes) };
        Ok(Self {
            start: start.map_err(context.allocation_failed(bytes))?,
            context: Arc::clone(context),
        })
    }

    /// The device's address of byte `at`.
    pub(super) fn address(&self, at: usize) -> CUdeviceptr {
        self.start + at as CUdeviceptr
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: it was made once and goes once; the driver waits for what uses it.
            let _ = unsafe { result::free_sync(self.start) };
        }
    }
}

impl Pinned {
    /// Zeroed.
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, Error> {
        context.enter()?;
        let flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: it is written before anybody reads it.
        let start = unsafe { result::malloc_host(bytes, flags) };
        let start = start.map_err(context.allocation_failed(bytes))?;
        let nowhere = || Error::Failed {
            device: context.name.clone(),
            call: "making memory that stays where it is",
            why: "it is nowhere".to_owned(),
        };
        let start: NonNull<u8> = NonNull::new(start).ok_or_else(nowhere)?.cast();
        // SAFETY: the allocation above has this many bytes.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Self {
            context: Arc::clone(context),
            start,
            bytes,
        })
    }

    /// The device's address of this memory.
    pub(super) fn address(&self) -> Result<CUdeviceptr, Error> {
        let mut address = 0;
        // SAFETY: memory that was made to be mapped; one number is written.
        let asked = unsafe {
            cuMemHostGetDevicePointer_v2(&raw mut address, self.start.as_ptr().cast::<c_void>(), 0)
        };
        let asked = asked.result();
        asked.map_err(self.context.failed("asking where memory is"))?;
        Ok(address)
    }

    pub(super) fn numbers(&self) -> &[AtomicU32] {
        let start = self.start.as_ptr().cast::<AtomicU32>();
        // SAFETY: the memory is aligned to a page, has this many bytes, and is only accessed by atomics.
        unsafe { slice::from_raw_parts(start, self.bytes / size_of::<u32>()) }
    }

    /// Nothing of it is on the way.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the memory has this many bytes, and only this value accesses it.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: it was made once and goes once.
            let _ = unsafe { result::free_host(self.start.as_ptr().cast()) };
        }
    }
}
