//! `lowroad router process`: packets through routes and rules, on CPUs or a device, from memory or a capture.

mod capture;
mod measure;
mod memory;
mod pace;
mod socket;
pub(super) mod subject;
mod timeline;
pub(super) mod told;
mod updates;
mod way;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use control::shutdown::Shutdown;
use control::units::Span;
use router::engine::{Contents, Function};
use router::gpu::Launching;
use router::image::Stored;
use router::traffic::Pattern;

use super::engine::{Choice, Made};
use super::inputs::Inputs;
use super::together::Fallback;
use crate::exit::{self, Failure};
use pace::Pace;
use subject::{Device, Subject};
use told::{About, Told};
use updates::Updates;

#[derive(Debug, Args)]
#[command(
    after_help = "Figures are this machine's, of this run: lowroad router bench compares engines."
)]
pub(super) struct Process {
    /// A table image, in place of --rib and --rules
    image: Option<PathBuf>,
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    device: Device,
    /// What goes on when the device fails, or refuses tables or kernels [default: nothing]
    #[arg(long, value_enum, requires = "device")]
    fallback: Option<Fallback>,
    /// What is decided about each packet [default: both, or what routes or rules alone allow]
    #[arg(long, value_name = "lpm|acl|both")]
    function: Option<Function>,
    /// Where packets come from, and go
    #[arg(long, value_enum, default_value = "memory")]
    io: Io,
    /// A pcap or pcapng file: its packets, in memory over and over, or with --io pcap once
    #[arg(long, value_name = "FILE", conflicts_with_all = ["traffic", "packets", "length", "ipv6", "seed"])]
    capture: Option<PathBuf>,
    /// Where datagrams are received, a frame in each; of port 0, the line that says ready tells which
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// Send the frames that are forwarded there, with the TTL one less
    #[arg(long, value_name = "ADDR:PORT", requires = "listen")]
    to: Option<SocketAddr>,
    /// Write the packets that would be forwarded, with the TTL one less
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Threads, each on a CPU of its own
    #[arg(long, value_name = "N", default_value = "1")]
    threads: NonZeroUsize,
    /// Packets that are looked up together
    #[arg(long, value_name = "N", default_value = "256", value_parser = clap::value_parser!(u32).range(1..=65536))]
    batch: u32,
    /// How long packets from memory or a socket are processed, as in 500ms, 10s, 1m
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    duration: Duration,
    #[command(flatten)]
    pace: Pace,
    #[command(flatten)]
    updates: Updates,
    /// Afterwards have the device time up to 32 more batches: copies, kernels, and how much of it at once
    #[arg(long, requires = "device")]
    timeline: bool,
    #[command(flatten)]
    made: Packets,
}

/// Packets that are made up.
#[derive(Debug, Args)]
pub(super) struct Packets {
    /// How they are drawn [default: per-prefix, or rules where there are no routes]
    #[arg(long, value_enum)]
    traffic: Option<Traffic>,
    /// How many, which then come over and over
    #[arg(long, value_name = "N", default_value = "262144", value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    packets: u32,
    /// Bytes of a frame, without its checksum
    #[arg(long, value_name = "BYTES", default_value = "60", value_parser = clap::value_parser!(u16).range(42..=9014))]
    length: u16,
    /// How many in a hundred are IPv6 [default: 0, or 100 where only IPv6 has routes or rules]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    ipv6: Option<u8>,
    /// With another number, other packets are made up
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Io {
    /// A buffer of frames, over and over; nothing is sent
    Memory,
    /// A capture, once
    Pcap,
    /// A UDP socket, a frame in each datagram
    Socket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Traffic {
    /// Any routed address
    Uniform,
    /// Any prefix, and any address in it
    PerPrefix,
    /// Prefixes in proportion to 1/rank
    Zipf,
    /// Routed addresses in order
    Sequential,
    /// Packets that rules are about
    Rules,
    /// UDP from and to any address and port, routed or not
    Random,
}

impl Traffic {
    pub(super) fn pattern(self) -> Option<Pattern> {
        match self {
            Self::Uniform => Some(Pattern::Uniform),
            Self::PerPrefix => Some(Pattern::PerPrefix),
            Self::Zipf => Some(Pattern::Zipf),
            Self::Sequential => Some(Pattern::Sequential),
            Self::Rules | Self::Random => None,
        }
    }

    fn name(self) -> &'static str {
        match (self.pattern(), self) {
            (Some(pattern), _) => pattern.name(),
            (None, Self::Random) => "random",
            (None, _) => "rules",
        }
    }
}

/// What packets are put through, and the image that it is of.
pub(super) struct Given {
    pub(super) contents: Contents,
    pub(super) image: Option<Stored>,
}

impl Process {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().map_err(|error| anyhow!("signals: {error}"))?;
        let made = Made::of(self.image.as_deref(), &self.inputs)?;
        let function = function(self.function, (made.routes, made.rules))?;
        self.check()?;
        let Made {
            mut contents,
            image,
            ..
        } = made;
        // Without them its arrays are of no use.
        let image = image.filter(|_| made.routes && function.routes());
        if !function.routes() {
            (contents.v4, contents.v6) = Default::default();
        }
        let given = Given { contents, image };
        let contents = &given.contents;
        let about = |engine, caution| About {
            function,
            engine,
            caution,
            prefixes: (contents.v4.len(), contents.v6.len()),
            rules: (contents.rules.v4.len(), contents.rules.v6.len()),
            batch: self.batch as usize,
            rate: self.pace.rate,
            batch_wait: self.pace.batch_wait,
            bytes: (0, 0),
        };
        // Measured once, over ten milliseconds that are no packet's.
        sys::clock::ticks_per_ns();
        let told = if let Some(name) = &self.device.device {
            let options = self.device.options(name, self.choice.layout4())?;
            if self.timeline && options.launching != Launching::Stream {
                let what =
                    "--timeline has the device time call by call: it goes with --launch stream";
                return Err(Failure::Input(what.to_owned()));
            }
            let about = about(subject::name(&options), subject::caution(&options.device));
            if self.fallback.is_some() {
                self.put(given, about, &shutdown, |given| {
                    subject::backed(given, &options, &self.choice)
                })?
            } else {
                self.put(given, about, &shutdown, |given| {
                    subject::on_device(given.contents, given.image.as_ref(), &options)
                })?
            }
        } else {
            let about = about(self.choice.name(), None);
            self.put(given, about, &shutdown, |given| {
                self.choice.tables(given.contents, given.image.as_ref())
            })?
        };
        exit::print(&if json {
            format!("{:#}\n", told.json())
        } else {
            told.text()
        })
    }

