//! Generated tables, rules and traffic by the real binary, and what the running kernel has.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::router_command::{done, router};

const LOWROAD: &str = env!("CARGO_BIN_EXE_lowroad");

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

#[test]
fn what_is_generated_is_built_and_all_engines_agree_on_it() {
    let folder = tempfile::tempdir().unwrap();
    let [rib, rules, table, capture] =
        ["rib", "rules", "table.lrt", "traffic.pcap"].map(|name| path(folder.path(), name));
    done(&[
        "generate", "prefixes", "--v4", "3000", "--v6", "1000", "-o", &rib,
    ]);
    done(&["generate", "rules", "--count", "300", "--v6", "-o", &rules]);
    let again = done(&["generate", "rules", "--count", "300", "--v6"]);
    assert_eq!(fs::read_to_string(&rules).unwrap(), again);
    let other = done(&["generate", "rules", "--count", "300", "--v6", "--seed", "2"]);
    assert_ne!(again, other);
    let build = [
        "build", "--rib", &rib, "--rules", &rules, "--spread", "300", "-o", &table,
    ];
    let said = done(&build);
    assert!(
        said.contains("3000 IPv4 and 1000 IPv6 routes to 300 next hops"),
        "{said}"
    );
    assert!(said.contains("300 IPv4 and 300 IPv6 rules"), "{said}");
    let engines: Value = serde_json::from_str(&done(&["diff", &table, "--json"])).unwrap();
    for engine in engines["engines"].as_array().unwrap() {
        assert_eq!(engine["wrong"], 0, "{engine}");
    }
    for order in ["uniform", "per-prefix", "zipf", "sequential"] {
        let traffic = [
            "generate",
            "traffic",
            &table,
            "--order",
            order,
            "--packets",
            "5",
        ];
        let list = done(&traffic);
        assert_eq!(list.lines().count(), 5);
        let last = list.lines().last().unwrap();
        let explained = done(&["explain", &table, last]);
        assert!(
            explained.contains("route   ") && !explained.contains("route   none"),
            "{explained}"
        );
        done(&[&traffic[..], &["--v6", "-o", &capture]].concat());
        let bytes = fs::read(&capture).unwrap();
        assert_eq!(bytes.len(), 24 + 5 * (16 + 14 + 40 + 8 + 18), "{order}");
    }
}

#[test]
fn the_kernels_own_routes_and_rules_are_taken() {
    if !sys::require::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let table = path(folder.path(), "table.lrt");
    let script = format!(
        "set -e; ip link set lo up; ip link add d0 type veth peer name d1; ip link set d0 up; ip link set d1 up
         ip address add 192.0.2.1/24 dev d0; ip address add 2001:db8::1/64 dev d0 nodad
         ip route add 10.0.0.0/8 via 192.0.2.9; ip -6 route add 2001:db8:7::/48 via 2001:db8::9
         ip route add blackhole 10.9.0.0/16
         nft add table inet t; nft 'add chain inet t f {{ type filter hook forward priority 0; policy drop; }}'
         nft add rule inet t f udp dport 53 accept
         {LOWROAD} router build --rib kernel --rules kernel -o {table}"
    );
    let output = Command::new("unshare")
        .args(["-n", "sh", "-c", &script])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for (packet, wanted) in [
        (
            "198.51.100.1:1 -> 10.1.2.3:53/udp",
            "forward via 192.0.2.9 dev d0",
        ),
        (
            "198.51.100.1:1 -> 10.1.2.3:54/udp",
            "drop: the rule says so",
        ),
        (
            "198.51.100.1:1 -> 10.9.2.3:53/udp",
            "drop: the route is a blackhole",
        ),
        (
            "198.51.100.1:1 -> 192.0.2.1:53/udp",
            "punt: the prefix belongs to the kernel",
        ),
        (
            "[2001:db8:1::1]:1 -> [2001:db8:7::1]:53/udp",
            "forward via 2001:db8::9 dev d0",
        ),
    ] {
        let text = done(&["explain", &table, packet]);
        assert_eq!(text.lines().next().unwrap(), wanted, "{packet}: {text}");
    }
}

#[test]
fn a_program_that_is_not_there_is_named_with_its_package() {
    let folder = tempfile::tempdir().unwrap();
    for (option, wanted) in [
        ("--rib", "apt install iproute2"),
        ("--rules", "apt install nftables"),
    ] {
        let output = Command::new(LOWROAD)
            .args(["router", "build", option, "kernel"])
            .env("PATH", folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains(wanted), "{said}");
    }
}

#[test]
fn tables_without_routes_have_no_traffic() {
    let folder = tempfile::tempdir().unwrap();
    let [rules, table] = ["rules", "table.lrt"].map(|name| path(folder.path(), name));
    done(&["generate", "rules", "--count", "3", "-o", &rules]);
    done(&["build", "--rules", &rules, "-o", &table]);
    let output = router(&["generate", "traffic", &table, "--packets", "1"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no route of IPv4"), "{said}");
}
