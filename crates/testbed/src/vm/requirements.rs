//! The requirements of virtual machines.

use std::path::Path;

use boot::{Flavour, Kernel};
use datapath::Missing;

use super::machine::MEMORY_MIB;
use crate::agent::binary::agent;
use crate::network::root;
use crate::process::program::find;

/// Whether a guest with this kernel can run here. It downloads the kernel where there is none.
pub(super) fn probe(flavour: Flavour) -> Result<(), Missing> {
    check()?;
    Kernel::available(flavour)
        .map(drop)
        .map_err(|error| Missing::new(format!("no kernel for a guest: {error}"), "apt-get update"))
}

/// Whether there is everything that a guest needs except its kernel.
pub(super) fn check() -> Result<(), Missing> {
    root()?;
    if find(Path::new("qemu-system-x86_64")).is_none() {
        let what = "virtual machines need qemu-system-x86_64";
        return Err(Missing::new(what, "apt-get install qemu-system-x86"));
    }
    if !Path::new("/dev/net/tun").exists() {
        return Err(Missing::new("there is no /dev/net/tun", "modprobe tun"));
    }
    agent().map(drop)
}

/// Whether there is room for a virtual machine's memory in this machine's huge pages.
pub fn huge_pages() -> Result<(), Missing> {
    let pages = MEMORY_MIB / 2;
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let number = |name| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u32>().ok()
    };
    match (number("Hugepagesize:"), number("HugePages_Free:")) {
        (Some(2048), Some(free)) if free >= pages => Ok(()),
        (Some(2048), free) => Err(Missing::new(
            format!(
                "{} of {pages} huge pages of 2 MiB are free",
                free.unwrap_or(0)
            ),
            format!("sysctl vm.nr_hugepages={pages}"),
        )),
        _ => Err(Missing::new(
            "this machine has no huge pages of 2 MiB",
            "leave the arm out",
        )),
    }
}
