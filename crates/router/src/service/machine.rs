//! What this machine has of what routers use: each datapath, and what some of them do better with.

use std::fs;

use datapath::Missing;
use netdev::Netlink;
use netdev::capability::xdp_support;

use super::check;
use crate::config::Datapath;
use crate::{listing, xdp};

/// Where the kernel says whether memory may come in large pages, and how much it can give.
const HUGE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const MEMORY: &str = "/proc/meminfo";

/// Each by its name, or what is missing and the remedy. Changes nothing.
pub fn machine() -> Vec<(&'static str, Result<(), Missing>)> {
    let datapaths = Datapath::ALL.map(|datapath| (datapath.name(), check(datapath)));
    let means = [
        ("xdp-native", native()),
        ("map-memory", memory()),
        ("nft", listing::nft()),
        ("huge-pages", huge()),
    ];
    datapaths.into_iter().chain(means).collect()
}

/// Of a device of which nothing is known it is tried.
fn native() -> Result<(), Missing> {
    let unknown = |error: netdev::Error| {
        Missing::new(
            format!("asking for devices: {error}"),
            "lowroad features interfaces says what each device has",
        )
    };
    let links = Netlink::new().and_then(|mut netlink| netlink.links());
    let mut links = links.map_err(unknown)?.into_iter();
    let has = links.any(|link| {
        let support = xdp_support(link.index).ok().flatten();
        !link.loopback && support.is_none_or(|support| support.native)
    });
    if has {
        return Ok(());
    }
    Err(Missing::new(
        "no interface has native XDP",
        "xdp_mode = \"generic\" in the router's configuration works on any device",
    ))
}

/// For the least tables of `xdp`, which the kernel makes whole.
fn memory() -> Result<(), Missing> {
    let wanted = xdp::min_memory();
    let text = fs::read_to_string(MEMORY).unwrap_or_default();
    let available = text.lines().find_map(|line| {
        let number = line.strip_prefix("MemAvailable:")?;
        number.split_whitespace().next()?.parse::<usize>().ok()
    });
    // Where the kernel does not say, loading will.
    let Some(available) = available.filter(|available| available << 10 < wanted) else {
        return Ok(());
    };
    let (has, wants) = (available >> 10, wanted >> 20);
    Err(Missing::new(
        format!("{has} MiB are available, the least tables of xdp take {wants} MiB"),
        "end other programs, or add memory",
    ))
}

fn huge() -> Result<(), Missing> {
    match fs::read_to_string(HUGE) {
        Ok(text) if text.contains("[never]") => Err(Missing::new(
            "transparent huge pages are off: tables of CPUs lie in small ones",
            format!("echo madvise > {HUGE}"),
        )),
        Ok(_) => Ok(()),
        Err(_) => Err(Missing::new(
            "this kernel has no transparent huge pages: tables of CPUs lie in small ones",
            "boot a kernel built with CONFIG_TRANSPARENT_HUGEPAGE",
        )),
    }
}
