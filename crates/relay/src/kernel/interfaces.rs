//! On which interfaces a stream's programs must run, where the plan leaves that open, and which
//! frames are for these interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use datapath::Error;
use netdev::{Link, Netlink};

use crate::plan::{Plan, Stream};

/// The plan with every stream's interfaces named: where it names none, those that have one of its
/// ingest addresses, or every device that is up when none has (a multicast group). What comes in by
/// another is userspace's, as everything a fast path does not know.
pub(crate) fn resolved(plan: &Plan) -> Result<Plan, Error> {
    let mut plan = plan.clone();
    if plan
        .streams
        .iter()
        .all(|stream| !stream.interfaces.is_empty())
    {
        return Ok(plan);
    }
    let failed = |error| Error::failed("listing interfaces", error);
    let mut netlink = Netlink::new().map_err(failed)?;
    let links = netlink.links().map_err(failed)?;
    let addresses = netlink.addresses().map_err(failed)?;
    let addresses: Vec<(u32, IpAddr)> = addresses
        .iter()
        .map(|address| (address.ifindex, address.address))
        .collect();
    for stream in &mut plan.streams {
        if stream.interfaces.is_empty() {
            stream.interfaces = having(stream, &links, &addresses);
        }
    }
    Ok(plan)
}

fn having(stream: &Stream, links: &[Link], addresses: &[(u32, IpAddr)]) -> Vec<u32> {
    let ours = |address: &IpAddr| stream.ingest.iter().any(|at| at.ip() == *address);
    let usable = |index: u32| {
        links
            .iter()
            .any(|link| link.index == index && link.up && !link.loopback)
    };
    let found: BTreeSet<u32> = addresses
        .iter()
        .filter(|(index, address)| ours(address) && usable(*index))
        .map(|(index, _)| *index)
        .collect();
    if found.is_empty() {
        return links
            .iter()
            .map(|link| link.index)
            .filter(|index| usable(*index))
            .collect();
    }
    found.into_iter().collect()
}

/// The loopback, in every namespace. It has no native XDP, and what this machine sends itself is
/// userspace's to relay.
const LOOPBACK: u32 = 1;

/// Every interface of a resolved plan that programs are attached to now: one that is gone comes
/// back under another index, in another plan.
pub(crate) fn present(plan: &Plan) -> Result<BTreeSet<u32>, Error> {
    Ok(macs(plan)?.into_keys().collect())
}

/// Every interface of a resolved plan that programs may be attached to.
fn all(plan: &Plan) -> BTreeSet<u32> {
    plan.streams
        .iter()
        .flat_map(|stream| stream.interfaces.iter().copied())
        .filter(|ifindex| *ifindex != LOOPBACK)
        .collect()
}

/// The link-layer address of each of these interfaces that is there.
pub(crate) fn macs(plan: &Plan) -> Result<BTreeMap<u32, [u8; 6]>, Error> {
    let failed = |error| Error::failed("reading the interfaces' addresses", error);
    let links = Netlink::new().and_then(|mut netlink| netlink.links());
    let wanted = all(plan);
    let links = links.map_err(failed)?.into_iter();
    let present = links.filter(|link| wanted.contains(&link.index));
    Ok(present.map(|link| (link.index, link.mac)).collect())
}
