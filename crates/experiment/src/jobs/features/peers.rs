//! Programs that people make flows with today and that a file of experiments/arms cannot state: one in Python is
//! charged from the first packet on, without its start.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use datapath::Missing;
use serde_json::Value;

use super::file::{RunCost, timed};

pub(super) trait Peer: Sync {
    fn name(&self) -> &'static str;
    fn check(&self) -> Result<(), Missing>;
    /// Reads a capture to its end; what it writes goes below the folder.
    fn read(&self, capture: &Path, folder: &Path) -> Result<RunCost>;
}

const PEERS: &[&dyn Peer] = &[&NfStream];

pub(super) fn find(name: &str) -> Option<&'static dyn Peer> {
    PEERS.iter().copied().find(|peer| peer.name() == name)
}

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    PEERS.iter().map(|peer| peer.name())
}

/// NFStream with its statistics, and without nDPI, which costs it more than the statistics do. Flows
/// are only counted: writing them would be slower.
struct NfStream;

/// One meter: more share a file by each reading all of it.
const NFSTREAM: &str = "\
import json, resource, sys, time
import nfstream
def cpu():
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)
wall, used = time.monotonic(), cpu()
flows = nfstream.NFStreamer(source=sys.argv[1], statistical_analysis=True, n_dissections=0, n_meters=1)
count = sum(1 for flow in flows)
print(json.dumps({'flows': count, 'wall_s': time.monotonic() - wall, 'cpu_s': cpu() - used}))
";

impl Peer for NfStream {
    fn name(&self) -> &'static str {
        "nfstream"
    }

    fn check(&self) -> Result<(), Missing> {
        let found = Command::new(python())
            .args(["-c", "import nfstream"])
            .output()
            .is_ok_and(|output| output.status.success());
        found.then_some(()).ok_or_else(|| {
            Missing::new(
                "NFStream is not installed",
                "pip install nfstream==6.6.0 in a virtual environment, and name its python in LOWROAD_PYTHON",
            )
        })
    }

    fn read(&self, capture: &Path, folder: &Path) -> Result<RunCost> {
        let script = folder.join("read.py");
        std::fs::write(&script, NFSTREAM)?;
        let (_, said) = timed(Command::new(python()).arg(&script).arg(capture))?;
        let account: Value = serde_json::from_slice(&said).context("NFStream's account")?;
        let seconds = |name: &str| {
            let value = account[name].as_f64();
            value.with_context(|| format!("NFStream's account has no {name}"))
        };
        Ok(RunCost {
            wall: Duration::from_secs_f64(seconds("wall_s")?),
            cpu: Duration::from_secs_f64(seconds("cpu_s")?),
        })
    }
}

fn python() -> PathBuf {
    std::env::var_os("LOWROAD_PYTHON").map_or_else(|| "python3".into(), PathBuf::from)
}
