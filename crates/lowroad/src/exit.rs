//! How a command ends. Errors state their class (`datapath::Classify`); this module converts the class to a
//! message and an exit code, for all commands: 0 done, 1 failed, 2 bad input, 3 this machine cannot run it.

use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use anyhow::anyhow;
use datapath::{Classify, ErrorClass, Missing};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Why a command failed; printed once, by `report`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0:#}")]
    Failed(anyhow::Error),
    /// The arguments or files are wrong: a retry fails as well.
    #[error("{0}")]
    Input(String),
    /// The missing things, each with the name of what needs it.
    #[error("cannot run here")]
    Missing(Vec<(String, Missing)>),
}

impl Failure {
    /// Prints the failure and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        eprint!("{}", self.message());
        ExitCode::from(self.class().exit_code())
    }

    /// Sets the name of what needs the missing things, where their error does not know it.
    pub(crate) fn needed_by(mut self, name: &str) -> Self {
        if let Self::Missing(list) = &mut self {
            for (needed_by, _) in list.iter_mut().filter(|(name, _)| name.is_empty()) {
                name.clone_into(needed_by);
            }
        }
        self
    }

    fn message(&self) -> String {
        match self {
            Self::Failed(_) | Self::Input(_) => format!("error: {self}\n"),
            Self::Missing(list) => format!("{self}:\n{}", missing_table(list)),
        }
    }

    fn class(&self) -> ErrorClass {
        match self {
            Self::Failed(_) => ErrorClass::Failed,
            Self::Input(_) => ErrorClass::Input,
            Self::Missing(_) => ErrorClass::Missing,
        }
    }
}

impl<E: Classify + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        match error.class() {
            ErrorClass::Failed => Self::Failed(error.into()),
            ErrorClass::Input => Self::Input(error.to_string()),
            ErrorClass::Missing => Self::Missing(error.missing()),
        }
    }
}

/// Conversions of errors that mean a failure wherever a command meets them.
///
/// [`anyhow::Error`] has no class, and an error that has one may mean a failure in a given place.
pub(crate) trait OrFail<T> {
    /// A failure that prints the error and its sources.
    fn or_fail(self) -> Result<T, Failure>;

    /// As [`OrFail::or_fail`], with `what` before the error.
    fn context(self, what: impl Into<String>) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrFail<T> for Result<T, E> {
    fn or_fail(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::Failed(error.into()))
    }

    fn context(self, what: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| Failure::Failed(error.into().context(what.into())))
    }
}

/// A table with the columns name, what is missing, and remedy.
pub(crate) fn missing_table(list: &[(String, Missing)]) -> String {
    let width = |of: fn(&(String, Missing)) -> usize| list.iter().map(of).max().unwrap_or(0);
    let (names, whats) = (
        width(|(name, _)| name.len()),
        width(|(_, missing)| missing.what.len()),
    );
    list.iter()
        .map(|(name, missing)| {
            let line = format!(
                "  {name:<names$}  {:<whats$}  {}",
                missing.what, missing.remedy
            );
            format!("{}\n", line.trim_end())
        })
        .collect()
}

/// Prints a result. A reader that closes the pipe (`lowroad doctor | head`) does not cause a failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_more(text).map(drop)
}

/// Prints one result of many. Returns false once the reader has closed the pipe.
pub(crate) fn print_more(text: &str) -> Result<bool, Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::Failed(anyhow!("standard output: {error}"))),
        Ok(()) => Ok(true),
    }
}

/// Whether standard output still has a reader; a command that waits for something to print checks this.
pub(crate) fn has_reader() -> bool {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    let closed = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
    !(poll(&mut fds, PollTimeout::ZERO).is_ok() && fds.iter().any(closed))
}

#[cfg(test)]
mod tests;
