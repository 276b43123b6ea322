//! `lowroad router build` by the real binary: what it says of routes and rules, and what it refuses.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::router_command::{done, file, json, refused};

const ROUTES: &str = "0.0.0.0/0 192.0.2.1\n10.0.0.0/8 192.0.2.2\n10.1.2.3/32 192.0.2.3\n\
10.0.0.0/8 192.0.2.4\n2001:db8::/32 2001:db8::1\n::1/128 2001:db8::2\n";
const RULES: &str = "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT\n\
-A FORWARD -s 10.0.0.0/8 -p tcp --dport 80 -j ACCEPT\n-A FORWARD -p udp -j LOG\nCOMMIT\n";

#[test]
fn says_what_became_of_every_line() {
    let folder = tempfile::tempdir().unwrap();
    let rib = file(folder.path(), "routes.txt", ROUTES);
    let rules = file(folder.path(), "fw.rules", RULES);
    let given = ["build", "--rib", &rib, "--rules", &rules];
    let text = done(&[&given[..], &["--punt-unsupported"]].concat());
    for wanted in [
        "routes.txt: 3 IPv4 and 2 IPv6 routes to 5 next hops, read as plain",
        "duplicates: 0 the same, 1 replaced by a later one, 0 with a worse metric, the first at line 4",
        "2 of them lie within another route",
        "fw.rules:3: left to the kernel for",
        "fw.rules:5: ",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let json = done(&[&given[..], &["--punt-unsupported", "--json"]].concat());
    let account: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(account["routes"]["duplicates"]["replaced"], 1);
    assert_eq!(account["rules"]["notes"][0]["kind"], "punted");
}

#[test]
fn says_which_rules_are_shadowed() {
    let folder = tempfile::tempdir().unwrap();
    let same = "drop,10.0.0.0/8,tcp\n".repeat(1000);
    // Rules without addresses are for both families.
    let both = "accept,,udp\naccept,,udp\n";
    let rules = format!("action,source,protocol\n{same}accept,10.1.0.0/16,udp\n{both}");
    let rules = file(folder.path(), "fw.csv", &rules);
    let text = done(&["build", "--rules", &rules]);
    for (count, line) in [("1000 IPv4", 3), ("1 IPv6", 1004)] {
        let wanted = format!(
            "  shadowed: {count} rules whose packets an earlier rule matches all, the first at {rules}:{line}\n"
        );
        assert!(text.contains(&wanted), "{wanted}: {text}");
    }
    let account = json(&["build", "--rules", &rules]);
    let shadowed = &account["rules"]["shadowed"];
    assert_eq!(
        (&shadowed["v4"]["count"], &shadowed["v6"]["count"]),
        (&1000.into(), &1.into())
    );
}

#[test]
fn names_of_files_need_not_be_text() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &[u8]| folder.path().join(OsStr::from_bytes(name));
    let (rib, table) = (at(b"r\xfe.txt"), at(b"t\xfe.lrt"));
    std::fs::write(&rib, ROUTES).unwrap();
    let run = |words: &[&OsStr]| {
        let output = Command::new(env!("CARGO_BIN_EXE_lowroad"))
            .args(["router", "--json"])
            .args(words)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let word = OsStr::new;
    let built = run(&[
        word("build"),
        word("--rib"),
        rib.as_ref(),
        word("-o"),
        table.as_ref(),
    ]);
    let file = built["image"]["file"].as_str().unwrap();
    assert!(file.ends_with("t\u{fffd}.lrt"), "{file}");
    let packet = word("10.0.0.1:5000 -> 10.1.2.3:80/udp");
    let explained = run(&[word("explain"), table.as_ref(), packet]);
    assert_eq!(explained["to"], "via 192.0.2.3");
    run(&[word("inspect"), table.as_ref()]);
    run(&[word("diff"), table.as_ref(), rib.as_ref()]);
}

#[test]
fn json_may_be_asked_for_before_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let rib = file(folder.path(), "routes.txt", ROUTES);
    let run = |words: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_lowroad"))
            .args(words)
            .output()
            .unwrap()
    };
    let packet = "10.0.0.1:5000 -> 10.1.2.3:50/gre";
    let before = run(&["--json", "router", "explain", "--rib", &rib, packet]);
    let behind = run(&["router", "explain", "--rib", &rib, packet, "--json"]);
    assert!(before.status.success() && before.stdout == behind.stdout);
    let account: Value = serde_json::from_slice(&before.stdout).unwrap();
    assert_eq!(account["verdict"], "forward");
    let nothing = run(&["--json", "completions", "bash"]);
    assert_eq!(nothing.status.code(), Some(2));
}

#[test]
fn what_only_the_kernel_can_decide_is_refused_by_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let rules = file(folder.path(), "fw.rules", RULES);
    let said = refused(&["build", "--rules", &rules], 2);
    assert!(
        said.contains("fw.rules:3: no engine can hold this"),
        "{said}"
    );
    assert!(said.contains("--punt-unsupported"), "{said}");
}

#[test]
fn stand_ins_take_the_place_of_unnamed_next_hops() {
    let mut build = Command::new(env!("CARGO_BIN_EXE_lowroad"))
        .args(["router", "build", "--rib", "-", "--spread", "2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let list: Vec<String> = (0..100).map(|at| format!("10.{at}.0.0/16\n")).collect();
    let mut input = build.stdin.take().unwrap();
    input.write_all(list.concat().as_bytes()).unwrap();
    drop(input);
    let output = build.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let wanted = "standard input: 100 IPv4 and 0 IPv6 routes to 2 next hops";
    assert!(text.contains(wanted), "{text}");
}

#[test]
fn broken_input_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str, content: &str| file(folder.path(), name, content);
    let none = folder.path().join("none").display().to_string();
    for (rib, wanted) in [
        (none, "none: No such file"),
        (at("bits", "10.1.2.3/8 192.0.2.1\n"), "bits:1: "),
        (at("long", "10.0.0.0/33 192.0.2.1\n"), "long:1: "),
        (at("empty", ""), "empty: empty"),
        (at("mrt", "\0\0\0\0\0\x0d\0\x02\0\0\0\x08cut"), "mrt"),
    ] {
        let said = refused(&["build", "--rib", &rib], 1);
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    let said = refused(&["build"], 1);
    assert!(said.contains("--rib FILE"), "{said}");
}

#[test]
fn more_rules_than_lookups_hold_are_refused_by_every_command() {
    let folder = tempfile::tempdir().unwrap();
    // Every other protocol: 128 boxes each.
    let rule = "@0.0.0.0/0\t192.0.2.0/24\t0 : 65535\t80 : 80\t0x00/0x01\n";
    let rules = file(folder.path(), "fw.rules", &rule.repeat(8193));
    let packet = "10.0.0.1:1 -> 192.0.2.1:80/udp";
    for command in [
        &["build"][..],
        &["process"],
        &["bench"],
        &["diff"],
        &["explain", packet],
        &["run", "--datapath", "xdp", "--interface", "lo", "--check"],
    ] {
        let said = refused(&[command, &["--rules", &rules]].concat(), 1);
        assert!(
            said.contains("fw.rules: the rules come to 1048704 boxes")
                && said.contains("leave rules out"),
            "{command:?}: {said}"
        );
    }
}
