//! `lowroad replicate promote`: makes a replica the source.

use std::path::PathBuf;

use clap::Args;
use process::shutdown::Shutdown;
use replicate::apply::Gate;
use replicate::service::promote::{Losses, Promotion, Settings};
use serde_json::{Value, json};
use units::Timestamp;

use super::apply::SignalWatch;
use crate::exit::{self, Failure, OrFail as _};

#[derive(Debug, Args)]
pub(super) struct Promote {
    /// Folder of the log that the replica is of
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Folder of the replica, as in `apply --to`
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Show what would be lost, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Refuse to promote if the source is known to have written more than the replica would have
    #[arg(long)]
    no_loss: bool,
    /// Apply epochs that remove more than half of the replica's files, and more than 100
    #[arg(long)]
    allow_delete: bool,
}

impl Promote {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().context("signals")?;
        let gate = Gate::closable();
        let signals = SignalWatch::watch(shutdown, &gate);
        let settings = Settings {
            log: self.folder.clone(),
            replica: self.to.clone(),
            allow_delete: self.allow_delete,
            no_loss: self.no_loss,
            gate,
        };
        let promotion = match self.dry_run {
            true => settings.plan(),
            false => settings.run(),
        };
        signals.over();
        let promotion = promotion?;
        exit::print(&match json {
            true => format!("{}\n", object(&promotion, self.dry_run)),
            false => text(&promotion, self.dry_run),
        })
    }
}

/// The command to run next, word by word.
fn capture(promotion: &Promotion) -> [String; 7] {
    let (tree, log) = (promotion.tree.display(), promotion.log.display());
    let words = ["lowroad", "replicate", "capture", "--tree"].map(str::to_owned);
    let [a, b, c, d] = words;
    [
        a,
        b,
        c,
        d,
        tree.to_string(),
        "--to".to_owned(),
        log.to_string(),
    ]
}

fn object(promotion: &Promotion, dry_run: bool) -> Value {
    let losses = &promotion.losses;
    let upstream = losses.upstream.as_ref();
    let what = match (promotion.already, dry_run) {
        (true, _) => "already",
        (false, true) => "would",
        (false, false) => "promoted",
    };
    let stale = promotion.stale.as_ref();
    json!({ what: {
        "log": promotion.log.display().to_string(),
        "tree": promotion.tree.display().to_string(),
        "term": promotion.term,
        "epoch": losses.epoch,
        "record": losses.record,
        "at": Timestamp(losses.epoch_ns).to_string(),
        "at_ns": losses.epoch_ns,
        "applied": losses.applied,
        "source": upstream.map(|upstream| json!({
            "from": upstream.from,
            "epoch": upstream.epoch,
            "record": upstream.record,
            "pending_messages": upstream.pending,
            "heard_ns": upstream.heard_ns,
        })),
        "missing": {
            "epochs": losses.missing_epochs(),
            "records": losses.missing_records(),
            "ms": span_ms(losses),
        },
        "unfinished_records": losses.unfinished,
        "unknown_since": Timestamp(losses.known_until_ns()).to_string(),
        "unknown_since_ns": losses.known_until_ns(),
        "stale": stale.map(|stale| json!({ "files": stale.files, "listed": stale.display_paths() })),
        "next": capture(promotion),
    }})
}

/// The time span of what is known to be missing.
fn span_ms(losses: &Losses) -> u64 {
    let until = losses.missing_until_ns().unwrap_or(losses.epoch_ns);
    until.saturating_sub(losses.epoch_ns) / 1_000_000
}

fn text(promotion: &Promotion, dry_run: bool) -> String {
    let losses = &promotion.losses;
    let (tree, log, term) = (
        promotion.tree.display(),
        promotion.log.display(),
        promotion.term,
    );
    let (epoch, at) = (losses.epoch, Timestamp(losses.epoch_ns));
    let next = capture(promotion).map(|word| quoted(&word)).join(" ");
    if promotion.already {
        return format!("already promoted  tree {tree}  log {log}  term {term}\nnext  {next}\n");
    }
    let what = if dry_run { "would promote" } else { "promoted" };
    let mut text = format!(
        "{what}  tree {tree}  log {log}  term {term}  epoch {epoch}  at {at}  applied {} epochs\n",
        losses.applied
    );
    match &losses.upstream {
        None => text += "source  writes this log itself\n",
        Some(upstream) => {
            let known = |number: Option<u64>| {
                number.map_or_else(|| "unknown".to_owned(), |number| number.to_string())
            };
            let (from, heard) = (&upstream.from, Timestamp(upstream.heard_ns));
            text += &format!(
                "source  {from}  epoch {}  record {}  heard at {heard}\n",
                known(upstream.epoch),
                known(upstream.record)
            );
        }
    }
    text += &missing(losses);
    if let Some(stale) = promotion.stale.as_ref().filter(|stale| stale.files > 0) {
        text += &format!("{}\n", stale.phrase().trim_start());
    }
    let unknown = Timestamp(losses.known_until_ns());
    text + &format!("unknown  changes of the source after {unknown}\nnext  {next}\n")
}

fn missing(losses: &Losses) -> String {
    let ms = span_ms(losses);
    let unfinished = match losses.unfinished {
        0 => String::new(),
        count => format!("  of these received and in no epoch {count} records"),
    };
    match (losses.missing_epochs(), losses.missing_records()) {
        (Some(0), Some(0)) => "missing  nothing known\n".to_owned(),
        (Some(epochs), Some(records)) => {
            format!("missing  {epochs} epochs  {records} records  {ms} ms{unfinished}\n")
        }
        _ => format!(
            "missing  unknown epochs  {} messages not received{unfinished}\n",
            losses.pending()
        ),
    }
}

/// The word, quoted for a shell.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-:@%+=,".contains(&byte);
    match word.bytes().all(plain) && !word.is_empty() {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}
