//! `lowroad replicate epochs`: lists the epochs of a log, one per line.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use replicate::epochs::{self, Epoch};
use replicate::log;
use serde_json::json;
use units::Timestamp;

use crate::exit::{self, Failure};

#[derive(Debug, Args)]
pub(super) struct Epochs {
    /// Folder of the log
    #[arg(value_name = "LOG")]
    folder: PathBuf,
    /// List the epochs that are not earlier than this time, as in 2026-11-28T10:15:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<Timestamp>,
    /// List the epochs that are not later than this time
    #[arg(long, value_name = "TIME")]
    until: Option<Timestamp>,
    /// List only the last epochs of those
    #[arg(long, value_name = "N")]
    last: Option<usize>,
}

impl Epochs {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let mut printed = Ok(true);
        let (mut any, mut last) = (false, VecDeque::new());
        epochs::each(&self.folder, &mut |epoch| {
            any = true;
            if !self.wants(epoch) {
                return ControlFlow::Continue(());
            }
            match self.last {
                None => printed = exit::print_more(&line(epoch, json)),
                Some(most) => {
                    last.push_back(epoch.clone());
                    if last.len() > most {
                        last.pop_front();
                    }
                }
            }
            match printed {
                Ok(true) => ControlFlow::Continue(()),
                // The output was closed, as by `| head`.
                _ => ControlFlow::Break(()),
            }
        })?;
        if !any {
            return Err(log::Error::NoEpochs(self.folder.clone()).into());
        }
        let text: String = last.iter().map(|epoch| line(epoch, json)).collect();
        printed.and_then(|_| exit::print(&text))
    }

    fn wants(&self, epoch: &Epoch) -> bool {
        self.since.is_none_or(|since| epoch.at >= since)
            && self.until.is_none_or(|until| epoch.at <= until)
    }
}

fn line(epoch: &Epoch, json: bool) -> String {
    let Epoch {
        number,
        record,
        at,
        files,
        bytes,
        changed_files,
        changed_bytes,
        stale,
        ..
    } = epoch;
    let cause = epoch.cause.map(epochs::Cause::name);
    if json {
        let line = json!({
            "epoch": number,
            "record": record,
            "at": at.to_string(),
            "at_ns": at.0,
            "cause": cause,
            "files": files,
            "bytes": bytes,
            "changed_files": changed_files,
            "changed_bytes": changed_bytes,
            "stale": { "files": stale.files, "listed": stale.display_paths() },
        });
        return format!("{line}\n");
    }
    let cause = cause.unwrap_or("unknown");
    format!(
        "epoch {number}  at {at}  cause {cause}  files {files}  bytes {bytes}  changed {changed_files} files, \
         {changed_bytes} bytes{}\n",
        stale.phrase()
    )
}
