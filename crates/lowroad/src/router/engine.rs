//! The arguments that choose an engine of CPUs.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use datapath::Missing;
use lpm::{Layout4, Layout6, Simd};
use router::cpu::Options;

use crate::exit::Failure;

#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Lookup tables")]
pub(super) struct CpuEngine {
    /// Width of an entry of the IPv4 table
    #[arg(long, value_parser = layout4(), default_value = "mixed", value_name = "LAYOUT")]
    engine_lpm4: Layout4,
    /// Arrangement of the IPv6 table [default: paged]
    #[arg(long, value_parser = layout6(), value_name = "LAYOUT")]
    engine_lpm6: Option<Layout6>,
    /// Look up with these instructions [default: avx2]
    #[arg(long, value_parser = simd(), value_name = "NAME")]
    simd: Option<Simd>,
}

impl CpuEngine {
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

    /// Whether there are arguments that do not apply to a device.
    pub(super) fn has_cpu_arguments(&self) -> bool {
        self.engine_lpm6.is_some() || self.simd.is_some()
    }
}

/// Names the arguments that chose tables which could not be built.
pub(super) fn failure(error: router::cpu::Error) -> Failure {
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
        error => error.into(),
    }
}

/// Parses the name of a layout of the IPv4 table.
pub(super) fn layout4() -> impl TypedValueParser<Value = Layout4> {
    named(Layout4::ALL, Layout4::name, |layout| match layout {
        Layout4::Bytes => "One byte: at most 254 next hops",
        Layout4::Mixed => "One byte for next hops 1 to 254, two for the others",
        Layout4::Words => "Two bytes",
    })
}

fn layout6() -> impl TypedValueParser<Value = Layout6> {
    named(Layout6::ALL, Layout6::name, |layout| match layout {
        Layout6::Paged => "Pages",
        Layout6::Flat => "One array of 2 GiB of address space",
    })
}

fn simd() -> impl TypedValueParser<Value = Simd> {
    named(Simd::ALL, Simd::name, |simd| match simd {
        Simd::Portable => "Instructions that every machine has",
        Simd::Avx2 => "AVX2, with BMI1 and BMI2",
        Simd::Avx512 => "AVX-512 F, BW, DQ and VL, and those of avx2",
    })
}

/// Parses one of these by its name; help describes each.
pub(super) fn named<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [T; N],
    name: impl Fn(T) -> &'static str + Clone + Send + Sync + 'static,
    help: impl Fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let values = all.map(|one| PossibleValue::new(name(one)).help(help(one)));
    PossibleValuesParser::new(values).try_map(move |value| {
        let one = all.into_iter().find(|one| name(*one) == value);
        one.ok_or("no such name")
    })
}
