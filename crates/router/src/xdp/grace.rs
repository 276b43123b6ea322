//! Waiting until no CPU runs a program that may look at what was unpublished.
//!
//! The kernel promises it to whoever changes a map of maps by a system call: that returns after an
//! RCU grace period, and XDP programs run within one read-side section. `membarrier(2)` would do
//! no more than that by way of its implementation, nothing on one CPU, and is refused where CPUs
//! are `nohz_full`.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use super::Error;

/// A clone waits by the same map.
#[derive(Clone, Debug)]
pub(super) struct Grace(Arc<(MapHandle, MapHandle)>);

impl Grace {
    /// By a map of one map, of one number, which no program reads.
    pub(super) fn new(outer: MapHandle) -> Result<Self, Error> {
        let options = bpf_map_create_opts {
            sz: size_of::<bpf_map_create_opts>() as u64,
            ..Default::default()
        };
        let inner = MapHandle::create(MapType::Array, Some("grace_inner"), 4, 4, 1, &options)
            .map_err(Error::kernel("creating a map to wait by"))?;
        Ok(Self(Arc::new((outer, inner))))
    }

    /// Returns after every program that runs now has ended. Takes milliseconds.
    pub(super) fn wait(&self) -> Result<(), Error> {
        let (outer, inner) = &*self.0;
        let fd = inner.as_fd().as_raw_fd();
        outer
            .update(&0_u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
            .map_err(Error::kernel("waiting for the CPUs to leave the program"))
    }

    /// As `wait`. The kernel refuses for want of memory alone; then it waits for longer than a program
    /// may run.
    pub(super) fn wait_or_sleep(&self) {
        if let Err(error) = self.wait() {
            tracing::warn!(%error, "waiting a second instead");
            thread::sleep(Duration::from_secs(1));
        }
    }
}
