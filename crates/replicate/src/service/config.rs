//! The configuration of a service: its format, and its errors with their lines.

mod sections;

use std::ops::Range;
use std::path::{Path, PathBuf};

use control::config::{Document, Error, Http, Spanned};
use serde::Deserialize;

use super::check::Settings as Check;
use super::part::{Job, Part};
use super::{Error as Refused, loops, place};
use sections::{Apply, Capture, Publish, Receive, Section, Serve};

/// The default path of the control socket.
pub const CONTROL: &str = "/run/lowroad-replicate/replicate.sock";

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    pub control: PathBuf,
    pub http: Option<Http>,
    /// Captures first, then parts that ship and receive, then parts that apply. Within a kind, in
    /// the order of the file.
    pub parts: Vec<Part>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    replicate: Whole,
    #[serde(default)]
    capture: Vec<Spanned<Capture>>,
    #[serde(default)]
    serve: Vec<Spanned<Serve>>,
    #[serde(default)]
    publish: Vec<Spanned<Publish>>,
    #[serde(default)]
    receive: Vec<Spanned<Receive>>,
    #[serde(default)]
    apply: Vec<Spanned<Apply>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    control: Option<PathBuf>,
    http: Option<Spanned<Http>>,
}

/// A part, and its position in the file.
#[derive(Debug)]
pub(super) struct PartLocation {
    pub(super) part: Part,
    pub(super) line: Range<usize>,
    /// The positions of what it reads and what it writes.
    pub(super) reads: Range<usize>,
    pub(super) writes: Range<usize>,
}

/// Reads and checks a file. Relative paths in it are relative to the file.
///
/// # Errors
/// Returns the first error in the file.
pub fn load(path: &Path) -> Result<Config, Error> {
    check(
        &Document::read(path)?,
        path.parent().unwrap_or_else(|| Path::new("")),
    )
}

fn check(document: &Document, folder: &Path) -> Result<Config, Error> {
    let file: File = document.parse()?;
    let http = Http::check(file.replicate.http, document)?.map(|http| Http {
        token_file: folder.join(http.token_file),
        ..http
    });
    let mut parts = Vec::new();
    placed(file.capture, folder, document, &mut parts)?;
    placed(file.serve, folder, document, &mut parts)?;
    placed(file.publish, folder, document, &mut parts)?;
    placed(file.receive, folder, document, &mut parts)?;
    placed(file.apply, folder, document, &mut parts)?;
    if parts.is_empty() {
        let message = "nothing to do: list a [[capture]], [[serve]], [[publish]], [[receive]] or \
                       [[apply]]";
        return Err(document.error(0..0, message));
    }
    loops::check(&parts).map_err(|(at, message)| document.error(at, message))?;
    for placed in &parts {
        there(placed, &parts).map_err(|(at, message)| document.error(at, message))?;
    }
    Ok(Config {
        control: file.replicate.control.unwrap_or_else(|| CONTROL.into()),
        http,
        parts: parts.into_iter().map(|placed| placed.part).collect(),
    })
}

/// The parts of a kind, each with its name.
fn placed<S: Section>(
    sections: Vec<Spanned<S>>,
    folder: &Path,
    document: &Document,
    to: &mut Vec<PartLocation>,
) -> Result<(), Error> {
    for (index, section) in sections.into_iter().enumerate() {
        let line = section.span();
        let section = section.into_inner();
        let (name, at) = match section.name() {
            Some(name) => (name.get_ref().clone(), name.span()),
            None => (format!("{}-{}", S::KIND, index + 1), line.clone()),
        };
        if name.is_empty() || to.iter().any(|other| other.part.name == name) {
            let message = format!("name \"{name}\": another part has it; give each its own");
            return Err(document.error(at, message));
        }
        if let Some((at, message)) = section.complaint() {
            return Err(document.error(at, message));
        }
        let (reads, writes) = section.spans();
        let job = section.job(folder);
        to.push(PartLocation {
            part: Part { name, job },
            line,
            reads,
            writes,
        });
    }
    Ok(())
}

/// Checks that what a part needs to start exists: folders, certificates, keys.
fn there(placed: &PartLocation, all: &[PartLocation]) -> Result<(), (Range<usize>, String)> {
    let job = &placed.part.job;
    let written = |log: &Path| {
        let writes = |other: &&PartLocation| {
            other.part.kind().writes_log() && place(other.part.job.log()) == place(log)
        };
        all.iter().find(writes).is_some()
    };
    let log = job.log();
    if !placed.part.kind().writes_log() && !written(log) && !log.is_dir() {
        let log = log.display();
        let message =
            format!("log {log}: there is no such folder, and no part here that writes it");
        return Err((placed.reads.clone(), message));
    }
    let checked = match job {
        Job::Capture(settings) if !settings.tree.is_dir() => {
            let message = format!(
                "tree {}: there is no such directory",
                settings.tree.display()
            );
            return Err((placed.reads.clone(), message));
        }
        Job::Capture(settings) => settings.agree(),
        Job::Apply(settings) => Check::check(settings.check),
        Job::Serve(settings) => settings.check(),
        Job::Publish(settings) => settings.check(),
        Job::Receive(settings) => settings.check(),
    };
    checked.map_err(|error| {
        let message = match error {
            // With the names of the fields in the file.
            Refused::Needs(needs) => format!("{} needs cert, key and server_ca", needs.from),
            Refused::Input(what) => what.replace("--cert and --key", "cert and key"),
            other => other.to_string(),
        };
        (placed.line.clone(), message)
    })
}

#[cfg(test)]
mod tests;
