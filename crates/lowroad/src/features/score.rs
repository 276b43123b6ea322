//! `lowroad features score`: a capture, or rows that were written before, with what a model says of each.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use control::shutdown::Shutdown;
use features::pcap::Run;
use features::saved::SavedRows;
use features::sink::{Mode, SchemaRef, Scorer};
use inference::Classifier;
use serde_json::json;

use super::extraction::Extraction;
use super::metrics::Served;
use super::model;
use super::output::Output;
use super::pcap;
use crate::exit::Failure;

#[derive(Debug, Args)]
pub(super) struct Score {
    /// A capture, - for one on standard input, or rows in a .parquet or .arrow file
    input: PathBuf,
    /// A manifest (TOML) of trees or of ONNX, or what `lowroad features model compile` wrote
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    extraction: Extraction,
}

impl Score {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        if SavedRows::is_named_so(&self.input) {
            return self.rows(json);
        }
        let model = asked(&self.model)?;
        let schema = self.output.schema_or(model.schema())?;
        let run = Run {
            options: self.extraction.options(schema, None)?,
            schema,
        };
        let scorer = scorer(model, &run.arrow_schema())?;
        let reading = pcap::Reading {
            file: &self.input,
            run: &run,
            output: &self.output,
            pcap_out: None,
            metrics: Served::default(),
            threads: features::pcap::threads(None, &self.input),
        };
        reading.read(Some(scorer), json)
    }

    fn rows(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().map_err(|error| anyhow!("signals: {error}"))?;
        let rows = SavedRows::open(&self.input).map_err(Failure::Input)?;
        let scorer = scorer(asked(&self.model)?, rows.schema())?;
        let (mut sink, unscored) =
            self.output
                .create_scored(rows.schema(), Mode::Whole, Some(scorer))?;
        let mut written = 0;
        for batch in rows {
            let batch = batch
                .map_err(|error| Failure::Input(format!("{}: {error}", self.input.display())))?;
            written += batch.num_rows();
            sink.write(&batch).map_err(|error| anyhow!(error))?;
            if shutdown.requested() {
                break;
            }
        }
        sink.finish().map_err(|error| anyhow!(error))?;
        self.output.report(&if json {
            format!(
                "{:#}\n",
                json!({"rows": written, "unscored": unscored.rows()})
            )
        } else {
            format!(
                "{written} rows\n{}",
                pcap::without_score(Some(unscored.rows()))
            )
        })
    }
}

/// A model that rows are put before.
pub(super) fn asked(path: &Path) -> Result<Classifier, Failure> {
    Classifier::load(path).map_err(|error| model::failure(&error))
}

/// The model for rows of this schema, which must have its columns.
pub(super) fn scorer(model: Classifier, rows: &SchemaRef) -> Result<Box<dyn Scorer>, Failure> {
    model.scorer(rows).map_err(|error| model::failure(&error))
}
