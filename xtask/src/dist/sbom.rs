//! The list of what the programs contain: CycloneDX 1.5, from cargo's metadata.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::programs::{AGENT, PROGRAMS};
use super::release::Release;
use crate::metadata::{packages, text};

/// A package that is compiled into a program.
#[derive(Clone, Debug)]
pub(super) struct Component<'a> {
    pub(super) package: &'a Value,
    /// The packages that it needs, by their ids.
    needs: BTreeSet<&'a str>,
}

impl<'a> Component<'a> {
    pub(super) fn name(&self) -> &'a str {
        text(self.package, "name")
    }

    pub(super) fn version(&self) -> &'a str {
        text(self.package, "version")
    }

    /// Whether it comes from elsewhere.
    pub(super) fn is_foreign(&self) -> bool {
        !self.package["source"].is_null()
    }

    fn reference(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name(), self.version())
    }
}

/// Everything that the programs link, sorted by name and version. Build scripts and macros are not in programs.
pub(super) fn components(metadata: &Value) -> Vec<Component<'_>> {
    let by_id: BTreeMap<&str, &Value> = packages(metadata)
        .map(|package| (text(package, "id"), package))
        .collect();
    let nodes: BTreeMap<&str, &Value> = metadata["resolve"]["nodes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|node| (text(node, "id"), node))
        .collect();
    let programs: Vec<&str> = PROGRAMS
        .iter()
        .chain([&AGENT])
        .map(|one| one.package)
        .collect();
    let mut waiting: Vec<&str> = by_id
        .iter()
        .filter(|(_, package)| {
            package["source"].is_null() && programs.contains(&text(package, "name"))
        })
        .map(|(id, _)| *id)
        .collect();
    let mut found: BTreeMap<&str, Component<'_>> = BTreeMap::new();
    while let Some(id) = waiting.pop() {
        let (Some(package), Some(node)) = (by_id.get(id), nodes.get(id)) else {
            continue;
        };
        if found.contains_key(id) {
            continue;
        }
        let dependencies = node["deps"].as_array().into_iter().flatten();
        let needs: BTreeSet<&str> = dependencies
            .filter(|dependency| is_linked(dependency))
            .map(|dependency| text(dependency, "pkg"))
            .filter(|id| by_id.get(id).is_some_and(|package| !is_macro(package)))
            .collect();
        waiting.extend(&needs);
        found.insert(id, Component { package, needs });
    }
    let mut components: Vec<Component<'_>> = found.into_values().collect();
    components.sort_by_key(|component| (component.name(), component.version()));
    components
}

fn is_linked(dependency: &Value) -> bool {
    let kinds = dependency["dep_kinds"].as_array();
    kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
}

fn is_macro(package: &Value) -> bool {
    let targets = package["targets"].as_array().into_iter().flatten();
    let mut kinds = targets.flat_map(|target| target["kind"].as_array().into_iter().flatten());
    kinds.any(|kind| kind == "proc-macro")
}

/// The document, whose bytes depend on the release and Cargo.lock only.
pub(super) fn cyclone_dx(
    metadata: &Value,
    components: &[Component<'_>],
    release: &Release,
) -> Result<String> {
    let sums = checksums()?;
    let references: BTreeMap<&str, String> = components
        .iter()
        .map(|component| (text(component.package, "id"), component.reference()))
        .collect();
    let list: Vec<Value> = components
        .iter()
        .map(|component| described(component, &sums))
        .collect();
    let dependencies: Vec<Value> = components
        .iter()
        .map(|component| {
            let needs: BTreeSet<&String> = component
                .needs
                .iter()
                .filter_map(|id| references.get(id))
                .collect();
            json!({"ref": component.reference(), "dependsOn": needs})
        })
        .collect();
    let own = packages(metadata).find(|package| text(package, "name") == "lowroad");
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": timestamp(release.epoch),
            "component": {
                "type": "application",
                "name": "lowroad",
                "version": release.version,
                "bom-ref": format!("lowroad@{}", release.version),
                "licenses": [{"expression": own.map_or("", |own| text(own, "license"))}],
                "properties": [{"name": "commit", "value": release.commit}],
            },
        },
        "components": list,
        "dependencies": dependencies,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn described(component: &Component<'_>, sums: &BTreeMap<(String, String), String>) -> Value {
    let mut value = json!({
        "type": "library",
        "name": component.name(),
        "version": component.version(),
        "bom-ref": component.reference(),
        "licenses": [{"expression": text(component.package, "license").replace('/', " OR ")}],
    });
    if component.is_foreign() {
        value["purl"] = component.reference().into();
    }
    let key = (component.name().to_owned(), component.version().to_owned());
    if let Some(sum) = sums.get(&key) {
        value["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
    }
    value
}

/// The checksums in Cargo.lock, by name and version.
fn checksums() -> Result<BTreeMap<(String, String), String>> {
    let path = crate::root().join("Cargo.lock");
    let lock = std::fs::read_to_string(path).context("Cargo.lock")?;
    let lock: toml::Table = lock.parse().context("Cargo.lock")?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let field = |package: &toml::Value, name| Some(package.get(name)?.as_str()?.to_owned());
    let entries = packages.into_iter().flatten().filter_map(|package| {
        let key = (field(package, "name")?, field(package, "version")?);
        Some((key, field(package, "checksum")?))
    });
    Ok(entries.collect())
}

/// Seconds since 1970 in the form of RFC 3339, in UTC.
pub(super) fn timestamp(epoch: u64) -> String {
    let (days, seconds) = (epoch / 86400, epoch % 86400);
    // The calendar repeats every 400 years, and years begin in March so that the leap day is the last.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}Z")
}
