//! `lowroad router generate`: prefixes, rules and traffic, the same for the same seed.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use acl::generate::{Kind, rules};
use acl::{ANY_PORT, Address, Protocol, Rule};
use anyhow::anyhow;
use clap::{Args, Subcommand, ValueEnum};
use packet::{build, pcap};
use router::generate::{self, Traffic};
use router::image::Image;
use router::traffic::Pattern;

use crate::exit::Failure;

/// Ethernet.
const LINK: u32 = 1;
/// Bytes of UDP payload, for the smallest Ethernet frames of IPv4.
const PAYLOAD: [u8; 18] = [0; 18];
/// Between packets of a capture.
const APART_NS: i64 = 1000;

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Generate prefixes with the lengths and nesting of those of the Internet
    Prefixes(Prefixes),
    /// Generate rules as of firewalls, by Rovniagin and Wool's distribution of fields, as CSV
    Rules(Rules),
    /// Generate UDP packets to the addresses of a table image
    Traffic(Packets),
}

#[derive(Debug, Args)]
pub(super) struct Prefixes {
    /// Generate N IPv4 prefixes
    #[arg(long, value_name = "N", default_value = "901899", value_parser = clap::value_parser!(u32).range(..=4_000_000))]
    v4: u32,
    /// Generate N IPv6 prefixes
    #[arg(long, value_name = "N", default_value = "160147", value_parser = clap::value_parser!(u32).range(..=4_000_000))]
    v6: u32,
    #[command(flatten)]
    out: Out,
}

#[derive(Debug, Args)]
pub(super) struct Rules {
    /// Generate N rules of each family
    #[arg(long, value_name = "N", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    count: u32,
    /// Generate IPv6 rules as well
    #[arg(long)]
    v6: bool,
    #[command(flatten)]
    out: Out,
}

#[derive(Debug, Args)]
pub(super) struct Packets {
    /// Table image
    image: PathBuf,
    /// Draw addresses in this way
    #[arg(long, value_enum, default_value = "per-prefix")]
    order: Order,
    /// Generate N packets
    #[arg(long, value_name = "N", default_value = "1000000")]
    packets: u64,
    /// Use IPv6 addresses instead of IPv4
    #[arg(long)]
    v6: bool,
    #[command(flatten)]
    out: Out,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Order {
    /// Each routed address (IPv6: each routed /64) with equal probability
    Uniform,
    /// Each prefix with equal probability
    PerPrefix,
    /// The n-th prefix with probability proportional to 1/n
    Zipf,
    /// Routed addresses, or /64s, in ascending order and equal steps
    Sequential,
}

#[derive(Debug, Args)]
struct Out {
    /// Random seed
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Write to this file; packets are a capture if its name ends in .pcap, otherwise a line each [default:
    /// standard output]
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Verb {
    pub(super) fn run(&self) -> Result<(), Failure> {
        match self {
            Self::Prefixes(Prefixes { v4, v6, out }) => out.write(|file| {
                for prefix in generate::prefixes4(*v4, out.seed) {
                    writeln!(file, "{prefix}")?;
                }
                for prefix in generate::prefixes6(*v6, out.seed) {
                    writeln!(file, "{prefix}")?;
                }
                Ok(())
            }),
            Self::Rules(Rules { count, v6, out }) => out.write(|file| {
                writeln!(
                    file,
                    "action,source,destination,source_ports,destination_ports,protocol"
                )?;
                write_rules::<u32>(file, *count, out.seed)?;
                if *v6 {
                    write_rules::<u128>(file, *count, out.seed)?;
                }
                Ok(())
            }),
            Self::Traffic(packets) => packets.run(),
        }
    }
}

impl Packets {
    fn run(&self) -> Result<(), Failure> {
        let image = Image::open(&self.image)?;
        let pattern = match self.order {
            Order::Uniform => Pattern::Uniform,
            Order::PerPrefix => Pattern::PerPrefix,
            Order::Zipf => Pattern::Zipf,
            Order::Sequential => Pattern::Sequential,
        };
        let family = if self.v6 { "IPv6" } else { "IPv4" };
        let none = || {
            let file = self.image.display();
            Failure::Input(format!("{file}: no route of {family} to send packets by"))
        };
        let tables = image.tables.as_ref().ok_or_else(none)?;
        let (v4, v6) = (tables.fib4.rib(), tables.fib6.rib());
        let (count, seed) = (self.packets, self.out.seed);
        match self.v6 {
            true if v6.is_empty() => Err(none()),
            true => self.write(Traffic::new(v6, pattern, count, seed)),
            false if v4.is_empty() => Err(none()),
            false => self.write(Traffic::new(v4, pattern, count, seed)),
        }
    }

    fn write(
        &self,
        traffic: impl Iterator<Item = (std::net::SocketAddr, std::net::SocketAddr)>,
    ) -> Result<(), Failure> {
        let traffic = (0..self.packets).zip(traffic);
        let capture = self.out.out.as_deref().and_then(Path::extension);
        let capture = capture.is_some_and(|extension| extension == "pcap");
        self.out.write(|file| {
            if !capture {
                for (_, (from, to)) in traffic {
                    writeln!(file, "{from} -> {to}/udp")?;
                }
                return Ok(());
            }
            let mut writer = pcap::Writer::new(file, LINK)?;
            let mut time = 0;
            for (_, (from, to)) in traffic {
                writer.write(time, &build::udp(from, to).payload(PAYLOAD).frame())?;
                time += APART_NS;
            }
            writer.finish()?;
            Ok(())
        })
    }
}

impl Out {
    fn write(
        &self,
        write: impl FnOnce(&mut BufWriter<Box<dyn Write>>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let name = self.out.as_deref().map_or_else(
            || "standard output".to_owned(),
            |path| path.display().to_string(),
        );
        let out: io::Result<Box<dyn Write>> = match &self.out {
            None => Ok(Box::new(io::stdout())),
            Some(path) => File::create(path).map(|file| Box::new(file) as _),
        };
        let written = out.and_then(|out| {
            let mut out = BufWriter::new(out);
            write(&mut out)?;
            out.flush()
        });
        match written {
            // A reader that has seen enough is no failure.
            Err(error) if self.out.is_none() && error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => Err(Failure::Failed(anyhow!("{name}: {error}"))),
            Ok(()) => Ok(()),
        }
    }
}

/// The distribution says nothing of actions: what is accepted and what dropped takes turns.
fn write_rules<A: Address>(out: &mut impl Write, count: u32, seed: u64) -> io::Result<()> {
    for (at, rule) in rules::<A>(Kind::Firewall, count as usize, seed)
        .iter()
        .enumerate()
    {
        let action = if at % 2 == 0 { "accept" } else { "drop" };
        writeln!(out, "{action},{}", cells(rule))?;
    }
    Ok(())
}

fn cells<A: Address>(rule: &Rule<A>) -> String {
    let ports = |ports: &std::ops::RangeInclusive<u16>| match (ports.start(), ports.end()) {
        _ if *ports == ANY_PORT => String::new(),
        (from, to) if from == to => from.to_string(),
        (from, to) => format!("{from}-{to}"),
    };
    let protocol = match rule.protocol {
        Protocol { mask: 0, .. } => String::new(),
        Protocol { value, .. } => value.to_string(),
    };
    format!(
        // An address of length 0 says which family a rule is of.
        "{},{},{},{},{protocol}",
        rule.source,
        rule.destination,
        ports(&rule.source_ports),
        ports(&rule.destination_ports)
    )
}
