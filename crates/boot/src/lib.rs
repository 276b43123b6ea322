//! The kernel, modules and initial file system of a guest. Callers decide how it is booted, and what runs
//! there.

mod cpio;
mod image;
mod kernel;

pub use image::{Image, MODULES, libraries};
pub use kernel::{Flavour, Kernel};

use std::io;
use std::path::Path;

/// Why a guest has nothing to boot.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what}: {cause}")]
    File { what: String, cause: io::Error },
    #[error("{0} does not start: {1}")]
    Program(&'static str, io::Error),
    #[error("apt knows no {0}: run apt-get update, on Debian 12")]
    NoPackage(&'static str),
    #[error("apt-get download {package} did not work (is the network there?): {output}")]
    Download { package: String, output: String },
    #[error("{0} holds no kernel")]
    NoKernel(String),
}

/// Says which file it was.
fn at(path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
    move |cause| Error::File {
        what: path.display().to_string(),
        cause,
    }
}
