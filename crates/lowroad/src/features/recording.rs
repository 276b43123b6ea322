//! The capture of a run's packets: the arguments, and the outcome.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use features::recording::{Recorder, Recording, RecordingCounters};
use features::sink::{Mode, Series};
use serde_json::{Value, json};
use units::Size;

use super::output::{self, Output};
use crate::exit::Failure;

#[derive(Debug, Args)]
#[command(next_help_heading = "Packets to a capture")]
pub(super) struct PcapOut {
    /// Write the packets of the rows to a pcap file as well, or - for standard output
    #[arg(long, value_name = "FILE")]
    pcap_out: Option<PathBuf>,
    /// Start another pcap file, NAME-TIME-N, at about this size
    #[arg(long, value_name = "SIZE", requires = "pcap_out")]
    pcap_out_size: Option<Size>,
    /// Keep only the latest N of these files
    #[arg(long, value_name = "N", requires = "pcap_out_size", value_parser = clap::value_parser!(u32).range(2..))]
    pcap_out_files: Option<u32>,
}

/// A capture that is being written.
#[derive(Debug)]
pub(super) struct CaptureWriter {
    path: PathBuf,
    recording: Recording,
}

/// The result of writing a capture.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    recorded: Option<RecordingCounters>,
    failed: Option<String>,
}

impl PcapOut {
    /// Opens the capture; refuses to write it where the rows go.
    pub(super) fn start(
        &self,
        mode: Mode,
        rows: &Output,
    ) -> Result<Option<CaptureWriter>, Failure> {
        let Some(path) = &self.pcap_out else {
            return Ok(None);
        };
        if rows.goes_to(path) {
            let what = "--pcap-out and --out are the same: rows and packets need a place each";
            return Err(Failure::Input(what.to_owned()));
        }
        if rows.is_anonymized() {
            let what = "--anonymize is for rows, and --pcap-out would write packets with their addresses: leave one of them out";
            return Err(Failure::Input(what.to_owned()));
        }
        if rows.has_labels(path) {
            let what = "has the labels, and cannot be --pcap-out as well";
            return Err(Failure::Input(format!("{} {what}", path.display())));
        }
        if path.extension().is_some_and(|ending| ending == "pcapng") {
            let what = "what is written is pcap, not pcapng: end the name in .pcap";
            return Err(Failure::Input(format!("{}: {what}", path.display())));
        }
        let series = Series {
            size: self.pcap_out_size.map(|Size(bytes)| bytes),
            files: self.pcap_out_files,
        };
        let recording = Recording::start(path, series, mode);
        Ok(Some(CaptureWriter {
            path: path.clone(),
            recording: recording?,
        }))
    }

    pub(super) fn is_asked(&self) -> bool {
        self.pcap_out.is_some()
    }

    /// Whether this is where packets go.
    pub(super) fn goes_to(&self, path: &Path) -> bool {
        self.pcap_out
            .as_deref()
            .is_some_and(|out| output::is_same(out, path))
    }

    /// Whether packets go to a file in this directory.
    pub(super) fn is_in(&self, directory: &Path) -> bool {
        let parent = self.pcap_out.as_deref().and_then(Path::parent);
        parent.is_some_and(|parent| {
            let parent = match parent.as_os_str().is_empty() {
                true => Path::new("."),
                false => parent,
            };
            output::is_same(parent, directory)
        })
    }

    /// Prints an account where it does not mix with packets or rows.
    pub(super) fn report(&self, rows: &Output, text: &str) -> Result<(), Failure> {
        if self.goes_to(Path::new("-")) {
            eprint!("{text}");
            return Ok(());
        }
        rows.report(text)
    }
}

impl CaptureWriter {
    pub(super) fn recorder(&self) -> Recorder {
        self.recording.recorder()
    }

    pub(super) fn recorded(&self) -> RecordingCounters {
        self.recording.recorded()
    }

    /// Completes the capture, once nobody records any more.
    pub(super) fn finish(self) -> Outcome {
        let (recorded, finished) = self.recording.finish();
        let path = self.path.display();
        let lost = recorded.lost;
        let failed = match finished {
            Err(error) if error.is_closed_pipe() => None,
            Err(error) => Some(format!("{error}; {lost} packets are missing from {path}")),
            Ok(()) if lost > 0 => Some(format!(
                "{path}: {lost} packets are missing, which came faster than they were written"
            )),
            Ok(()) => None,
        };
        Outcome {
            recorded: Some(recorded),
            failed,
        }
    }
}

impl Outcome {
    /// What is added to a run's account.
    pub(super) fn json(&self) -> Value {
        self.recorded.map_or(
            Value::Null,
            |recorded| json!({"packets": recorded.packets, "lost": recorded.lost}),
        )
    }

    /// What is added to a run's line.
    pub(super) fn words(&self) -> String {
        self.recorded.map_or_else(String::new, |recorded| {
            format!(", {} packets recorded", recorded.packets)
        })
    }

    /// That packets are missing is a failure.
    pub(super) fn check(self) -> Result<(), Failure> {
        match self.failed {
            Some(why) => Err(Failure::Failed(anyhow!(why))),
            None => Ok(()),
        }
    }
}
