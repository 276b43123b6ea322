//! The tables of a command: a table image, or routes and rules from files.

use std::path::Path;

use benchmarks::router::{Dataset, Targets};
use clap::Args;
use lpm::Layout4;
use router::engine::Contents;
use router::image::{self, Image, ImageFile, Kind, SourceFile, Tables};
use router::routes::Target;

use super::engine::layout4;
use super::inputs::{InputData, Inputs};
use super::report;
use crate::exit::Failure;

#[derive(Debug, Args)]
pub(super) struct TableSource {
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    options: TableOptions,
}

/// How tables are built.
#[derive(Debug, Args)]
#[command(next_help_heading = "Routes and rules")]
pub(super) struct TableOptions {
    /// Width of an entry of the IPv4 table [default: by the number of next hops]
    #[arg(long, value_parser = layout4(), requires = "rib")]
    layout: Option<Layout4>,
}

impl TableSource {
    /// The image of the file, or a new one of the routes and rules in its place.
    pub(super) fn image(&self, file: Option<&Path>) -> Result<Image, Failure> {
        match file {
            Some(file) if self.inputs.is_empty() => Ok(Image::open(file)?),
            Some(file) => Err(image_and_inputs(file)),
            None if self.inputs.is_empty() => Err(Failure::Input(
                "name a table image, or routes by --rib FILE and rules by --rules FILE".to_owned(),
            )),
            None => self.options.image(self.inputs.read()?),
        }
    }

    /// The image of a file, or a new one of the routes or rules in it.
    pub(super) fn image_of(&self, file: &Path) -> Result<Image, Failure> {
        if !self.inputs.is_empty() {
            return Err(image_and_inputs(file));
        }
        match Image::open(file) {
            Err(image::Error::Foreign { .. }) => self.options.image(InputData::open(file)?),
            opened => Ok(opened?),
        }
    }
}

impl TableOptions {
    /// An image of routes and rules.
    pub(super) fn image(&self, read: InputData) -> Result<Image, Failure> {
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
            tables: tables.transpose()?,
            rules: read.rules.map(|(_, rules)| rules),
        })
    }
}

/// The contents of a table image or of files, for engines to build their tables of.
#[derive(Debug)]
pub(super) struct EngineInput {
    pub(super) dataset: Dataset,
    pub(super) has_routes: bool,
    pub(super) has_rules: bool,
}

impl EngineInput {
    pub(super) fn load(image: Option<&Path>, inputs: &Inputs) -> Result<Self, Failure> {
        let Some(file) = image else {
            return Self::read(inputs.read()?);
        };
        if !inputs.is_empty() {
            return Err(image_and_inputs(file));
        }
        let image = ImageFile::open(file)?;
        let mut contents = Contents::default();
        let mut targets = Targets::default();
        if let Some(routes) = image.routes()? {
            (contents.v4, contents.v6) = (routes.v4, routes.v6);
            (targets.v4, targets.v6) = (routes.hops4, routes.hops6);
        }
        contents.rules = image.rules()?.unwrap_or_default();
        Ok(Self {
            has_routes: image.has_routes(),
            has_rules: image.has_rules(),
            dataset: Dataset {
                contents,
                image: Some(image),
                targets,
            },
        })
    }

    fn read(read: InputData) -> Result<Self, Failure> {
        let (has_routes, has_rules) = (read.routes.is_some(), read.rules.is_some());
        let mut contents = Contents::default();
        let mut targets = Targets::default();
        if let Some((_, imported)) = &read.routes {
            let routes = &imported.routes;
            let named = |places: &[u32]| -> Vec<Target> {
                let target = |at: &u32| routes.targets[*at as usize].clone();
                places.iter().map(target).collect()
            };
            let (v4, v6) = (routes.numbered4()?, routes.numbered6()?);
            targets.v4 = named(&v4.targets);
            targets.v6 = named(&v6.targets);
            (contents.v4, contents.v6) = (v4.rib, v6.rib);
        }
        if let Some((_, rules)) = read.rules {
            contents.rules = rules;
        }
        Ok(Self {
            dataset: Dataset {
                contents,
                image: None,
                targets,
            },
            has_routes,
            has_rules,
        })
    }
}

fn image_and_inputs(file: &Path) -> Failure {
    Failure::Input(format!(
        "{}: a table image takes the place of --rib and --rules: name one or the other",
        file.display()
    ))
}
