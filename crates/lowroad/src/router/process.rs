//! `lowroad router process`: packets through routes and rules, on CPUs or a device, from memory, a capture or a
//! socket.

mod output;
mod traffic;

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use ::process::shutdown::Shutdown;
use benchmarks::router::process::{self, Options, Pace};
use benchmarks::router::traffic::Source;
use benchmarks::router::{Dataset, engine};
use clap::{Args, ValueEnum};
use router::engine::Function;
use router::gpu::LaunchMode;
use units::{Pps, Span, socket_address};

use super::batching::Fallback;
use super::benchmark_failure;
use super::device::Device;
use super::engine::CpuEngine;
use super::inputs::Inputs;
use super::table_source::EngineInput;
use crate::exit::{self, Failure, OrFail as _};

pub(super) use traffic::Packets;

#[derive(Debug, Args)]
#[command(
    after_help = "The times are those of one run on this machine; use lowroad router bench to compare engines."
)]
pub(super) struct Process {
    /// Table image, in place of --rib and --rules
    image: Option<PathBuf>,
    /// Continue with these if the device fails, or refuses tables or kernels [default: stop]
    #[arg(long, value_enum, requires = "device")]
    fallback: Option<Fallback>,
    /// Route packets (lpm), filter them (acl), or both [default: what there are routes and rules for]
    #[arg(long, value_name = "lpm|acl|both")]
    function: Option<Function>,
    /// Take packets from here
    #[arg(long, value_enum, default_value = "memory")]
    io: Io,
    /// Process the packets of this pcap or pcapng file: over and over from memory, or once with --io pcap
    #[arg(long, value_name = "FILE", conflicts_with_all = ["traffic", "packets", "length", "ipv6", "seed"])]
    capture: Option<PathBuf>,
    /// Receive datagrams with a frame in each at this address; the first line prints the port chosen for 0
    #[arg(long, value_name = "ADDR:PORT", value_parser = socket_address)]
    listen: Option<SocketAddr>,
    /// Send forwarded frames to this address, with the TTL decremented
    #[arg(long, value_name = "ADDR:PORT", value_parser = socket_address, requires = "listen")]
    to: Option<SocketAddr>,
    /// Write forwarded packets to this pcap file, with the TTL decremented
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Use N threads, each on a CPU of its own
    #[arg(long, value_name = "N", default_value = "1")]
    threads: NonZeroUsize,
    /// Look up N packets together
    #[arg(long, value_name = "N", default_value = "256", value_parser = clap::value_parser!(u32).range(1..=65536))]
    batch: u32,
    /// Process packets from memory or a socket for this long, as in 500ms, 10s, 1m
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = time)]
    duration: Duration,
    /// Have packets from memory arrive at this rate, as in 100kpps [default: as fast as they are processed]
    #[arg(long, value_name = "RATE")]
    rate: Option<Pps>,
    /// Process a partial batch once its first packet has waited so long, as in 50us [default: never]
    #[arg(long, value_name = "DURATION", value_parser = time)]
    batch_wait: Option<Duration>,
    /// Change N routes a second meanwhile: each is withdrawn, then announced again
    #[arg(long, value_name = "N")]
    updates: Option<NonZeroU32>,
    /// Have the device time up to 32 more batches afterwards: copies, kernels, and how much they overlap
    #[arg(long, requires = "device")]
    timeline: bool,
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    cpu: CpuEngine,
    #[command(flatten)]
    device: Device,
    #[command(flatten)]
    packets: Packets,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Io {
    /// Frames in memory, over and over; nothing is sent
    Memory,
    /// A capture, once
    Pcap,
    /// A UDP socket, a frame in each datagram
    Socket,
}

