//! `lowroad features score`: the rows of a capture or a file, with the scores of a model.

use std::path::{Path, PathBuf};

use clap::Args;
use features::pcap::Run;
use features::row_file::SavedRows;
use features::sink::{self, Mode};
use process::shutdown::Shutdown;
use serde_json::json;

use super::account;
use super::extraction::Extraction;
use super::metrics::MetricsServer;
use super::model::{load_classifier, scorer};
use super::output::Output;
use super::pcap;
use crate::exit::{Failure, OrFail as _};

#[derive(Debug, Args)]
pub(super) struct Score {
    /// Captures as for `lowroad features pcap`, or rows in one .parquet or .arrow file
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// Score with this model: a manifest (TOML) of trees or ONNX, or the output of
    /// `lowroad features model compile`
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    extraction: Extraction,
}

impl Score {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        if let Some(rows) = self
            .inputs
            .iter()
            .find(|input| SavedRows::is_named_so(input))
        {
            if self.inputs.len() > 1 {
                let what = "is a file of rows, of which one is scored at a time";
                return Err(Failure::Input(format!("{} {what}", rows.display())));
            }
            return self.rows(rows, json);
        }
        let files = pcap::capture_files(&self.inputs)?;
        let model = load_classifier(&self.model)?;
        let schema = self.output.schema_or(model.schema())?;
        let run = Run {
            options: self.extraction.options(schema, None)?,
            schema,
        };
        let scorer = scorer(model, &run.arrow_schema())?;
        let reading = pcap::Reading {
            files: &files,
            follow: None,
            run: &run,
            output: &self.output,
            pcap_out: None,
            metrics: MetricsServer::default(),
            threads: features::pcap::threads(None, &files),
        };
        reading.read(Some(scorer), json)
    }

    fn rows(&self, input: &Path, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().context("signals")?;
        let rows = SavedRows::open(input).map_err(Failure::Input)?;
        let scorer = scorer(load_classifier(&self.model)?, rows.schema())?;
        let (mut sink, unscored) =
            self.output
                .create_scored(rows.schema(), Mode::Whole, Some(scorer))?;
        let mut written = 0;
        for batch in rows {
            let batch =
                batch.map_err(|error| Failure::Input(format!("{}: {error}", input.display())))?;
            let taken = sink.write(&batch);
            if !goes_on(taken)? || shutdown.requested() {
                break;
            }
            written += batch.num_rows();
        }
        goes_on(sink.finish())?;
        let lost = usize::try_from(sink.lost()).unwrap_or(usize::MAX);
        let written = written.saturating_sub(lost);
        self.output.report(&if json {
            format!(
                "{:#}\n",
                json!({"rows": written, "unscored": unscored.rows()})
            )
        } else {
            format!(
                "{written} rows\n{}",
                account::without_score(Some(unscored.rows()))
            )
        })
    }
}

/// Whether the output takes more: a reader of standard output that has closed it is no failure.
fn goes_on(result: Result<(), sink::Error>) -> Result<bool, Failure> {
    match result {
        Err(error) if error.is_closed_pipe() => Ok(false),
        result => result.or_fail().map(|()| true),
    }
}
