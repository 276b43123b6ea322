//! Keys and their known answers, read once.

use std::path::{Path, PathBuf};

use acl::Key4;
use anyhow::{Context, Result};

/// The keys of one file, as each kind of table reads them.
#[derive(Default)]
pub(super) struct Keys {
    path: PathBuf,
    pub(super) v4: Vec<u32>,
    pub(super) v6: Vec<[u8; 16]>,
    pub(super) packets: Vec<Key4>,
    /// Answers of two bytes, and of four.
    pub(super) hops: Vec<u32>,
    pub(super) rules: Vec<u32>,
}

impl Keys {
    /// The keys of this file, which are kept for the next request.
    pub(super) fn keep<'a>(
        kept: &'a mut Option<Self>,
        keys: &Path,
        answers: Option<&Path>,
    ) -> Result<&'a Self> {
        if kept.as_ref().is_none_or(|kept| kept.path != keys) {
            *kept = None;
            *kept = Some(Self::read(keys, answers)?);
        }
        kept.as_ref().context("they were just read")
    }

    fn read(path: &Path, answers: Option<&Path>) -> Result<Self> {
        let read = |path: &Path| std::fs::read(path).with_context(|| path.display().to_string());
        let keys = read(path)?;
        let answers = answers.map(read).transpose()?.unwrap_or_default();
        Ok(Self {
            path: path.to_owned(),
            v4: words(&keys).map(u32::from_ne_bytes).collect(),
            v6: words(&keys).collect(),
            packets: words(&keys).map(packet).collect(),
            hops: words(&answers)
                .map(u16::from_ne_bytes)
                .map(u32::from)
                .collect(),
            rules: words(&answers).map(u32::from_ne_bytes).collect(),
        })
    }
}

fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
    bytes.as_chunks().0.iter().copied()
}

/// Protocol, three bytes that mean nothing, and fields as in packets.
fn packet(bytes: [u8; 16]) -> Key4 {
    let [
        protocol,
        _,
        _,
        _,
        s0,
        s1,
        s2,
        s3,
        d0,
        d1,
        d2,
        d3,
        sp0,
        sp1,
        dp0,
        dp1,
    ] = bytes;
    Key4 {
        protocol,
        padding: [0; 3],
        source: [s0, s1, s2, s3],
        destination: [d0, d1, d2, d3],
        source_port: [sp0, sp1],
        destination_port: [dp0, dp1],
    }
}
