//! The engines there are: which program has each, and what it can look up in.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use datapath::Missing;

use super::tables::Table;
use crate::program::Lowroad;

/// The kind of table that an engine looks up in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableKind {
    Ipv4,
    Ipv6,
    Rules,
}

/// The program that runs an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// This program, as another process.
    Own,
    /// A program of `peers/`; with DPDK's memory or without, and by instructions that not every CPU has.
    Peer {
        name: &'static str,
        dpdk: bool,
        simd: Option<&'static str>,
    },
}

/// An engine under test.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arm {
    pub(super) name: &'static str,
    pub(super) program: Program,
    pub(super) tables: &'static [TableKind],
    /// Whether it can change while it looks up.
    pub(super) updates: bool,
}

const V4: &[TableKind] = &[TableKind::Ipv4];
const V6: &[TableKind] = &[TableKind::Ipv6];
const RULES: &[TableKind] = &[TableKind::Rules];
const DPDK_LPM: Program = Program::Peer {
    name: "dpdk-lpm",
    dpdk: true,
    simd: None,
};
const DPDK_VECTORS: Program = Program::Peer {
    name: "dpdk-lpm",
    dpdk: true,
    simd: Some("avx512"),
};
const DPDK_ACL: Program = Program::Peer {
    name: "dpdk-acl",
    dpdk: true,
    simd: None,
};
const BART: Program = Program::Peer {
    name: "bart",
    dpdk: false,
    simd: None,
};

/// The engine that we recommend, whatever it looks up in.
pub(super) const LOWROAD: &str = "lowroad";

/// The one list of engines.
#[rustfmt::skip]
const ARMS: &[Arm] = &[
    Arm { name: LOWROAD, program: Program::Own, tables: &[TableKind::Ipv4, TableKind::Ipv6, TableKind::Rules], updates: true },
    Arm { name: "bytes-portable", program: Program::Own, tables: V4, updates: true },
    Arm { name: "bytes-avx2", program: Program::Own, tables: V4, updates: true },
    Arm { name: "bytes-avx512", program: Program::Own, tables: V4, updates: true },
    Arm { name: "mixed-portable", program: Program::Own, tables: V4, updates: true },
    Arm { name: "mixed-avx2", program: Program::Own, tables: V4, updates: true },
    Arm { name: "words-portable", program: Program::Own, tables: V4, updates: true },
    Arm { name: "words-avx2", program: Program::Own, tables: V4, updates: true },
    Arm { name: "flat-portable", program: Program::Own, tables: V6, updates: true },
    Arm { name: "flat-avx2", program: Program::Own, tables: V6, updates: true },
    Arm { name: "flat-avx512", program: Program::Own, tables: V6, updates: true },
    Arm { name: "paged-portable", program: Program::Own, tables: V6, updates: true },
    Arm { name: "paged-avx2", program: Program::Own, tables: V6, updates: true },
    Arm { name: "paged-avx512", program: Program::Own, tables: V6, updates: true },
    Arm { name: "acl-portable", program: Program::Own, tables: RULES, updates: false },
    Arm { name: "acl-avx2", program: Program::Own, tables: RULES, updates: false },
    Arm { name: "acl-avx512", program: Program::Own, tables: RULES, updates: false },
    Arm { name: "bpf-arrays", program: Program::Own, tables: V4, updates: false },
    Arm { name: "bpf_lpm_trie", program: Program::Own, tables: V4, updates: false },
    Arm { name: "rte_lpm", program: DPDK_LPM, tables: V4, updates: false },
    Arm { name: "rte_lpm-x4", program: DPDK_LPM, tables: V4, updates: false },
    Arm { name: "rte_fib", program: DPDK_VECTORS, tables: V4, updates: false },
    Arm { name: "rte_fib-scalar", program: DPDK_LPM, tables: V4, updates: false },
    Arm { name: "rte_fib-4b", program: DPDK_VECTORS, tables: V4, updates: false },
    Arm { name: "rte_fib-4b-scalar", program: DPDK_LPM, tables: V4, updates: false },
    Arm { name: "rte_fib6", program: DPDK_VECTORS, tables: V6, updates: false },
    Arm { name: "rte_fib6-scalar", program: DPDK_LPM, tables: V6, updates: false },
    Arm { name: "rte_acl", program: DPDK_ACL, tables: RULES, updates: false },
    Arm { name: "rte_acl-avx2", program: DPDK_ACL, tables: RULES, updates: false },
    Arm { name: "bart", program: BART, tables: V4, updates: false },
    Arm { name: "bart-fast", program: BART, tables: V4, updates: false },
    Arm { name: "bart6", program: BART, tables: V6, updates: false },
    Arm { name: "bart6-fast", program: BART, tables: V6, updates: false },
];

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    ARMS.iter().map(|arm| arm.name)
}

pub(super) fn find(name: &str) -> Option<&'static Arm> {
    ARMS.iter().find(|arm| arm.name == name)
}

pub(super) fn table_kind(table: &Table) -> TableKind {
    match table {
        Table::Ipv4(_) => TableKind::Ipv4,
        Table::Ipv6(_) => TableKind::Ipv6,
        Table::Rules(_) => TableKind::Rules,
    }
}

impl Arm {
    /// Whether this machine can run it.
    pub(super) fn check(&self) -> Result<(), Missing> {
        match self.program {
            Program::Own => {
                let simd = self.name.split_once('-').map(|(_, simd)| simd);
                let simd = simd.filter(|_| !self.name.starts_with("bpf"));
                check_simd(simd, "the same engine runs with -portable")
            }
            Program::Peer { name, simd, .. } => {
                check_simd(simd, "the same engine runs with -scalar")?;
                peer(name).map(drop)
            }
        }
    }
}

fn check_simd(wanted: Option<&str>, remedy: &str) -> Result<(), Missing> {
    let there = |simd: &str| sys::simd::Simd::available().any(|known| known.name() == simd);
    match wanted {
        Some(simd) if !there(simd) => Err(Missing::new(format!("this CPU has no {simd}"), remedy)),
        _ => Ok(()),
    }
}

/// The program with the engines of a build: this one, or `lowroad-compare` beside another `lowroad`.
///
/// # Errors
/// There is none beside it.
pub(super) fn engine_program(lowroad: &Lowroad) -> Result<PathBuf> {
    if *lowroad == Lowroad::own() {
        let own = Path::new("/proc/self/exe");
        return Ok(std::fs::read_link(own).unwrap_or_else(|_| own.to_owned()));
    }
    let program = lowroad.path().with_file_name("lowroad-compare");
    ensure!(
        program.is_file(),
        "engines run in {}, which does not exist: build it beside lowroad",
        program.display()
    );
    Ok(program)
}

/// Where a peer's program is: what LOWROAD_PEERS names, else `peers` beside this program or above.
pub(super) fn peer(name: &str) -> Result<PathBuf, Missing> {
    let own = std::env::current_exe().ok();
    let above = own.iter().flat_map(|own| own.ancestors().skip(1).take(2));
    let folders = std::env::var_os("LOWROAD_PEERS")
        .map(PathBuf::from)
        .into_iter()
        .chain(above.map(|folder| folder.join("peers")));
    folders
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| {
            Missing::new(
                format!("the peer {name} is not built"),
                "peers/build.sh builds what this machine has the libraries for; LOWROAD_PEERS names the folder",
            )
        })
}
