//! `lowroad router devices`: the devices that can run kernels, and what is missing for others.

use gpu::DeviceInfo;
use serde_json::{Value, json};

use super::format::mib;
use crate::exit::{self, Failure};

pub(super) fn run(json: bool) -> Result<(), Failure> {
    let found = gpu::devices();
    if json {
        let backends: Vec<Value> = found
            .map(|(backend, found)| {
                let missing = found.as_ref().err();
                let devices = found.as_deref().unwrap_or_default().iter().map(listed);
                json!({
                    "backend": backend.name(),
                    "devices": devices.collect::<Vec<_>>(),
                    "missing": missing,
                })
            })
            .collect();
        return exit::print(&format!("{:#}\n", json!({ "backends": backends })));
    }
    let lines = found.map(|(backend, found)| match found {
        Ok(devices) => devices.iter().map(line).collect(),
        Err(missing) => {
            let name = backend.name();
            format!("{name}: {missing}; {}\n", missing.remedy)
        }
    });
    exit::print(&lines.collect::<String>())
}

fn line(device: &DeviceInfo) -> String {
    let memory = mib(usize::try_from(device.memory).unwrap_or(usize::MAX));
    format!("{device}  {memory}  {}\n", device.driver)
}

fn listed(device: &DeviceInfo) -> Value {
    json!({
        "name": device.name(),
        "model": device.model,
        "kind": device.kind.name(),
        "driver": device.driver,
        "memory_bytes": device.memory,
        "largest_buffer_bytes": device.largest,
    })
}
