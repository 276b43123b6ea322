//! The engine's own network: where it publishes ports, and what it gives a container.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use netdev::Netlink;
use serde_json::Value;
use sys::netns::Namespace;

use super::cli::Engine;
use crate::environment::EngineNetwork;

/// The name that engines give a container's first device.
const DEVICE: &str = "eth0";

/// The bridge's own address: only this machine, and hosts with a cable to the bridge, reach a port there.
pub(super) fn address(engine: &Engine) -> Result<IpAddr, String> {
    let said = engine.ask(&["network", "inspect", engine.bridge])?;
    let none = || format!("its network {} has no IPv4 subnet", engine.bridge);
    let said: Value = serde_json::from_str(&said).map_err(|_| none())?;
    let network = &said[0];
    let subnets = [&network["IPAM"]["Config"], &network["subnets"]];
    let mut subnets = subnets.into_iter().filter_map(Value::as_array).flatten();
    subnets.find_map(first_address).ok_or_else(none)
}

/// The subnet's gateway; its first address if the engine names none.
fn first_address(subnet: &Value) -> Option<IpAddr> {
    let either = |one: &str, other: &str| subnet[one].as_str().or_else(|| subnet[other].as_str());
    if let Some(gateway) = either("Gateway", "gateway").filter(|gateway| !gateway.is_empty()) {
        return gateway.parse::<Ipv4Addr>().ok().map(IpAddr::from);
    }
    let (network, _) = either("Subnet", "subnet")?.split_once('/')?;
    let network: Ipv4Addr = network.parse().ok()?;
    Some(Ipv4Addr::from_bits(network.to_bits() + 1).into())
}

/// The place in the network of the container of this name, whose first process is this one.
pub(super) fn inspect(
    engine: &Engine,
    name: &str,
    process: u32,
    at: IpAddr,
) -> Result<EngineNetwork, String> {
    let format = "{{json .NetworkSettings.Networks}}";
    let said = engine.ask(&["inspect", "--format", format, name])?;
    let networks: Value = serde_json::from_str(&said).map_err(|error| error.to_string())?;
    let inside = networks[engine.bridge]["IPAddress"].as_str();
    let inside = inside.and_then(|address| address.parse().ok());
    let outside = outside(process).map_err(|error| format!("where it runs: {error}"))?;
    check(&outside, at)?;
    Ok(EngineNetwork {
        namespace: outside,
        published_address: at,
        device: DEVICE.to_owned(),
        address: inside.ok_or_else(|| format!("its container has no address: {said}"))?,
    })
}

/// A container's parent is the engine's, and lives where the engine's bridge is.
fn outside(process: u32) -> Result<Namespace, String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"));
    let stat = stat.map_err(|error| error.to_string())?;
    let rest = stat.rsplit_once(") ").map(|(_, rest)| rest);
    let parent = rest.and_then(|rest| rest.split(' ').nth(1));
    let parent = parent.ok_or_else(|| format!("process {process} has no parent"))?;
    let file = PathBuf::from(format!("/proc/{parent}/ns/net"));
    Namespace::open(&file).map_err(|error| error.to_string())
}

fn check(outside: &Namespace, at: IpAddr) -> Result<(), String> {
    let addresses = outside.run(|| Netlink::new()?.addresses());
    let addresses = addresses.map_err(|error| error.to_string())?;
    let addresses = addresses.map_err(|error| error.to_string())?;
    match addresses.iter().any(|known| known.address == at) {
        true => Ok(()),
        false => Err(format!(
            "its bridge with {at} is not where it runs containers"
        )),
    }
}
