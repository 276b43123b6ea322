//! What a command works on: a table image, or routes and rules made into one on the spot.

use std::path::Path;

use anyhow::anyhow;
use clap::Args;
use lpm::Layout4;
use router::image::{Error, Image, Kind, SourceFile, Tables};

use super::engine::layout4;
use super::inputs::{Inputs, Read};
use super::report;
use crate::exit::Failure;

#[derive(Debug, Args)]
pub(super) struct Given {
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    made: Made,
}

/// How tables are made.
#[derive(Debug, Args)]
pub(super) struct Made {
    /// Bytes of an entry of the IPv4 table [default: by the number of next hops]
    #[arg(long, value_parser = layout4(), requires = "rib")]
    layout: Option<Layout4>,
}

impl Given {
    /// That of the file, or one of the routes and rules that are named instead.
    pub(super) fn image(&self, file: Option<&Path>) -> Result<Image, Failure> {
        match file {
            Some(file) if self.inputs.are_none() => Image::open(file).map_err(failure),
            Some(file) => Err(Failure::Input(format!(
                "{}: a table image takes the place of --rib and --rules: name one or the other",
                file.display()
            ))),
            None if self.inputs.are_none() => Err(Failure::Input(
                "name a table image, or routes by --rib FILE and rules by --rules FILE".to_owned(),
            )),
            None => self.made.image(self.inputs.read()?),
        }
    }
}

impl Made {
    /// What was read, as an image.
    pub(super) fn image(&self, read: Read) -> Result<Image, Failure> {
        let mut sources = Vec::new();
        let mut source = |kind, name: &str, report: &str| {
            sources.push(SourceFile {
                kind,
                name: name.to_owned(),
                report: report.lines().map(|line| line.trim().to_owned()).collect(),
            });
        };
        if let Some((name, imported)) = &read.routes {
            source(Kind::Routes, name, &report::routes_text(name, imported));
        }
        if let Some((name, rules)) = &read.rules {
            source(Kind::Rules, name, &report::rules_head(name, rules));
        }
        let tables = read
            .routes
            .map(|(_, imported)| Tables::build(&imported.routes, self.layout));
        Ok(Image {
            sources,
            tables: tables.transpose().map_err(failure)?,
            rules: read.rules.map(|(_, rules)| rules),
        })
    }
}

/// The file's fault, or the machine's.
pub(super) fn failure(error: Error) -> Failure {
    if error.is_input() {
        return Failure::Input(error.to_string());
    }
    Failure::Failed(anyhow!(error))
}
