//! The examples of deployment and the workflows: they can be read, and name commands and keys that exist.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use sys::require::{self, Class};

pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const XTASK: &str = include_str!("../../../../xtask/src/main.rs");
const CHECKS: &str = include_str!("../../../../xtask/src/check/mod.rs");
/// Debian's own Python has Debian's PyYAML.
const PYTHON: &str = "/usr/bin/python3";
const TO_JSON: &str =
    "import json, sys, yaml; json.dump(list(yaml.safe_load_all(open(sys.argv[1]))), sys.stdout)";

/// The files below a folder whose names end so.
pub(crate) fn files(folder: &str, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(ROOT).join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The documents of a YAML file.
pub(crate) fn documents(path: &Path) -> Vec<Value> {
    let output = Command::new(PYTHON)
        .args(["-c", TO_JSON])
        .arg(path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", path.display());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Whether YAML can be read; reports the skip if not.
pub(crate) fn has_yaml() -> bool {
    let imported = Command::new(PYTHON).args(["-c", "import yaml"]).output();
    let present = imported.is_ok_and(|output| output.status.success());
    if !present {
        require::skip(Class::OptIn, "no PyYAML: apt install python3-yaml");
    }
    present
}

/// All values of a key, wherever it is.
fn values<'a>(value: &'a Value, key: &str) -> Vec<&'a Value> {
    match value {
        Value::Object(object) => {
            let own = object.get(key).into_iter();
            own.chain(object.values().flat_map(|one| values(one, key)))
                .collect()
        }
        Value::Array(list) => list.iter().flat_map(|one| values(one, key)).collect(),
        _ => Vec::new(),
    }
}

/// An argument, with the variable that Kubernetes replaces.
fn argument_in(text: &str) -> String {
    text.replace("$(NODE_ADDRESS)", "192.0.2.1")
}

fn assert_relay_configuration(text: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("relay.toml");
    fs::write(&file, text).unwrap();
    let datapaths = relay::datapaths();
    let names: Vec<_> = datapaths.iter().map(|datapath| datapath.name()).collect();
    if let Err(error) = relay::config::load(&file, &names) {
        panic!("{}\n{text}", error.message);
    }
}

#[test]
fn examples_run_lowroad_with_arguments_that_it_has() {
    if !has_yaml() {
        return;
    }
    let compose = Path::new(ROOT).join("examples/compose");
    assert_relay_configuration(&fs::read_to_string(compose.join("relay.toml")).unwrap());
    let (mut commands, mut configurations) = (0, 0);
    for path in files("examples", &[".yaml", ".yml"]) {
        for document in documents(&path) {
            if document["kind"] == "ConfigMap" {
                assert_relay_configuration(document["data"]["relay.toml"].as_str().unwrap());
                configurations += 1;
            }
            let containers = values(&document, "containers")
                .into_iter()
                .flat_map(|list| values(list, "args"));
            let services = values(&document, "services")
                .into_iter()
                .flat_map(|list| values(list, "command"));
            for arguments in containers.chain(services) {
                let arguments = arguments.as_array().unwrap().iter();
                // Arguments before `--help` are parsed and refused as usual.
                let output = Command::new(env!("CARGO_BIN_EXE_lowroad"))
                    .args(arguments.map(|argument| argument_in(argument.as_str().unwrap())))
                    .arg("--help")
                    .output()
                    .unwrap();
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{}: {said}", path.display());
                commands += 1;
            }
        }
    }
    assert_eq!((commands, configurations), (4, 1));
}

#[test]
fn workflows_run_commands_that_exist() {
    if !has_yaml() {
        return;
    }
    let mut runs = 0;
    for path in files(".github", &[".yml"]) {
        for document in documents(&path) {
            for run in values(&document["jobs"], "run") {
                let run = run
                    .as_str()
                    .unwrap()
                    .replace("${{ matrix.crate }}", "CRATE");
                let words: Vec<_> = run.split(' ').collect();
                match words[..] {
                    ["./test", _] => {}
                    ["cargo", "xtask", verb, ref more @ ..] => {
                        let shown = format!("\n  {verb} ");
                        assert!(XTASK.contains(&shown), "{run}");
                        let names = more.iter().filter(|_| verb == "check");
                        for name in names {
                            assert!(CHECKS.contains(&format!("\"{name}\"")), "{run}");
                        }
                    }
                    _ => panic!("{}: {run}", path.display()),
                }
                runs += 1;
            }
        }
    }
    assert!(runs > 5);
}
