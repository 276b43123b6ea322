//! The routes and rules that the kernel of this network namespace has now, as its own programs list them.

use std::io::{self, Write};
use std::process::{Command, Output, Stdio};

use datapath::{Classify, ErrorClass, Missing};

use crate::routes::{self, RouteImport};
use crate::rules::{self, RuleSet};

/// What listings are called in messages.
pub const NAME: &str = "kernel";

/// Why there is no listing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {}", .0.what, .0.remedy)]
    Missing(Missing),
    #[error("{program}: {what}")]
    Failed { program: String, what: String },
    #[error(transparent)]
    Input(#[from] crate::Error),
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Missing(_) => ErrorClass::Missing,
            Self::Failed { .. } => ErrorClass::Failed,
            Self::Input(error) => error.class(),
        }
    }

    fn missing(&self) -> Vec<(String, Missing)> {
        match self {
            Self::Missing(missing) => vec![("kernel".to_owned(), missing.clone())],
            Self::Failed { .. } | Self::Input(_) => Vec::new(),
        }
    }
}

/// The routes of both families in the tables that `options` name, main and local by default.
///
/// # Errors
/// No `ip` program, one that fails, routes of a kind that is not known.
pub fn routes(options: &routes::Options) -> Result<RouteImport, Error> {
    let list = |family| {
        let words = ["-json", family, "route", "show", "table", "all"];
        run("ip", &words, "", "apt install iproute2")
    };
    let (v4, v6) = (list("-4")?, list("-6")?);
    Ok(routes::read_listings(NAME, [&v4, &v6], options)?)
}

/// The rules of nftables; those that `iptables-nft` makes are among them, those of older iptables not.
///
/// # Errors
/// No `nft` program, one that fails, what [`rules::read`] refuses.
pub fn rules(options: &rules::Options) -> Result<RuleSet, Error> {
    let listed = run_nft(&["-j", "list", "ruleset"], "")?;
    let options = rules::Options {
        format: Some(rules::Format::Nft),
        ..options.clone()
    };
    Ok(rules::read(NAME, listed.as_slice(), &options)?)
}

/// Whether there is an `nft` program.
///
/// # Errors
/// None.
pub fn nft() -> Result<(), Missing> {
    match Command::new("nft").arg("--version").output() {
        Ok(output) if output.status.success() => Ok(()),
        _ => Err(Missing::new("no program nft", "apt install nftables")),
    }
}

/// What `nft` prints when it is given this to read.
pub(crate) fn run_nft(words: &[&str], input: &str) -> Result<Vec<u8>, Error> {
    run("nft", words, input, "apt install nftables")
}

fn run(program: &str, words: &[&str], input: &str, remedy: &str) -> Result<Vec<u8>, Error> {
    let failed = |what: String| Error::Failed {
        program: format!("{program} {}", words.join(" ")),
        what,
    };
    match output(program, words, input) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::Missing(Missing::new(
            format!("no program {program}"),
            remedy,
        ))),
        Err(error) => Err(failed(error.to_string())),
        Ok(Output { status, stdout, .. }) if status.success() => Ok(stdout),
        Ok(Output { status, stderr, .. }) => {
            let said = String::from_utf8_lossy(&stderr);
            let line = said.lines().next().unwrap_or("nothing said");
            Err(failed(format!("{line} ({status})")))
        }
    }
}

fn output(program: &str, words: &[&str], input: &str) -> io::Result<Output> {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::piped());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut pipe) = child.stdin.take() {
        // One that stops reading says why when it ends.
        let _ = pipe.write_all(input.as_bytes());
    }
    child.wait_with_output()
}
