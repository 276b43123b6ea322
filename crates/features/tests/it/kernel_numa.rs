//! Where rings and tables lie: in the memory of the CPU that writes them. Needs a machine with several
//! NUMA nodes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use features::kernel::{FlowPlane, PacketPlane, Settings};
use sys::numa::{SYSFS, Topology};
use sys::require::{self, Class};

/// Pages by node.
type Pages = BTreeMap<u32, u64>;

/// How many CPUs each node has; none where there is only one node, or no right to look.
fn cpus_by_node() -> Option<Pages> {
    if !require::root() {
        return None;
    }
    let topology = Topology::read(Path::new(SYSFS)).unwrap();
    if topology.nodes().count() < 2 {
        require::skip(Class::Hardware, "needs several NUMA nodes");
        return None;
    }
    let mut cpus = Pages::new();
    for cpu in topology.cpus() {
        *cpus.entry(topology.node_of(cpu)).or_default() += 1;
    }
    Some(cpus)
}

/// What a line of the kernel says about a node's pages: `N1=256`.
fn pages(line: &str) -> Pages {
    let words = line.split_whitespace();
    words
        .filter_map(|word| {
            let (node, count) = word.strip_prefix('N')?.split_once('=')?;
            Some((node.parse().ok()?, count.parse().ok()?))
        })
        .collect()
}

/// How many of these lines each node has, all of whose pages must be of one.
fn areas_by_node<'a>(lines: impl Iterator<Item = &'a str>) -> Pages {
    let mut areas = Pages::new();
    for line in lines {
        let pages = pages(line);
        assert_eq!(pages.len(), 1, "on several nodes: {line}");
        *areas.entry(*pages.keys().next().unwrap()).or_default() += 1;
    }
    areas
}

#[test]
fn each_ring_lies_where_its_cpu_is() {
    const READERS: u32 = 2;
    const RING_BYTES: u32 = 1 << 20;
    let Some(mut expected) = cpus_by_node() else {
        return;
    };
    let settings = Settings {
        readers: READERS,
        ring_bytes: RING_BYTES,
        ..Settings::default()
    };
    let kept = PacketPlane::load(&settings).unwrap();
    let maps = fs::read_to_string("/proc/self/numa_maps").unwrap();
    // The part of a ring that has its records, twice in a row, behind a page of its own. Another test of this process
    // may have rings of another size.
    let mapped = 1 + 2 * u64::from(RING_BYTES) / 4096;
    let is_ring = |line: &&str| pages(line).values().sum::<u64>() == mapped;
    let rings = maps
        .lines()
        .filter(|line| line.contains("bpf-map"))
        .filter(is_ring);
    let found = areas_by_node(rings);
    expected
        .values_mut()
        .for_each(|cpus| *cpus *= u64::from(READERS));
    assert_eq!(found, expected, "{maps}");
    drop(kept);
}

#[test]
fn each_table_lies_where_its_cpu_is() {
    let Some(expected) = cpus_by_node() else {
        return;
    };
    let settings = Settings {
        flows_per_cpu: 16_384,
        ..Settings::default()
    };
    // A table's flows, of hundreds of bytes each.
    let is_table = |line: &&str| pages(line).values().sum::<u64>() > 1024;
    let areas = || -> Vec<String> {
        let areas = fs::read_to_string("/proc/vmallocinfo").unwrap();
        areas.lines().filter(is_table).map(str::to_owned).collect()
    };
    let before = areas();
    let kept = FlowPlane::load(&settings).unwrap();
    let mut after = areas();
    after.retain(|line| !before.contains(line));
    let found = areas_by_node(after.iter().map(String::as_str));
    assert_eq!(found, expected, "{after:#?}");
    drop(kept);
}
