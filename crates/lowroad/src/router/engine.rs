//! Which engine looks up: arguments, named explicitly.

use std::path::Path;

use clap::{Args, ValueEnum};
use datapath::Missing;
use lpm::{Layout4, Layout6, Simd};
use router::cpu::{Options, Tables};
use router::engine::{Contents, Engine};
use router::image::Image;

use super::given::failure;
use super::inputs::{Inputs, Read};
use crate::exit::Failure;

#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Choice {
    /// How wide entries of the IPv4 table are
    #[arg(long, value_enum, default_value = "mixed", value_name = "LAYOUT")]
    engine_lpm4: Lpm4,
    /// How the entries of the IPv6 table are found
    #[arg(long, value_enum, default_value = "paged", value_name = "LAYOUT")]
    engine_lpm6: Lpm6,
    /// The instructions that look up
    #[arg(long, value_enum, default_value = "avx2", value_name = "NAME")]
    simd: Instructions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Lpm4 {
    /// One byte: at most 254 next hops
    Bytes,
    /// One byte for next hops 1 to 254, two for the others
    Mixed,
    /// Two bytes
    Words,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Lpm6 {
    /// By pages
    Paged,
    /// In one array of 2 GiB of address space
    Flat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Instructions {
    /// What every machine has
    Portable,
    Avx2,
    Avx512,
}

impl Choice {
    pub(super) fn options(&self) -> Options {
        Options {
            layout4: self.engine_lpm4.layout(),
            layout6: self.engine_lpm6.layout(),
            simd: self.simd.simd(),
            ..Options::default()
        }
    }

    /// As in `mixed paged avx2`.
    pub(super) fn name(&self) -> String {
        let layout4 = self.engine_lpm4.to_possible_value();
        let layout6 = self.engine_lpm6.to_possible_value();
        let name = |value: Option<clap::builder::PossibleValue>| {
            value.map_or_else(String::new, |value| value.get_name().to_owned())
        };
        let simd = self.simd.simd().name();
        format!("{} {} {simd}", name(layout4), name(layout6))
    }

    /// Tables of this kind.
    pub(super) fn tables(&self, contents: Contents) -> Result<Tables, Failure> {
        let tables = Tables::setup(contents, &self.options()).map_err(refused)?;
        for warning in tables.warnings() {
            tracing::warn!("{warning}");
        }
        Ok(tables)
    }
}

/// Why there are no tables, in the words of the arguments.
fn refused(error: router::cpu::Error) -> Failure {
    use router::cpu::Error;
    match error {
        Error::Simd(simd) => {
            let names: Vec<_> = Simd::available().map(Simd::name).collect();
            let what = format!("this machine has no {}", simd.name());
            let remedy = format!("--simd {}", names.join(" or "));
            Failure::Missing(vec![("--simd".to_owned(), Missing::new(what, remedy))])
        }
        Error::Routes(lpm::Error::NextHop { .. }) => Failure::Input(
            "--engine-lpm4 bytes holds 254 next hops, and the routes have more: use mixed or words"
                .to_owned(),
        ),
        error => Failure::Failed(error.into()),
    }
}

impl Lpm4 {
    pub(super) fn layout(self) -> Layout4 {
        match self {
            Self::Bytes => Layout4::Bytes,
            Self::Mixed => Layout4::Mixed,
            Self::Words => Layout4::Words,
        }
    }
}

impl Lpm6 {
    pub(super) fn layout(self) -> Layout6 {
        match self {
            Self::Paged => Layout6::Paged,
            Self::Flat => Layout6::Flat,
        }
    }
}

impl Instructions {
    pub(super) fn simd(self) -> Simd {
        match self {
            Self::Portable => Simd::Portable,
            Self::Avx2 => Simd::Avx2,
            Self::Avx512 => Simd::Avx512,
        }
    }
}

/// What tables are made of: an image's contents, or what is read from files.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) contents: Contents,
    pub(super) routes: bool,
    pub(super) rules: bool,
}

impl Made {
    pub(super) fn of(image: Option<&Path>, inputs: &Inputs) -> Result<Self, Failure> {
        let Some(file) = image else {
            return Self::read(inputs.read()?);
        };
        if !inputs.are_none() {
            return Err(Failure::Input(format!(
                "{}: a table image takes the place of --rib and --rules: name one or the other",
                file.display()
            )));
        }
        let image = Image::open(file).map_err(failure)?;
        let mut made = Self {
            contents: Contents::default(),
            routes: image.tables.is_some(),
            rules: image.rules.is_some(),
        };
        if let Some(tables) = &image.tables {
            made.contents.v4 = tables.fib4.rib().clone();
            made.contents.v6 = tables.fib6.rib().clone();
        }
        made.contents.rules = image.rules.unwrap_or_default();
        Ok(made)
    }

    fn read(read: Read) -> Result<Self, Failure> {
        let mut made = Self {
            contents: Contents::default(),
            routes: read.routes.is_some(),
            rules: read.rules.is_some(),
        };
        if let Some((_, imported)) = &read.routes {
            let routes = &imported.routes;
            made.contents.v4 = routes
                .numbered4()
                .map_err(|error| Failure::Input(error.to_string()))?
                .rib;
            made.contents.v6 = routes
                .numbered6()
                .map_err(|error| Failure::Input(error.to_string()))?
                .rib;
        }
        if let Some((_, rules)) = read.rules {
            made.contents.rules = rules;
        }
        Ok(made)
    }
}
