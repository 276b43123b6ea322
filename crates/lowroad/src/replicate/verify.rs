//! `lowroad replicate verify` and `lowroad replicate hash`: compare a folder with the tree in a
//! log, or hash either.
#![expect(clippy::print_stderr, reason = "the progress line")]

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::{ArgGroup, Args};
use process::shutdown::Shutdown;
use replicate::verify::{self, Difference, Progress, Scope, Verdict, What};
use serde_json::{Value, json};
use units::Span;

use super::rebuild::{self, Sides};
use crate::exit::{self, Failure, OrFail as _};

/// Interval between changes of the progress line.
const REFRESH: Duration = Duration::from_millis(500);
/// Longer values are truncated in the text. JSON has them in full.
const MAX_VALUE: usize = 200;

#[derive(Debug, Args)]
pub(super) struct Verify {
    /// Folder of the log
    #[arg(value_name = "LOG")]
    folder: PathBuf,
    /// Compare this folder: a replica's tree, a restored tree, or the source
    #[arg(long, value_name = "DIR", required_unless_present = "rebuild")]
    against: Option<PathBuf>,
    /// Compare the tree of this epoch [default: the last one]
    #[arg(long, value_name = "N")]
    epoch: Option<u64>,
    /// Compare a source that a capture follows: retry files that change, for at most this long
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["epoch", "rebuild"])]
    live: Option<Span>,
    /// Rebuild the tree from the log alone, as `restore` does, in a folder that is removed afterwards, and
    /// compare it with the log, and with the folder of `--against` if there is one
    #[arg(long)]
    rebuild: bool,
    /// Rebuild the tree in this folder [default: beside the log]
    #[arg(long = "in", value_name = "DIR", requires = "rebuild")]
    within: Option<PathBuf>,
    #[command(flatten)]
    scope: ScopeArguments,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true)))]
pub(super) struct Hash {
    /// Hash the tree in this log
    #[arg(long, value_name = "DIR", group = "what")]
    log: Option<PathBuf>,
    /// Hash the tree in this folder
    #[arg(long, value_name = "DIR", group = "what")]
    tree: Option<PathBuf>,
    /// Leave out the paths that this log leaves out of its tree
    #[arg(long, value_name = "LOG", requires = "tree")]
    like: Option<PathBuf>,
    /// Hash the log's tree of this epoch [default: the last one]
    #[arg(long, value_name = "N", requires = "log")]
    epoch: Option<u64>,
    #[command(flatten)]
    scope: ScopeArguments,
}

#[derive(Clone, Copy, Debug, Args)]
struct ScopeArguments {
    /// Ignore owners and groups, which only root can change
    #[arg(long)]
    no_owners: bool,
    /// Include what `restore --privileged` restores: device nodes, set-user-ID and set-group-ID bits, and
    /// extended attributes other than `user.`
    #[arg(long)]
    privileged: bool,
}

impl From<ScopeArguments> for Scope {
    fn from(arguments: ScopeArguments) -> Self {
        Self {
            owners: !arguments.no_owners,
            privileged: arguments.privileged,
        }
    }
}

impl Verify {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().context("signals")?;
        let mut line = Line::new(&shutdown);
        let (log, scope) = (&self.folder, self.scope.into());
        if self.rebuild {
            let rebuild = rebuild::Rebuild {
                log,
                epoch: self.epoch,
                within: self.within.as_deref(),
                against: self.against.as_deref(),
                scope,
            };
            return rebuild.run(&mut line, json);
        }
        let Some(against) = &self.against else {
            return Err(Failure::Input("name --against or --rebuild".to_owned()));
        };
        let mut watch = |progress: &Progress| line.show("", progress);
        let verdict = match self.live {
            Some(Span(patience)) => verify::verify_live(log, against, scope, patience, &mut watch),
            None => verify::verify(log, self.epoch, against, scope, &mut watch),
        };
        line.clear();
        let verdict = verdict?;
        if json {
            exit::print(&format!("{}\n", object(&verdict, Sides::LOG)))?;
        } else {
            exit::print(&(text(&verdict, Sides::LOG) + "\n"))?;
        }
        judge(&[&verdict])
    }
}

impl Hash {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().context("signals")?;
        let mut line = Line::new(&shutdown);
        let scope = self.scope.into();
        let mut watch = |progress: &Progress| line.show("", progress);
        let like = self.like.as_deref().map(verify::patterns).transpose();
        let patterns = like?.unwrap_or_default();
        let summary = match (&self.log, &self.tree) {
            (Some(log), _) => verify::hash_log(log, self.epoch, scope, &mut watch),
            (None, Some(tree)) => verify::hash_folder(tree, &patterns, scope, &mut watch),
            (None, None) => return Err(Failure::Input("name --log or --tree".to_owned())),
        };
        line.clear();
        let summary = summary?;
        let hash = summary.hash.to_string();
        if !json {
            return exit::print(&format!("{hash}\n"));
        }
        let value = json!({
            "hash": hash, "epoch": summary.epoch, "names": summary.names, "bytes": summary.bytes,
        });
        exit::print(&format!("{value}\n"))
    }
}

/// The progress line on a terminal, and the request to end.
pub(super) struct Line<'a> {
    shutdown: &'a Shutdown,
    refreshed: Instant,
    terminal: bool,
}

