//! The arguments that say which packets are generated.

use benchmarks::router::traffic::{self, Generator};
use clap::{Args, ValueEnum};
use router::traffic::Pattern;

#[derive(Debug, Args)]
#[command(next_help_heading = "Packets")]
pub(in crate::router) struct Packets {
    /// Generate packets in this way [default: per-prefix, or rules if there are no routes]
    #[arg(long, value_enum)]
    traffic: Option<Traffic>,
    /// Generate N packets, and repeat them
    #[arg(long, value_name = "N", default_value = "262144", value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    packets: u32,
    /// Bytes of a frame, without its checksum
    #[arg(long, value_name = "BYTES", default_value = "60", value_parser = clap::value_parser!(u16).range(42..=9014))]
    length: u16,
    /// Percentage of IPv6 packets [default: 0, or 100 if only IPv6 has routes or rules]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    ipv6: Option<u8>,
    /// Random seed: change it to generate other packets
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Traffic {
    /// To any routed address
    Uniform,
    /// To any prefix, and any address in it
    PerPrefix,
    /// To prefixes in proportion to 1/rank
    Zipf,
    /// To routed addresses in order
    Sequential,
    /// That match rules
    Rules,
    /// UDP from and to any address and port, routed or not
    Random,
}

impl Packets {
    pub(in crate::router) fn generator(&self) -> Generator {
        Generator {
            traffic: self.traffic.map(Traffic::value),
            packets: self.packets as usize,
            length: self.length.into(),
            ipv6: self.ipv6,
            seed: self.seed,
        }
    }
}

impl Traffic {
    fn value(self) -> traffic::Traffic {
        match self {
            Self::Uniform => traffic::Traffic::Routes(Pattern::Uniform),
            Self::PerPrefix => traffic::Traffic::Routes(Pattern::PerPrefix),
            Self::Zipf => traffic::Traffic::Routes(Pattern::Zipf),
            Self::Sequential => traffic::Traffic::Routes(Pattern::Sequential),
            Self::Rules => traffic::Traffic::Rules,
            Self::Random => traffic::Traffic::Random,
        }
    }
}
