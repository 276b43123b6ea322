//! How a command ends: 0 done, 1 failed, 2 bad input, 3 this machine cannot run it.

use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use anyhow::anyhow;
use datapath::Missing;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Why a command did not do what it was asked; printed once, by `report`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0:#}")]
    Failed(#[from] anyhow::Error),
    /// Arguments or files that no retry can make work.
    #[error("{0}")]
    Input(String),
    /// What is missing, each with the name of what needs it.
    #[error("cannot run here")]
    Missing(Vec<(String, Missing)>),
}

impl Failure {
    /// Prints the failure and says the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::Failed(_) | Self::Input(_) => eprintln!("error: {self}"),
            Self::Missing(list) => eprint!("{self}:\n{}", missing_table(list)),
        }
        ExitCode::from(match self {
            Self::Failed(_) => 1,
            Self::Input(_) => 2,
            Self::Missing(_) => 3,
        })
    }
}

impl From<datapath::Error> for Failure {
    fn from(error: datapath::Error) -> Self {
        match error {
            datapath::Error::Missing(missing) => Self::Missing(vec![(String::new(), missing)]),
            datapath::Error::Plan(what) => Self::Input(what),
            failed @ datapath::Error::Failed { .. } => Self::Failed(failed.into()),
        }
    }
}

/// Aligned columns: name, what is missing, what to do.
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

/// Prints a result. A reader that has seen enough (`lowroad doctor | head`) is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_more(text).map(drop)
}

/// Prints one result of many; false once nobody reads them any more.
pub(crate) fn print_more(text: &str) -> Result<bool, Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::Failed(anyhow!("standard output: {error}"))),
        Ok(()) => Ok(true),
    }
}

/// Whether somebody could read what is printed: whoever waits for something to print asks now and then.
pub(crate) fn is_read() -> bool {
    let stdout = io::stdout();
    let mut asked = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    let gone = |asked: &PollFd<'_>| asked.any().unwrap_or(false);
    !(poll(&mut asked, PollTimeout::ZERO).is_ok() && asked.iter().any(gone))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_lines_up() {
        let list = [
            (
                "xdp".to_owned(),
                Missing::new("needs CAP_BPF", "run with sudo"),
            ),
            ("af-xdp".to_owned(), Missing::new("no driver", "none")),
        ];
        assert_eq!(
            missing_table(&list),
            "  xdp     needs CAP_BPF  run with sudo\n  af-xdp  no driver      none\n"
        );
    }
}