    /// What does not go together.
    fn check(&self) -> Result<(), Failure> {
        let wrong = |what: &str| Err(Failure::Input(what.to_owned()));
        match self.io {
            Io::Pcap if self.capture.is_none() => {
                wrong("--io pcap reads a capture: name it by --capture FILE")
            }
            Io::Memory | Io::Socket if self.out.is_some() => {
                wrong("--out writes what is forwarded of a capture: it goes with --io pcap")
            }
            Io::Memory | Io::Pcap if self.listen.is_some() => {
                wrong("--listen receives datagrams: it goes with --io socket")
            }
            Io::Socket if self.capture.is_some() => {
                wrong("--capture names packets, and --io socket receives them: leave one out")
            }
            Io::Pcap | Io::Socket if self.pace.rate.is_some() => {
                wrong("--rate says when packets from memory come: leave it out, or --io")
            }
            Io::Pcap if self.timeline => wrong(
                "--timeline times batches of one size: it goes with packets from memory or a socket",
            ),
            Io::Pcap if self.updates.updates.is_some() => {
                wrong("--updates changes routes for a time: a capture is read at once")
            }
            Io::Memory if self.pace.batch_wait.is_some() && self.pace.rate.is_none() => wrong(
                "--batch-wait is for packets that come in their own time: it goes with --rate or --io socket",
            ),
            Io::Pcap if self.pace.batch_wait.is_some() => wrong(
                "--batch-wait is for packets that come in their own time: a capture is read at once",
            ),
            _ if self.device.device.is_some()
                && self.fallback.is_none()
                && self.choice.is_of_cpus() =>
            {
                wrong("--engine-lpm6 and --simd are of CPUs: a device has no choice of them")
            }
            _ => Ok(()),
        }
    }

    /// Packets through an engine.
    fn put<E: Subject>(
        &self,
        given: Given,
        about: About,
        shutdown: &Shutdown,
        engine: impl FnOnce(Given) -> Result<E, Failure>,
    ) -> Result<Told, Failure> {
        match self.io {
            Io::Memory => self.memory(given, about, shutdown, engine),
            Io::Pcap => self.pcap(given, about, shutdown, engine),
            Io::Socket => self.socket(given, about, shutdown, engine),
        }
    }
}

/// The function that is asked for, or that there are tables for.
pub(super) fn function(asked: Option<Function>, has: (bool, bool)) -> Result<Function, Failure> {
    let (routes, rules) = has;
    let function = asked.unwrap_or(match has {
        (true, true) => Function::Both,
        (_, false) => Function::Lpm,
        (false, true) => Function::Acl,
    });
    if function.routes() && !routes {
        return Err(Failure::Input(format!(
            "--function {function} routes: name the routes by --rib FILE"
        )));
    }
    if function.filters() && !rules {
        return Err(Failure::Input(format!(
            "--function {function} filters: name the rules by --rules FILE"
        )));
    }
    Ok(function)
}

/// As people write them: 500ms, 10s, 5m.
fn time(text: &str) -> Result<Duration, String> {
    let Span(time) = text.parse()?;
    if time.is_zero() {
        return Err("no time at all".to_owned());
    }
    Ok(time)
}
