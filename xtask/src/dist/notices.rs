//! The licences of what the programs contain: their texts come with every copy of a program.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::sbom::Component;
use crate::metadata::text;

/// Beginnings of the names of files with a licence or what it asks to be kept, in capitals.
const NAMES: &[&str] = &[
    "LICENSE",
    "LICENCE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
    "UNLICENSE",
];

/// Endings of files of source code, which may begin in the same way.
const CODE: &[&str] = &["rs", "c", "h", "py", "sh", "html", "toml", "json"];

/// Each text once, below the names of the packages that have it.
pub(super) fn collect(components: &[Component<'_>]) -> Result<String> {
    let mut owners: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut without = Vec::new();
    for component in components.iter().filter(|component| component.is_foreign()) {
        let label = format!("{} {}", component.name(), component.version());
        let manifest = Path::new(text(component.package, "manifest_path"));
        let folder = manifest.parent().context("a manifest is in a folder")?;
        let files = files(folder)?;
        if files.is_empty() {
            let licence = text(component.package, "license");
            without.push(format!("{label}: {licence}\n"));
        }
        for file in files {
            let bytes = fs::read(&file).with_context(|| file.display().to_string())?;
            let text = String::from_utf8_lossy(&bytes).replace('\r', "");
            let labels = owners.entry(text.trim().to_owned()).or_default();
            if !labels.contains(&label) {
                labels.push(label.clone());
            }
        }
    }
    let mut sections: Vec<(String, String)> = owners
        .into_iter()
        .map(|(text, labels)| (labels.join(", "), text))
        .collect();
    sections.sort();
    let mut notices =
        "The programs of lowroad contain these libraries, under the licences that follow the names.\n".to_owned();
    if !without.is_empty() {
        notices.push_str("These come without the text of their licence:\n\n");
        notices.push_str(&without.concat());
    }
    for (labels, text) in sections {
        let line = "-".repeat(80);
        notices.push_str(&format!("\n{line}\n{labels}\n{line}\n\n{text}\n"));
    }
    Ok(notices)
}

/// Licences of a package, and of libraries in C that it brings in folders of its own.
fn files(package: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![(package.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() && depth < 3 {
                folders.push((path, depth + 1));
            } else if path.is_file() && is_licence(&path) {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn is_licence(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    let name = name.to_uppercase();
    NAMES.iter().any(|head| name.starts_with(head)) && !CODE.contains(&ending.as_ref())
}
