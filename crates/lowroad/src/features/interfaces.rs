//! `lowroad features interfaces`: the network interfaces, and which datapaths can run on each.

use clap::Args;
use datapath::{Datapath, Missing};
use features::live::{Device, Features, OFFLOADS, datapaths};
use serde_json::{Value, json};

use crate::exit::{self, Failure};

#[derive(Debug, Args)]
pub(super) struct Interfaces {
    /// List only this one
    interface: Option<String>,
}

impl Interfaces {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let mut devices = Device::all()?;
        if let Some(name) = &self.interface {
            devices.retain(|device| device.link.name == *name);
            if devices.is_empty() {
                let what = format!("no interface {name} in this network namespace");
                return Err(Failure::Input(what));
            }
        }
        let datapaths = datapaths();
        if json {
            let all = devices.iter().map(|device| device_json(device, &datapaths));
            let value = json!({"schema": 1, "interfaces": all.collect::<Vec<_>>()});
            return exit::print(&format!("{value:#}\n"));
        }
        let all = devices.iter().map(|device| block(device, &datapaths));
        exit::print(&all.collect::<Vec<_>>().join("\n"))
    }
}

fn device_json(device: &Device, datapaths: &[Box<dyn Datapath<Features>>]) -> Value {
    let link = &device.link;
    let datapaths: Vec<Value> = datapaths
        .iter()
        .map(|datapath| {
            let found = device.check(&**datapath);
            let mut value = check_json(datapath.name(), found.as_ref().err());
            value["mode"] = json!(found.ok());
            value
        })
        .collect();
    let offloads = OFFLOADS.map(|name| check_json(name, device.offload(name).err().as_ref()));
    let channels = device.channels.map(|channels| {
        json!({
            "rx": channels.rx,
            "tx": channels.tx,
            "combined": channels.combined,
            "max_rx": channels.max_rx,
            "max_tx": channels.max_tx,
            "max_combined": channels.max_combined,
        })
    });
    json!({
        "name": link.name,
        "index": link.index,
        "state": state(device),
        "kind": link.kind,
        "driver": device.driver,
        "mtu_bytes": link.mtu,
        "rx_queues": link.rx_queues,
        "tx_queues": link.tx_queues,
        "channels": channels,
        "numa_node": device.numa_node,
        "xdp_mode": link.xdp.map(|mode| mode.name()),
        "xdp_program": link.xdp_program,
        "xdp_support": device.support,
        "datapaths": datapaths,
        "offloads": offloads,
    })
}

fn check_json(name: &str, missing: Option<&Missing>) -> Value {
    let mut value = json!({"name": name, "available": missing.is_none()});
    if let Some(missing) = missing {
        value["what"] = json!(missing.what);
        value["remedy"] = json!(missing.remedy);
    }
    value
}

fn state(device: &Device) -> &'static str {
    match (device.link.up, device.link.carrier) {
        (false, _) => "down",
        (true, false) => "no carrier",
        (true, true) => "up",
    }
}

/// A line about the device, and one for each datapath and offload.
fn block(device: &Device, datapaths: &[Box<dyn Datapath<Features>>]) -> String {
    let link = &device.link;
    let driver = device.driver.as_deref().unwrap_or("no driver");
    let node = device.numa_node.map(|node| format!(", NUMA node {node}"));
    let mut text = format!(
        "{}  {}, {driver}, {} rx and {} tx queues, MTU {}{}\n",
        link.name,
        state(device),
        link.rx_queues,
        link.tx_queues,
        link.mtu,
        node.unwrap_or_default()
    );
    let mut lines: Vec<[String; 3]> = Vec::new();
    for datapath in datapaths {
        let found = device.check(&**datapath);
        lines.push(line(
            datapath.name(),
            found.map(|mode| format!("yes, {mode}")),
        ));
    }
    for name in OFFLOADS {
        let found = device.offload(name);
        lines.push(line(name, found.map(|()| used(name).to_owned())));
    }
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max();
    let (names, whats) = (width(0).unwrap_or(0), width(1).unwrap_or(0));
    for [name, what, remedy] in &lines {
        let line = format!("  {name:<names$}  {what:<whats$}  {remedy}");
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn line(name: &str, found: Result<String, Missing>) -> [String; 3] {
    match found {
        Ok(what) => [name.to_owned(), what, String::new()],
        Err(missing) => [name.to_owned(), missing.what, missing.remedy],
    }
}

/// What becomes of something that a device has.
fn used(offload: &str) -> &'static str {
    match offload {
        "zero-copy" => "the driver has it; af-xdp copies",
        "rx-timestamp" => "the driver has it; packets get the kernel's time",
        "rx-hash" => "the driver has it; flows are found by a hash of their own",
        _ => "the driver has it; tags are read from frames",
    }
}
