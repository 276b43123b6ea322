//! A virtual machine's first program: it sets the guest up and runs what its host asks for, over a
//! serial port that nobody else can reach. Which programs those are is the host's decision.
//!
//! The one program of an initial file system calls [`main`] before all else.

mod frame;
mod init;
mod serve;

use std::process::ExitCode;

pub use frame::{Frame, Kind, LARGEST, VERSION};

/// The name of the serial port.
pub const PORT: &str = "lowroad";
/// Modules in the order of their names in the file [`ORDER`] in this folder.
pub const MODULES: &str = "/modules";
/// One file name a line.
pub const ORDER: &str = "order";
/// What the first program calls the part of itself that serves the host.
const SERVE: &str = "serve-host";

/// Does a guest's work where this process is a guest's, and says how it ended; `None` in every other
/// process.
pub fn main() -> Option<ExitCode> {
    let serves = std::env::args().nth(1).is_some_and(|word| word == SERVE);
    let work = match (nix::unistd::getpid().as_raw(), serves) {
        // A container has a first process as well, and nobody who set it up has put modules there.
        (1, _) if init::is_guest() => init::run,
        (_, true) => serve::run,
        _ => return None,
    };
    Some(match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            init::say(&error.to_string());
            ExitCode::FAILURE
        }
    })
}
