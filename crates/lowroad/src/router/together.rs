//! How a running router puts packets together, and where it decides about them: arguments.

use std::time::Duration;

use clap::{Args, ValueEnum};
use control::units::Span;
use router::config::{Batches, Datapath};

use crate::exit::Failure;

#[derive(Debug, Args)]
#[group(id = "batches", multiple = true)]
pub(super) struct Together {
    /// Of af-xdp: the most packets that are decided about together [default: 256]
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// Of af-xdp: how long the first packet of a batch waits for others, as in 50us [default: not at all]
    #[arg(long, value_name = "TIME", value_parser = wait)]
    batch_wait: Option<Duration>,
    /// Of af-xdp: decide on this device: see lowroad router devices
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// What goes on when the device fails, or refuses tables or kernels [default: nothing]
    #[arg(long, value_enum, requires = "device")]
    fallback: Option<Fallback>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Fallback {
    /// This machine's CPUs, by the same tables
    Cpu,
}

impl Together {
    pub(super) fn taken(&self, datapath: Datapath) -> Result<Batches, Failure> {
        let usual = Batches::default();
        let batches = Batches {
            batch: self.batch.unwrap_or(usual.batch),
            wait: self.batch_wait.unwrap_or(usual.wait),
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

/// As people write it; none at all is none.
fn wait(text: &str) -> Result<Duration, String> {
    text.parse().map(|Span(time)| time)
}
