//! The first program of a virtual machine, or of a container that an engine runs: it sets the guest up and
//! runs what its host asks for, over a serial port or standard streams that only the host can reach. The
//! host decides which programs run.
//!
//! The one program of an initial file system, or of an image, calls [`main`] before all else.

mod frame;
mod init;
mod sd_notify;
mod serve;

use std::process::ExitCode;

pub use frame::{Frame, Kind, MAX_FRAME_LEN, VERSION};

/// The name of the serial port.
pub const PORT: &str = "lowroad";
/// Modules in the order of their names in the file [`ORDER`] in this folder.
pub const MODULES: &str = "/modules";
/// One file name a line.
pub const ORDER: &str = "order";
/// The argument of a container's first program: its host is at its standard streams.
pub const HOLD: &str = "hold-container";
/// The argument with which the first program starts itself again to serve the host.
const SERVE: &str = "serve-host";

/// Does a guest's work where this process is a guest's, and says how it ended; `None` in every other
/// process.
pub fn main() -> Option<ExitCode> {
    let mut words = std::env::args().skip(1);
    let (first, second) = (words.next(), words.next());
    let said = first.as_deref();
    let work = match nix::unistd::getpid().as_raw() {
        // A container has a first process as well, but no modules.
        1 if init::is_guest() => init::run,
        1 if said == Some(HOLD) => init::hold,
        _ if said == Some(SERVE) && second.as_deref() == Some(HOLD) => serve::run_on_streams,
        _ if said == Some(SERVE) => serve::run,
        _ => return None,
    };
    Some(match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            init::log(&error.to_string());
            ExitCode::FAILURE
        }
    })
}
