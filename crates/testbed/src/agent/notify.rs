//! Where a program behind an agent says that it is ready (sd_notify protocol).

use std::sync::atomic::{AtomicU32, Ordering};

use crate::process::program::Program;
use crate::process::sd_notify::NOTIFY_SOCKET;

/// An abstract socket of the agent, which all programs in the agent's network can reach.
#[derive(Debug)]
pub(crate) struct NotifyAddress {
    pub(super) name: String,
    /// Whether the agent gives the variable to the program that it starts. Otherwise that program gives it to the one
    /// that it runs.
    pub(super) in_environment: bool,
}

impl NotifyAddress {
    /// An address for a program that notifies when it is ready; none for others.
    pub(crate) fn new(program: &Program, in_environment: bool) -> Option<Self> {
        static PROGRAMS: AtomicU32 = AtomicU32::new(0);
        program.notifies_ready().then(|| {
            let (process, number) = (std::process::id(), PROGRAMS.fetch_add(1, Ordering::Relaxed));
            Self {
                name: format!("lowroad-ready-{process}-{number}"),
                in_environment,
            }
        })
    }

    /// The environment variable that gives a program the address, as `NAME=value`.
    pub(crate) fn variable(&self) -> String {
        format!("{NOTIFY_SOCKET}=@{}", self.name)
    }
}
