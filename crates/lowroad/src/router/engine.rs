//! Which engine looks up: arguments, named explicitly.

use std::path::Path;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use datapath::Missing;
use lpm::{Layout4, Layout6, Simd};
use router::cpu::{Options, Tables};
use router::engine::{Contents, Engine};
use router::image::Stored;

use super::given::failure;
use super::inputs::{Inputs, Read};
use crate::exit::Failure;

#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Choice {
    /// How wide entries of the IPv4 table are
    #[arg(long, value_parser = layout4(), default_value = "mixed", value_name = "LAYOUT")]
    engine_lpm4: Layout4,
    /// How the entries of the IPv6 table are found [default: paged]
    #[arg(long, value_parser = layout6(), value_name = "LAYOUT")]
    engine_lpm6: Option<Layout6>,
    /// The instructions that look up [default: avx2]
    #[arg(long, value_parser = simd(), value_name = "NAME")]
    simd: Option<Simd>,
}

impl Choice {
    pub(super) fn options(&self) -> Options {
        Options {
            layout4: self.engine_lpm4,
            layout6: self.layout6(),
            simd: self.simd(),
            ..Options::default()
        }
    }

    pub(super) fn layout4(&self) -> Layout4 {
        self.engine_lpm4
    }

    fn layout6(&self) -> Layout6 {
        self.engine_lpm6.unwrap_or(Layout6::Paged)
    }

    fn simd(&self) -> Simd {
        self.simd.unwrap_or(Simd::Avx2)
    }

    /// Whether it says what only CPUs have a choice of.
    pub(super) fn is_of_cpus(&self) -> bool {
        self.engine_lpm6.is_some() || self.simd.is_some()
    }

    /// As in `mixed paged avx2`.
    pub(super) fn name(&self) -> String {
        let (layout4, layout6) = (self.engine_lpm4.name(), self.layout6().name());
        format!("{layout4} {layout6} {}", self.simd().name())
    }

    /// Tables of this kind, of an image's arrays where they are of its routes.
    pub(super) fn tables(
        &self,
        contents: Contents,
        image: Option<&Stored>,
    ) -> Result<Tables, Failure> {
        let tables = match image {
            Some(image) => Tables::restore(image, contents, &self.options()),
            None => Tables::setup(contents, &self.options()),
        };
        let tables = tables.map_err(refused)?;
        for warning in tables.warnings() {
            tracing::warn!("{warning}");
        }
        Ok(tables)
    }
}

/// Why there are no tables, in the words of the arguments.
pub(super) fn refused(error: router::cpu::Error) -> Failure {
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
        Error::Image(error) => failure(error),
        error => Failure::Failed(error.into()),
    }
}

/// Reads the name of a layout of the IPv4 table.
pub(super) fn layout4() -> impl TypedValueParser<Value = Layout4> {
    named(Layout4::ALL, Layout4::name, |layout| match layout {
        Layout4::Bytes => "One byte: at most 254 next hops",
        Layout4::Mixed => "One byte for next hops 1 to 254, two for the others",
        Layout4::Words => "Two bytes",
    })
}

fn layout6() -> impl TypedValueParser<Value = Layout6> {
    named(Layout6::ALL, Layout6::name, |layout| match layout {
        Layout6::Paged => "By pages",
        Layout6::Flat => "In one array of 2 GiB of address space",
    })
}

fn simd() -> impl TypedValueParser<Value = Simd> {
    named(Simd::ALL, Simd::name, |simd| match simd {
        Simd::Portable => "What every machine has",
        Simd::Avx2 => "With BMI1 and BMI2",
        Simd::Avx512 => "F, BW, DQ and VL, and what avx2 has",
    })
}

/// Reads one of these by its name; help says what each is.
pub(super) fn named<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [T; N],
    name: impl Fn(T) -> &'static str + Clone + Send + Sync + 'static,
    help: impl Fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let values = all.map(|one| PossibleValue::new(name(one)).help(help(one)));
    PossibleValuesParser::new(values).try_map(move |said| {
        let one = all.into_iter().find(|one| name(*one) == said);
        one.ok_or("no such name")
    })
}

/// What tables are made of: an image's contents, or what is read from files.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) contents: Contents,
    /// The image that the contents are of.
    pub(super) image: Option<Stored>,
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
        let image = Stored::open(file).map_err(failure)?;
        let mut contents = Contents::default();
        if let Some(routes) = image.routes().map_err(failure)? {
            (contents.v4, contents.v6) = (routes.v4, routes.v6);
        }
        contents.rules = image.rules().map_err(failure)?.unwrap_or_default();
        Ok(Self {
            contents,
            routes: image.has_routes(),
            rules: image.has_rules(),
            image: Some(image),
        })
    }

    fn read(read: Read) -> Result<Self, Failure> {
        let mut made = Self {
            contents: Contents::default(),
            image: None,
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
