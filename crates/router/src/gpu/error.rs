//! Why tables on a device could not be had, changed or asked.

use std::io;

use crate::image;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Device(#[from] ::gpu::Error),
    #[error(transparent)]
    Routes(#[from] lpm::Error),
    #[error("rules: {0}")]
    Rules(#[from] acl::Error),
    #[error(transparent)]
    Image(#[from] image::Error),
    #[error("memory for the tables that a device has a copy of: {0}")]
    Memory(#[from] io::Error),
}