impl Process {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().context("signals")?;
        let input = EngineInput::load(self.image.as_deref(), &self.inputs)?;
        let function = function(self.function, &input)?;
        self.check()?;
        let EngineInput {
            dataset:
                Dataset {
                    mut contents,
                    image,
                    targets,
                },
            has_routes,
            ..
        } = input;
        // Without routes, the arrays of the image are not used.
        let image = image.filter(|_| has_routes && function.routes());
        if !function.routes() {
            (contents.v4, contents.v6) = Default::default();
        }
        let dataset = Dataset {
            contents,
            image,
            targets,
        };
        let options = self.options(function)?;
        let ready = |address| eprintln!("ready: frames as datagrams to {address}");
        let report =
            process::run(dataset, &options, &shutdown, &ready).map_err(benchmark_failure)?;
        exit::print(&if json {
            format!("{:#}\n", output::json(&options, &report))
        } else {
            output::text(&options, &report)
        })
    }

    fn options(&self, function: Function) -> Result<Options, Failure> {
        Ok(Options {
            function,
            engine: self.engine()?,
            io: self.io()?,
            threads: self.threads,
            batch: self.batch as usize,
            duration: self.duration,
            pace: Pace {
                rate: self.rate,
                batch_wait: self.batch_wait,
            },
            updates: self.updates,
            timeline: self.timeline,
        })
    }

    fn engine(&self) -> Result<engine::Options, Failure> {
        let cpu = self.cpu.options();
        let Some(name) = &self.device.device else {
            return Ok(engine::Options::Cpu(cpu));
        };
        let device = self.device.options(name, self.cpu.layout4())?;
        if self.timeline && device.launch_mode != LaunchMode::Stream {
            let what = "--timeline has the device time call by call: it goes with --launch stream";
            return Err(Failure::Input(what.to_owned()));
        }
        Ok(match self.fallback {
            Some(Fallback::Cpu) => engine::Options::Fallback { cpu, device },
            None => engine::Options::Device(device),
        })
    }

    fn io(&self) -> Result<process::Io, Failure> {
        let capture = self.capture.clone();
        Ok(match self.io {
            Io::Memory => process::Io::Memory(match capture {
                Some(path) => Source::Capture(path),
                None => Source::Generated(self.packets.generator()),
            }),
            Io::Pcap => process::Io::Capture {
                path: capture.unwrap_or_else(|| "-".into()),
                out: self.out.clone(),
            },
            Io::Socket => {
                let Some(listen) = self.listen else {
                    let what =
                        "--io socket receives datagrams: name the address with --listen ADDR:PORT";
                    return Err(Failure::Input(what.to_owned()));
                };
                process::Io::Socket {
                    listen,
                    to: self.to,
                }
            }
        })
    }

    /// Refuses arguments that contradict each other.
    fn check(&self) -> Result<(), Failure> {
        let wrong = |what: &str| Err(Failure::Input(what.to_owned()));
        match self.io {
            Io::Pcap if self.capture.is_none() => {
                wrong("--io pcap reads a capture: name it with --capture FILE")
            }
            Io::Memory | Io::Socket if self.out.is_some() => {
                wrong("--out writes the forwarded packets of a capture: it goes with --io pcap")
            }
            Io::Memory | Io::Pcap if self.listen.is_some() => {
                wrong("--listen receives datagrams: it goes with --io socket")
            }
            Io::Socket if self.capture.is_some() => {
                wrong("--capture names packets, and --io socket receives them: leave one out")
            }
            Io::Pcap | Io::Socket if self.rate.is_some() => {
                wrong("--rate is for packets from memory: leave it out, or --io")
            }
            Io::Pcap if self.timeline => wrong(
                "--timeline times batches of one size: it goes with packets from memory or a socket",
            ),
            Io::Pcap if self.updates.is_some() => {
                wrong("--updates changes routes for a time: a capture is read at once")
            }
            Io::Memory if self.batch_wait.is_some() && self.rate.is_none() => wrong(
                "--batch-wait is for packets that arrive at a rate: it goes with --rate or --io socket",
            ),
            Io::Pcap if self.batch_wait.is_some() => wrong(
                "--batch-wait is for packets that arrive at a rate: a capture is read at once",
            ),
            _ if self.device.device.is_some()
                && self.fallback.is_none()
                && self.cpu.has_cpu_arguments() =>
            {
                wrong("--engine-lpm6 and --simd apply to CPUs, not to a device: leave them out")
            }
            _ => Ok(()),
        }
    }
}

/// The requested function, or the one that there are tables for.
pub(super) fn function(
    requested: Option<Function>,
    input: &EngineInput,
) -> Result<Function, Failure> {
    let (routes, rules) = (input.has_routes, input.has_rules);
    let function = requested.unwrap_or(match (routes, rules) {
        (true, true) => Function::Both,
        (_, false) => Function::Lpm,
        (false, true) => Function::Acl,
    });
    if function.routes() && !routes {
        return Err(Failure::Input(format!(
            "--function {function} needs routes: name them with --rib FILE"
        )));
    }
    if function.filters() && !rules {
        return Err(Failure::Input(format!(
            "--function {function} needs rules: name them with --rules FILE"
        )));
    }
    Ok(function)
}

/// A duration above zero, as in 500ms, 10s, 5m.
fn time(text: &str) -> Result<Duration, String> {
    let Span(time) = text.parse()?;
    if time.is_zero() {
        return Err("no time at all".to_owned());
    }
    Ok(time)
}