impl<'a> Line<'a> {
    fn new(shutdown: &'a Shutdown) -> Self {
        Self {
            shutdown,
            refreshed: Instant::now(),
            terminal: io::stderr().is_terminal(),
        }
    }

    /// `doing` comes before the counters.
    pub(super) fn show(&mut self, doing: &str, progress: &Progress) -> ControlFlow<()> {
        if self.terminal && self.refreshed.elapsed() >= REFRESH {
            self.refreshed = Instant::now();
            let Progress {
                names,
                bytes,
                differences,
            } = progress;
            eprint!("\r\x1b[K{doing}names {names}  bytes {bytes}  differences {differences}");
        }
        match self.shutdown.requested() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    pub(super) fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}

/// A difference is a failure, and so is an undecided name.
pub(super) fn judge(verdicts: &[&Verdict]) -> Result<(), Failure> {
    if verdicts.iter().all(|verdict| verdict.equal()) {
        return Ok(());
    }
    let sum = |count: fn(&Verdict) -> u64| verdicts.iter().map(|verdict| count(verdict)).sum();
    let differing: u64 = sum(|verdict| verdict.differing);
    let undecided: u64 = sum(|verdict| verdict.undecided_count);
    let mut what = match differing {
        1 => "1 difference".to_owned(),
        count => format!("{count} differences"),
    };
    if undecided > 0 {
        what += &format!(", {undecided} undecided");
    }
    if verdicts.iter().any(|verdict| verdict.partial) {
        what += " in what was compared: ended before all was";
    }
    let mut all = verdicts.iter().flat_map(|verdict| &verdict.differences);
    if differing > 0 && all.all(|one| one.what == What::Owner) {
        what += "; all are owners: `--no-owners` compares the rest alone";
    }
    Err(Failure::Failed(anyhow!(what)))
}

/// All lines without the final newline.
pub(super) fn text(verdict: &Verdict, sides: Sides) -> String {
    let mut text = String::new();
    for one in &verdict.differences {
        let path = one.path.as_os_str().as_encoded_bytes().escape_ascii();
        let path = format!("./{path}");
        text += &format!("{:<20} {path}{}\n", one.what.name(), detail(one, sides));
    }
    let listed = verdict.differences.len() as u64;
    if verdict.differing > listed {
        text += &format!("... and {} more\n", verdict.differing - listed);
    }
    for one in &verdict.undecided {
        let path = one.path.as_os_str().as_encoded_bytes().escape_ascii();
        text += &format!("{:<20} ./{path}  {}\n", "undecided", one.why);
    }
    let word = match (verdict.equal(), verdict.partial) {
        (true, _) => "equal",
        (false, true) => "partial",
        (false, false) if verdict.differing == 0 => "undecided",
        (false, false) => "different",
    };
    text += &format!(
        "{word}  epoch {}  names {}  bytes {}  differences {}  undecided {}",
        verdict.epoch, verdict.names, verdict.bytes, verdict.differing, verdict.undecided_count
    );
    for (what, count) in [
        ("other holes", verdict.holes),
        ("mounted", verdict.mounted),
        ("left out", verdict.left_out),
    ] {
        if count > 0 {
            text += &format!("  {what} {count}");
        }
    }
    text += &verdict.stale.phrase();
    if let Some((log, _)) = verdict.hashes.filter(|(log, folder)| log == folder) {
        text += &format!("  hash {log}");
    }
    text
}

fn detail(one: &Difference, Sides(here, there): Sides) -> String {
    let cut = |text: &str| match text.char_indices().nth(MAX_VALUE) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    };
    if !one.ranges.is_empty() {
        let ranges = one.ranges.iter().take(10);
        let ranges: Vec<String> = ranges
            .map(|(offset, length)| format!("{offset}+{length}"))
            .collect();
        let more = if one.ranges.len() > 10 { " ..." } else { "" };
        return format!("  {}{more}", ranges.join(" "));
    }
    if one.log.is_empty() && one.folder.is_empty() {
        return String::new();
    }
    format!("  {here}: {}  {there}: {}", cut(&one.log), cut(&one.folder))
}

pub(super) fn object(verdict: &Verdict, Sides(here, there): Sides) -> Value {
    let path = |path: &std::path::Path| {
        let bytes = path.as_os_str().as_encoded_bytes();
        bytes.escape_ascii().to_string()
    };
    let differences: Vec<Value> = verdict
        .differences
        .iter()
        .map(|one| {
            json!({
                "path": path(&one.path), "what": one.what.name(), here: one.log,
                there: one.folder, "ranges": one.ranges,
            })
        })
        .collect();
    let undecided: Vec<Value> = verdict
        .undecided
        .iter()
        .map(|one| json!({ "path": path(&one.path), "why": one.why }))
        .collect();
    let hash = |side: &str| format!("{side}_hash");
    json!({
        "equal": verdict.equal(),
        "partial": verdict.partial,
        "epoch": verdict.epoch,
        "names": verdict.names,
        "bytes": verdict.bytes,
        "differences": verdict.differing,
        "undecided": verdict.undecided_count,
        "files_with_other_holes": verdict.holes,
        "mounted": verdict.mounted,
        "left_out": verdict.left_out,
        "stale_files": verdict.stale.files,
        "stale": verdict.stale.display_paths(),
        hash(here): verdict.hashes.map(|(log, _)| log.to_string()),
        hash(there): verdict.hashes.map(|(_, folder)| folder.to_string()),
        "listed": differences,
        "listed_undecided": undecided,
    })
}
