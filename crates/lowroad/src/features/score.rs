//! `lowroad features score`: a capture, or rows that were written before, with what a model says of each.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use control::shutdown::Shutdown;
use features::model::TreeScorer;
use features::pcap::Run;
use features::saved::SavedRows;
use features::sink::{Mode, SchemaRef, Scorer};
use serde_json::json;

use super::extraction::Extraction;
use super::model;
use super::output::Output;
use super::pcap;
use crate::exit::Failure;

#[derive(Debug, Args)]
pub(super) struct Score {
    /// A capture, - for one on standard input, or rows in a .parquet or .arrow file
    input: PathBuf,
    /// A manifest (TOML), or what `lowroad features model compile` wrote
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
        let model = Asked::load(&self.model)?;
        let schema = self.output.schema_or(&model.schema)?;
        let run = Run {
            options: self.extraction.options(schema, None)?,
            schema,
        };
        let scorer = model.scorer(&run.arrow_schema())?;
        let threads = pcap::threads(None, &self.input);
        pcap::read(&self.input, &run, &self.output, Some(scorer), threads, json)
    }

    fn rows(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().map_err(|error| anyhow!("signals: {error}"))?;
        let rows = SavedRows::open(&self.input).map_err(Failure::Input)?;
        let scorer = Asked::load(&self.model)?.scorer(rows.schema())?;
        let (mut sink, _unscored) =
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
            format!("{:#}\n", json!({"rows": written}))
        } else {
            format!("{written} rows\n")
        })
    }
}

/// A model that rows are put before.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) schema: String,
    model: features::model::Model,
}

impl Asked {
    pub(super) fn load(path: &Path) -> Result<Self, Failure> {
        let model = model::load(path)?;
        Ok(Self {
            schema: model.schema.clone(),
            model,
        })
    }

    pub(super) fn scorer(self, rows: &SchemaRef) -> Result<Box<dyn Scorer>, Failure> {
        let scorer = TreeScorer::new(self.model, rows).map_err(|error| model::failure(&error))?;
        Ok(Box::new(scorer))
    }
}
