//! The frames that packets are looked up by: generated for the tables, or from a capture.

use std::path::{Path, PathBuf};

use packet::pcap;
use router::engine::{Contents, Function};
use router::frames::{Frames, Mix};
use router::traffic::Pattern;

use crate::Error;

/// Where frames in memory come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// The Ethernet frames of a capture; `-` is standard input.
    Capture(PathBuf),
    Generated(Generator),
}

/// What packets are generated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Addresses of the routes.
    Routes(Pattern),
    /// Five-tuples of the rules.
    Rules,
    /// Any address and port, routed or not.
    Random,
}

impl Traffic {
    pub fn name(self) -> &'static str {
        match self {
            Self::Routes(pattern) => pattern.name(),
            Self::Rules => "rules",
            Self::Random => "random",
        }
    }
}

/// Generates frames for tables; the same for the same seed.
#[derive(Clone, Copy, Debug)]
pub struct Generator {
    /// Defaults to any prefix of the routes, or to rules if the table has no routes.
    pub traffic: Option<Traffic>,
    pub packets: usize,
    /// Bytes of a frame, without its checksum.
    pub length: usize,
    /// Per cent of the packets; by default none, or all where only IPv6 has routes or rules.
    pub ipv6: Option<u8>,
    pub seed: u64,
}

impl Source {
    /// The frames, and a description of them.
    pub(super) fn frames(
        &self,
        contents: &Contents,
        function: Function,
    ) -> Result<(Frames, String), Error> {
        match self {
            Self::Capture(path) => read(path),
            Self::Generated(generator) => generator.frames(contents, function),
        }
    }
}

fn read(path: &Path) -> Result<(Frames, String), Error> {
    let name = path.display();
    let input = pcap::open(path).map_err(|error| Error::file(path, error))?;
    let (frames, others) =
        Frames::read(input, usize::MAX).map_err(|error| Error::file(path, error))?;
    if frames.is_empty() {
        return Err(Error::Input(format!("{name} has no Ethernet frames")));
    }
    if others > 0 {
        tracing::warn!("{name}: {others} frames of other link types are left out");
    }
    Ok((frames, name.to_string()))
}

impl Generator {
    /// The frames, and a description of them.
    ///
    /// # Errors
    /// The tables have nothing to generate such packets for.
    pub fn frames(
        &self,
        contents: &Contents,
        function: Function,
    ) -> Result<(Frames, String), Error> {
        let routed = !contents.v4.is_empty() || !contents.v6.is_empty();
        let traffic = self.traffic.unwrap_or(if routed {
            Traffic::Routes(Pattern::PerPrefix)
        } else {
            Traffic::Rules
        });
        let pattern = match traffic {
            Traffic::Routes(pattern) => Some(pattern),
            Traffic::Rules | Traffic::Random => None,
        };
        if pattern.is_some() && !routed {
            let name = traffic.name();
            return Err(Error::Input(format!(
                "--traffic {name} is drawn from routes, and {function} has none: use --traffic rules"
            )));
        }
        let only6 = contents.v4.is_empty() && contents.rules.v4.is_empty();
        let mix = Mix {
            pattern,
            packets: self.packets,
            ipv6: self.ipv6.unwrap_or(if only6 { 100 } else { 0 }),
            length: self.length,
            seed: self.seed,
        };
        let frames = match traffic {
            Traffic::Random => Frames::anywhere(&mix),
            Traffic::Routes(_) | Traffic::Rules => Frames::generate(contents, &mix),
        };
        if frames.is_empty() {
            return Err(Error::Input(
                "cannot generate packets: the tables have no routes of this family; see --ipv6"
                    .to_owned(),
            ));
        }
        let (count, name, seed) = (frames.len(), traffic.name(), self.seed);
        let description = format!("{count} frames made up, {name}, seed {seed}");
        Ok((frames, description))
    }
}
