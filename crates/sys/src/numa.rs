//! Which memory is near to which CPUs and devices: NUMA nodes as sysfs shows them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// The kernel's folder of devices.
pub const SYSFS: &str = "/sys";

/// The CPUs that are online, by their nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology(BTreeMap<u32, Vec<u32>>);

impl Topology {
    /// Reads it from sysfs, or what is like it.
    ///
    /// # Errors
    /// The list of CPUs is missing or malformed.
    pub fn read(sysfs: &Path) -> io::Result<Self> {
        let online = cpus(&sysfs.join("devices/system/cpu/online"))?;
        let mut nodes = BTreeMap::new();
        let folder = fs::read_dir(sysfs.join("devices/system/node"));
        for entry in folder.into_iter().flatten() {
            let entry = entry?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("node"));
            let Some(node) = number.and_then(|number| number.parse().ok()) else {
                continue;
            };
            let mut own = cpus(&entry.path().join("cpulist"))?;
            own.retain(|cpu| online.contains(cpu));
            nodes.insert(node, own);
        }
        let known: Vec<u32> = nodes.values().flatten().copied().collect();
        // A kernel without NUMA has all in one node, and shows none.
        let first = nodes.entry(0).or_default();
        first.extend(online.into_iter().filter(|cpu| !known.contains(cpu)));
        first.sort_unstable();
        Ok(Self(nodes))
    }

    /// Every CPU that is online, in the order of their numbers.
    pub fn cpus(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.0.values().flatten().copied().collect();
        all.sort_unstable();
        all
    }

    /// The node whose memory is near to a CPU; the first one's for a CPU that is not online.
    pub fn node_of(&self, cpu: u32) -> u32 {
        let has = |(_, cpus): &(&u32, &Vec<u32>)| cpus.contains(&cpu);
        self.0.iter().find(has).map_or(0, |(node, _)| *node)
    }

    /// Nodes that have CPUs.
    pub fn nodes(&self) -> impl Iterator<Item = u32> + '_ {
        let with_cpus = self.0.iter().filter(|(_, cpus)| !cpus.is_empty());
        with_cpus.map(|(node, _)| *node)
    }

    /// The CPUs near to a device: those of its node, or all where it has none with CPUs.
    pub fn near(&self, node: Option<u32>) -> Vec<u32> {
        match node.and_then(|node| self.0.get(&node)) {
            Some(cpus) if !cpus.is_empty() => cpus.clone(),
            _ => self.cpus(),
        }
    }
}

/// The node of a network interface's device; none for virtual ones, and where there is one node only.
pub fn device_node(sysfs: &Path, interface: &str) -> Option<u32> {
    let file = sysfs
        .join("class/net")
        .join(interface)
        .join("device/numa_node");
    // -1 for no node.
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn cpus(file: &Path) -> io::Result<Vec<u32>> {
    let list = fs::read_to_string(file)?;
    parse_cpus(list.trim()).ok_or_else(|| {
        let what = format!(
            "{} has {list:?}, which is not a list of CPUs",
            file.display()
        );
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

/// A list such as `0-3,8`; a node without CPUs has an empty one.
fn parse_cpus(list: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in list.split(',').filter(|_| !list.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sysfs with these files.
    fn sysfs(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const ONLINE: &str = "devices/system/cpu/online";

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(parse_cpus("0"), Some(vec![0]));
        assert_eq!(parse_cpus("0-2,5,7-8"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(parse_cpus(""), Some(vec![]));
        assert_eq!(parse_cpus("x"), None);
    }

    #[test]
    fn each_cpu_has_the_node_that_lists_it() {
        let root = sysfs(&[
            (ONLINE, "0-7\n"),
            ("devices/system/node/node0/cpulist", "0-1,4-5\n"),
            ("devices/system/node/node1/cpulist", "2-3,6-7\n"),
            ("devices/system/node/possible", "0-1\n"),
        ]);
        let topology = Topology::read(root.path()).unwrap();
        assert_eq!([0, 5, 2, 7].map(|cpu| topology.node_of(cpu)), [0, 0, 1, 1]);
        assert_eq!(topology.nodes().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(topology.cpus(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(topology.near(Some(1)), [2, 3, 6, 7]);
        assert_eq!(topology.near(None), topology.cpus());
    }

    #[test]
    fn cpus_that_are_offline_and_memory_without_cpus_are_no_place() {
        let root = sysfs(&[
            (ONLINE, "0,2\n"),
            ("devices/system/node/node0/cpulist", "0-1\n"),
            ("devices/system/node/node1/cpulist", "2-3\n"),
            ("devices/system/node/node2/cpulist", "\n"),
        ]);
        let topology = Topology::read(root.path()).unwrap();
        assert_eq!(topology.cpus(), [0, 2]);
        assert_eq!(topology.nodes().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(topology.near(Some(1)), [2]);
        assert_eq!(topology.near(Some(2)), [0, 2], "nobody can run there");
        assert_eq!(topology.near(Some(9)), [0, 2], "there is no such node");
    }

    #[test]
    fn a_kernel_without_nodes_has_one() {
        let root = sysfs(&[(ONLINE, "0-1\n")]);
        let topology = Topology::read(root.path()).unwrap();
        assert_eq!(topology.nodes().collect::<Vec<_>>(), [0]);
        assert_eq!(topology.node_of(1), 0);
        assert!(Topology::read(sysfs(&[(ONLINE, "?")]).path()).is_err());
        assert!(Topology::read(sysfs(&[]).path()).is_err());
    }

    #[test]
    fn a_device_says_its_node_or_none() {
        let root = sysfs(&[
            ("class/net/eth0/device/numa_node", "1\n"),
            ("class/net/eth1/device/numa_node", "-1\n"),
        ]);
        assert_eq!(device_node(root.path(), "eth0"), Some(1));
        assert_eq!(device_node(root.path(), "eth1"), None);
        assert_eq!(device_node(root.path(), "veth0"), None);
    }
}
