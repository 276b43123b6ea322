//! `lowroad features interfaces`: what it says of a device is what `live` meets there.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use features::live::{OFFLOADS, datapaths};
use netdev::{LinkSpec, Netlink};
use serde_json::Value;

use crate::relay_server::{Home, errors, lowroad};

fn interfaces(home: &Home) -> Value {
    let mut command = lowroad();
    command.args(["features", "interfaces", "--json"]);
    let output = home.run(|| command.output().unwrap());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn find<'a>(list: &'a Value, name: &str) -> &'a Value {
    let found = list
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {list:#}"))
}

#[test]
fn every_device_is_listed_with_every_datapath_and_offload() {
    if !sys::require::root() {
        return;
    }
    let home = Home::new("interfaces");
    let told = interfaces(&home);
    let near = find(&told["interfaces"], "near");
    assert_eq!(
        (near["state"].as_str(), near["driver"].as_str()),
        (Some("up"), Some("veth"))
    );
    assert_eq!(near["mtu_bytes"], 1500);
    assert!(near["rx_queues"].as_u64() >= Some(1), "{near}");
    let names = |list: &Value| -> BTreeSet<String> {
        let names = list.as_array().unwrap().iter();
        names
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let all = datapaths()
        .into_iter()
        .map(|datapath| datapath.name().to_owned());
    assert_eq!(names(&near["datapaths"]), all.collect());
    assert_eq!(names(&near["offloads"]), OFFLOADS.map(str::to_owned).into());
    assert_eq!(find(&near["datapaths"], "xdp-flow")["mode"], "native");
    assert_eq!(find(&near["offloads"], "zero-copy")["available"], false);

    let table = home.run(|| {
        lowroad()
            .args(["features", "interfaces", "near"])
            .output()
            .unwrap()
    });
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.starts_with("near  up, veth"), "{table}");
    assert!(!table.contains("\nlo "), "{table}");
    let missing = lowroad()
        .args(["features", "interfaces", "lr-not-there"])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(errors(&missing).contains("lr-not-there"));
}

/// Whether `live` starts, where the list says so, and ends with the list's reason where it does not.
#[test]
fn a_datapath_starts_where_it_is_available_and_only_there() {
    if !sys::require::root() {
        return;
    }
    let home = Home::new("interfaces-live");
    home.run(|| {
        let mut netlink = Netlink::new().unwrap();
        let index = netlink.link_by_name("far").unwrap().index;
        netlink
            .set_link(index, &LinkSpec::unnamed().down())
            .unwrap();
    });
    let told = interfaces(&home);
    for interface in ["lo", "near", "far"] {
        let device = find(&told["interfaces"], interface);
        for check in device["datapaths"].as_array().unwrap() {
            let name = check["name"].as_str().unwrap();
            let mut command = lowroad();
            command.args([
                "features",
                "live",
                interface,
                "--duration",
                "1ms",
                "-o",
                "/dev/null",
            ]);
            command.args(["--format", "csv", "--schema", "tree.v1", "--datapath", name]);
            command.args((name == "af-xdp").then_some("--tap"));
            let output = home.run(|| command.output().unwrap());
            let (said, place) = (errors(&output), format!("{name} on {interface}"));
            let available = check["available"].as_bool().unwrap();
            assert_eq!(
                output.status.success(),
                available,
                "{place}: {said}\n{check}"
            );
            if !available {
                let what = check["what"].as_str().unwrap();
                let native = what.contains("no native XDP") && said.contains("no native XDP");
                assert!(native || said.contains(what), "{place}: {said}\n{check}");
            }
        }
    }
}

#[test]
fn without_rights_every_datapath_says_which_it_needs() {
    if !sys::require::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("lowroad");
    // By a child: what another test starts meanwhile would have our copy open for writing.
    let copied = Command::new("cp")
        .args([Path::new(env!("CARGO_BIN_EXE_lowroad")), &program])
        .status();
    assert!(copied.unwrap().success());
    for path in [folder.path(), &program] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, mode).unwrap();
    }
    let output = Command::new(&program)
        .args(["features", "interfaces", "lo", "--json"])
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    for check in told["interfaces"][0]["datapaths"].as_array().unwrap() {
        assert_eq!(check["available"], false, "{check}");
        assert!(check["what"].as_str().unwrap().contains("CAP_"), "{check}");
        assert!(
            check["remedy"].as_str().unwrap().contains("sudo"),
            "{check}"
        );
    }
}
