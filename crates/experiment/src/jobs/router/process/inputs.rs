//! The inputs of a trial's process: a table image, and frames in a capture. Both are made once for all arms.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::BufWriter;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use acl::{Rule4, generate};
use anyhow::{Context, Result, bail};
use packet::pcap::{ETHERNET, Reader, Writer};
use router::frames::{Frames, Mix};

use super::rules;
use crate::jobs::router::files::{Files, table_key};
use crate::jobs::router::load::Load;
use crate::jobs::router::rules::rules_text;
use crate::jobs::router::tables::Traffic;
use crate::program::Lowroad;

const SEED: u64 = 11;
/// Frames that come over and over.
const PACKETS: usize = 1 << 18;
/// Bytes of a frame that is made up.
const LENGTH: usize = 64;

/// Files that were made so far.
#[derive(Debug)]
pub(super) struct Inputs {
    folder: PathBuf,
    images: HashMap<String, PathBuf>,
    packets: HashMap<String, Packets>,
}

/// Frames, in memory and as a capture.
#[derive(Clone, Debug)]
pub(super) struct Packets {
    pub(super) frames: Arc<Frames>,
    capture: PathBuf,
}

impl Packets {
    /// Has a process read them into its memory.
    pub(super) fn name(&self, command: &mut Command) {
        command.arg("--capture").arg(&self.capture);
    }
}

impl Inputs {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            images: HashMap::new(),
            packets: HashMap::new(),
        }
    }

    /// The load's routes and rules, as this build's `router build` writes them.
    pub(super) fn image(
        &mut self,
        load: &Load,
        lowroad: &Lowroad,
        files: &mut Files,
    ) -> Result<PathBuf> {
        let rules = rules(load);
        let key = format!("{} {rules} {}", table_key(load), lowroad.path().display());
        if let Some(found) = self.images.get(&key) {
            return Ok(found.clone());
        }
        let path = |name: &str| self.folder.join(format!("{name}-{}", self.images.len()));
        let (routes, list, image) = (path("routes"), path("rules"), path("image"));
        let mut text = String::new();
        for (first, len, hop) in files.prefixes(load)?.routes4() {
            // A gateway for each number of a next hop.
            let gateway = Ipv4Addr::from_bits((10 << 24) + u32::from(hop));
            writeln!(text, "{first}/{len} via {gateway}")?;
        }
        std::fs::write(&routes, text)?;
        let mut build = lowroad.command(&["router", "build", "--rib-format", "plain"]);
        build.arg("--rib").arg(&routes).arg("--out").arg(&image);
        if rules > 0 {
            let rules: Vec<Rule4> = generate::rules(generate::Kind::Firewall, rules, SEED);
            std::fs::write(&list, rules_text(&rules))?;
            build
                .args(["--rules-format", "classbench"])
                .arg("--rules")
                .arg(&list);
        }
        let built = build.output().context("lowroad router build")?;
        if !built.status.success() {
            bail!("{}", String::from_utf8_lossy(&built.stderr).trim());
        }
        self.images.insert(key, image.clone());
        Ok(image)
    }

    /// The load's packets.
    pub(super) fn packets(&mut self, load: &Load) -> Result<Packets> {
        let traffic = load.traffic.unwrap_or(Traffic::Random);
        let key = traffic.to_string();
        if let Some(found) = self.packets.get(&key) {
            return Ok(found.clone());
        }
        let frames = match traffic {
            Traffic::Pcap => captured()?,
            _ => Frames::anywhere(&Mix {
                pattern: None,
                packets: PACKETS,
                ipv6: 0,
                length: LENGTH,
                seed: SEED,
            }),
        };
        let capture = self.folder.join(format!("{key}.pcap"));
        write(&frames, &capture)?;
        let made = Packets {
            frames: Arc::new(frames),
            capture,
        };
        self.packets.insert(key, made.clone());
        Ok(made)
    }
}

fn write(frames: &Frames, path: &Path) -> Result<()> {
    let mut writer = Writer::new(BufWriter::new(File::create(path)?), ETHERNET)?;
    for at in 0..frames.len() {
        writer.write(0, frames.get(at))?;
    }
    writer.finish()?;
    Ok(())
}

/// The Ethernet frames of the corpus's captures; without a corpus, those of a generated mix.
fn captured() -> Result<Frames> {
    let mut frames = Frames::default();
    let Some(corpus) = std::env::var_os("LOWROAD_CORPUS").map(PathBuf::from) else {
        let mut mix = Vec::new();
        loadgen::mix::write(&mut mix, 100_000, 1)?;
        read(&mix[..], &mut frames)?;
        return Ok(frames);
    };
    for path in crate::jobs::router::rules::captures(&corpus)? {
        let name = || path.display().to_string();
        read(File::open(&path)?, &mut frames).with_context(name)?;
    }
    (!frames.is_empty())
        .then_some(frames)
        .context("no Ethernet frame in the corpus's captures")
}

/// Frames beyond `PACKETS` are left out.
fn read(input: impl std::io::Read, frames: &mut Frames) -> Result<()> {
    let mut reader = Reader::new(input)?;
    while let Some(frame) = reader.read()? {
        if frames.len() == PACKETS {
            break;
        }
        if frame.link_type == ETHERNET {
            frames.push(frame.bytes);
        }
    }
    Ok(())
}
