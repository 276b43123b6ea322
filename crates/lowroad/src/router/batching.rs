//! The arguments that say how a running router batches packets, and which device processes them.

use clap::{Args, ValueEnum};
use router::config::{Batches, Datapath};
use units::Span;

use crate::exit::Failure;

#[derive(Debug, Args)]
#[group(id = "batches", multiple = true)]
#[command(next_help_heading = "Batches")]
pub(super) struct Batching {
    /// With af-xdp: process at most N packets together [default: 256]
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// With af-xdp: let the first packet of a batch wait so long for others, as in 50us [default: 0]
    #[arg(long, value_name = "DURATION")]
    batch_wait: Option<Span>,
    /// With af-xdp: process packets on this device: see lowroad router devices
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Continue with these if the device fails, or refuses tables or kernels [default: stop]
    #[arg(long, value_enum, requires = "device")]
    fallback: Option<Fallback>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Fallback {
    /// This machine's CPUs, with the same tables
    Cpu,
}

impl Batching {
    pub(super) fn batches(&self, datapath: Datapath) -> Result<Batches, Failure> {
        let default = Batches::default();
        let batches = Batches {
            batch: self.batch.unwrap_or(default.batch),
            wait: self.batch_wait.map_or(default.wait, |Span(wait)| wait),
            device: self.device.clone(),
            fallback: self.fallback.is_some(),
        };
        match batches.complaint(datapath) {
            None => Ok(batches),
            Some((name, what)) => {
                let name = name.replace('_', "-");
                Err(Failure::Input(format!("--{name}: {what}")))
            }
        }
    }
}
