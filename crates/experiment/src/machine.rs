//! The record's facts about the machine, which show whether two runs are comparable.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use report::record::Header;
use serde_json::{Value, json};

use crate::build;

/// May differ where nothing that was measured does: a host gives a guest a page more or less.
const VARIES: &str = "memory_kib";

/// Facts of this machine, by name, and of what a job runs in an environment.
pub(crate) fn facts(job: &str, environment: &str) -> BTreeMap<String, Value> {
    let mut facts = BTreeMap::new();
    let mut add = |name: &str, value: Value| facts.insert(name.to_owned(), value);
    add("kernel", json!(read("/proc/sys/kernel/osrelease")));
    add("kernel_version", json!(read("/proc/sys/kernel/version")));
    add("cpu", json!(cpu_field("model name")));
    add(
        "cpus",
        json!(std::thread::available_parallelism().map_or(0, usize::from)),
    );
    add(
        "hypervisor",
        json!(
            cpu_field("flags")
                .split(' ')
                .any(|flag| flag == "hypervisor")
        ),
    );
    add("memory_kib", json!(memory_kib()));
    let clock = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    add("clocksource", json!(read(clock)));
    add(
        "cpuidle",
        json!(read("/sys/devices/system/cpu/cpuidle/current_driver")),
    );
    add(
        "governor",
        json!(read(
            "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
        )),
    );
    add("bpf_jit", json!(read("/proc/sys/net/core/bpf_jit_enable")));
    add("mitigations", json!(mitigations()));
    add("lowroad", json!(env!("CARGO_PKG_VERSION")));
    add("build", json!(build::identity(job, environment)));
    facts
}

/// The differences between this machine and build and those of the record, by name.
pub(crate) fn differences(then: &Header) -> Vec<String> {
    differing(&then.machine, &facts(&then.job, &then.environment))
}

fn differing(then: &BTreeMap<String, Value>, now: &BTreeMap<String, Value>) -> Vec<String> {
    let names: BTreeSet<_> = then.keys().chain(now.keys()).collect();
    names
        .into_iter()
        .filter(|name| *name != VARIES && then.get(*name) != now.get(*name))
        .cloned()
        .collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn cpu_field(name: &str) -> String {
    read("/proc/cpuinfo")
        .lines()
        .find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
        .unwrap_or_default()
}

fn memory_kib() -> u64 {
    read("/proc/meminfo")
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next())
        .and_then(|value| value.parse().ok())
        .unwrap_or_default()
}

/// Vulnerability to mitigation, for those that cost something.
fn mitigations() -> BTreeMap<String, String> {
    let Ok(folder) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else {
        return BTreeMap::new();
    };
    folder
        .flatten()
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, read(&entry.path().to_string_lossy()))
        })
        .filter(|(_, state)| state.starts_with("Mitigation"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_kernel_or_build_differs_and_a_page_of_memory_does_not() {
        let facts = || facts("relay", "native");
        let then = facts();
        assert_eq!(differing(&then, &facts()), Vec::<String>::new());
        let mut now = then.clone();
        now.insert("memory_kib".to_owned(), json!(1));
        assert_eq!(differing(&then, &now), Vec::<String>::new());
        now.insert("kernel".to_owned(), json!("2.6.32"));
        now.remove("build");
        assert_eq!(differing(&then, &now), ["build", "kernel"]);
    }
}
