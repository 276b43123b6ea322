//! `lowroad replicate coverage`: tests how a capture sees each operation on the tree's own file
//! system.

use std::path::{Path, PathBuf};

use clap::Args;
use replicate::coverage::{self, Report, Row, Verdict};
use serde_json::json;

use crate::exit::{self, Failure};

#[derive(Debug, Args)]
pub(super) struct Coverage {
    /// Directory to try in; a hidden folder is created in it, and removed afterwards
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Coverage {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let report = coverage::probe(&self.folder)?;
        exit::print(&if json {
            object(&self.folder, &report)
        } else {
            table(&report)
        })
    }
}

fn table(report: &Report) -> String {
    let lines = report.rows.iter().map(|row| {
        let why = row.cause.clone().unwrap_or_else(|| row.hooks.join(", "));
        format!("{:<20} {:<12} {why}\n", row.operation, word(row.verdict))
    });
    let file_system = report.file_system;
    format!("{:<20} {file_system}\n{}", "", lines.collect::<String>())
}

fn object(folder: &Path, report: &Report) -> String {
    let operations: Vec<_> = report.rows.iter().map(row).collect();
    let object = json!({
        "directory": folder.to_string_lossy(),
        "file_system": report.file_system,
        "operations": operations,
    });
    format!("{object}\n")
}

fn row(row: &Row) -> serde_json::Value {
    json!({
        "operation": row.operation,
        "verdict": word(row.verdict),
        "hooks": row.hooks,
        "cause": row.cause,
    })
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Exact => "EXACT",
        Verdict::Suspect => "SUSPECT",
        Verdict::Dirty => "DIRTY",
        Verdict::Invisible => "INVISIBLE",
        Verdict::Unsupported => "UNSUPPORTED",
    }
}
