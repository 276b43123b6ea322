//! Errors of tables on a device.

use std::io;

use datapath::{Classify, ErrorClass, Missing};

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
    /// Options that cannot be combined.
    #[error("{0}")]
    Options(&'static str),
    #[error(
        "results of two bytes hold next hops up to {most}, and there is a {hop}: use u32 or compact"
    )]
    Width { hop: u16, most: u16 },
    #[error("memory for the tables that a device has a copy of: {0}")]
    Memory(#[from] io::Error),
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Device(::gpu::Error::Missing(missing)) => missing.class(),
            Self::Image(error) => error.class(),
            Self::Device(::gpu::Error::NoDevice { .. }) | Self::Options(_) | Self::Width { .. } => {
                ErrorClass::Input
            }
            Self::Device(_) | Self::Routes(_) | Self::Rules(_) | Self::Memory(_) => {
                ErrorClass::Failed
            }
        }
    }

    fn missing(&self) -> Vec<(String, Missing)> {
        match self {
            Self::Device(::gpu::Error::Missing(missing)) => missing.missing(),
            _ => Vec::new(),
        }
    }
}
