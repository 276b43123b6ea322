//! Devices that run kernels: which there are, their memory, and batches on the way to them and back.
//! The caller decides what kernels compute.
//!
//! A back end is loaded when it is asked for, and nothing of it is needed to build.

mod cuda;
mod device;
mod error;
mod lane;
mod list;
mod opencl;
mod persistent;
mod times;

pub use device::{Buffer, Device};
pub use error::Error;
pub use lane::{Argument, Lane, Launch, Recording};
pub use list::{Backend, DeviceInfo, Kind, devices, find};
pub use persistent::{BROADCAST_BYTES, PersistentKernel};
pub use times::{Clock, Times};

/// The kind of host memory that batches are sent from and received in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Memory {
    /// Ordinary memory, which the driver copies once more.
    Pageable,
    /// Memory that stays where it is: the device copies from it and to it by itself.
    Pinned,
    /// Pinned memory that kernels read and write directly: nothing is copied.
    Mapped,
}

impl Memory {
    pub const ALL: [Self; 3] = [Self::Pageable, Self::Pinned, Self::Mapped];

    /// How people name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pageable => "pageable",
            Self::Pinned => "pinned",
            Self::Mapped => "mapped",
        }
    }
}

/// The kernels of a source as an NVIDIA device of this architecture (`sm_90`) runs them, compiled without
/// one.
///
/// # Errors
/// No compiler; kernels that it refuses.
pub fn cuda_binary(source: &str, architecture: &str) -> Result<Vec<u8>, Error> {
    cuda::binary(source, architecture, architecture)
}
