//! Table images by the real binary: built, inspected, checked, explained, told apart, and refused.

use std::fs;

use serde_json::Value;

use crate::router_command::{done, file, json, refused, router};

const ROUTES: &str = "0.0.0.0/0 192.0.2.1\n10.0.0.0/8 192.0.2.2\n10.1.2.3/32 192.0.2.3\n\
2001:db8::/32 2001:db8::1\n2001:db8::5/128 2001:db8::2\n";
const RULES: &str = "action,source,destination,protocol,destination_ports\n\
drop,10.0.0.0/8,,udp,53\naccept,10.1.0.0/16,,udp,53\naccept,,,,\n";

/// A folder with an image of both.
fn built() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let rib = file(folder.path(), "routes.txt", ROUTES);
    let rules = file(folder.path(), "fw.csv", RULES);
    let table = folder.path().join("table.lrt").display().to_string();
    let said = done(&["build", "--rib", &rib, "--rules", &rules, "-o", &table]);
    assert!(said.contains("table.lrt: "), "{said}");
    (folder, table)
}

#[test]
fn an_image_is_inspected_and_checked() {
    let (_folder, table) = built();
    let account = json(&["inspect", &table]);
    assert_eq!(account["routes"]["v4"]["by_length"]["32"], 1);
    assert_eq!(
        account["routes"]["v6"]["next_hops"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(account["rules"]["actions"]["drop"], 1);
    let text = done(&["inspect", &table]);
    for wanted in [
        "/0 1  /8 1  /32 1",
        "via 192.0.2.3",
        "fib4.first",
        "routes.txt: 3 IPv4",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let engines = json(&["diff", &table]);
    let engines = engines["engines"].as_array().unwrap();
    for engine in engines {
        assert_eq!(engine["wrong"], 0, "{engine}");
    }
    for wanted in [
        "fib4 bytes in the image portable",
        "fib6 flat",
        "acl4 classifier",
        "acl6 live",
    ] {
        let named = |engine: &Value| engine["engine"].as_str().unwrap().starts_with(wanted);
        assert!(engines.iter().any(named), "{wanted}");
    }
}

#[test]
fn packets_are_explained_by_an_image_or_by_its_sources() {
    let (folder, table) = built();
    let packet = "10.1.0.1:5000 -> 10.1.2.3:53/udp";
    let text = done(&["explain", &table, packet]);
    for wanted in [
        "drop: the rule says so\n",
        "route   10.1.2.3/32  via 192.0.2.3",
        "within 10.0.0.0/8  via 192.0.2.2",
        "within 0.0.0.0/0  via 192.0.2.1",
        "fw.csv:2: drop,10.0.0.0/8,,udp,53",
        "never comes first, as this rule covers it: 10.1.0.0/16:* -> *:53 udp accept",
        "would match as well: *:* -> *:* * accept",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let (agree, all) = {
        let line = text
            .lines()
            .find(|line| line.ends_with("engines agree"))
            .unwrap();
        let mut numbers = line
            .split_whitespace()
            .filter_map(|word| word.parse::<u32>().ok());
        (numbers.next().unwrap(), numbers.next().unwrap())
    };
    assert!(agree == all && all > 3, "{text}");
    let rib = folder.path().join("routes.txt").display().to_string();
    let v6 = "[2001:db8::9]:1 -> [2001:db8::5]:80/tcp";
    let account = json(&["explain", "--rib", &rib, v6]);
    assert_eq!(account["verdict"], "forward");
    assert_eq!(account["to"], "via 2001:db8::2");
    let said = refused(&["explain", &table, "10.0.0.1"], 1);
    assert!(said.contains("is no packet: write"), "{said}");
}

#[test]
fn two_images_are_told_apart() {
    let (folder, table) = built();
    assert_eq!(done(&["diff", &table, &table]), "no difference\n");
    let rib = ROUTES.replace("10.0.0.0/8 192.0.2.2", "10.0.0.0/8 192.0.2.9");
    let rib = file(
        folder.path(),
        "new.txt",
        &rib.replace("10.1.2.3/32", "10.1.2.4/32"),
    );
    let other = folder.path().join("other.lrt").display().to_string();
    done(&["build", "--rib", &rib, "-o", &other]);
    let text = done(&["diff", &table, &other]);
    for wanted in [
        "routes: 1 added, 1 removed, 1 changed",
        "~ 10.0.0.0/8  via 192.0.2.2 -> via 192.0.2.9",
        "- 10.1.2.3/32  via 192.0.2.3",
        "+ 10.1.2.4/32  via 192.0.2.3",
        "rules: 0 added, 4 removed, 0 changed",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}

#[test]
fn two_lists_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let list = |name: &str, content: &str| file(folder.path(), name, content);
    let old = list("a.txt", "10.0.0.0/8 192.0.2.1\n10.1.0.0/16 192.0.2.2\n");
    let new = list("b.txt", "10.0.0.0/8 192.0.2.1\n10.1.0.0/16 192.0.2.3\n");
    let text = done(&["diff", &old, &new]);
    assert!(
        text.contains("~ 10.1.0.0/16  via 192.0.2.2 -> via 192.0.2.3"),
        "{text}"
    );
    let old = list("a.csv", "action,source\ndrop,10.0.0.0/8\n");
    let new = list(
        "b.json",
        "[{\"action\": \"drop\", \"source\": \"11.0.0.0/8\"}]",
    );
    let text = done(&["diff", &old, &new]);
    assert!(text.contains("rules: 1 added, 1 removed"), "{text}");
    let listed = list(
        "c.json",
        "[{\"dst\":\"10.0.0.0/8\",\"gateway\":\"192.0.2.1\"}]",
    );
    let same = list("c.txt", "10.0.0.0/8 192.0.2.1\n");
    assert_eq!(done(&["diff", &listed, &same]), "no difference\n");
    let broken = list("d.txt", "10.0.0.0/33\n");
    let said = refused(&["diff", &same, &broken], 1);
    assert!(said.contains("d.txt:1: a prefix of 33 bits"), "{said}");
}

#[test]
fn what_is_no_whole_image_is_refused_in_one_line() {
    let (folder, table) = built();
    let whole = fs::read(&table).unwrap();
    let broken = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let flipped = |at: usize| {
        let mut file = whole.clone();
        file[at] ^= 4;
        file
    };
    let cases = [
        (broken("text", b"10.0.0.0/8 192.0.2.1\n"), "no table image"),
        (broken("empty", b""), "no table image"),
        (broken("version", &flipped(8)), "of version 5"),
        (broken("cut", &whole[..whole.len() - 1]), "cut off"),
        (broken("flip", &flipped(whole.len() / 2)), "damaged"),
        (broken("head", &flipped(40)), "damaged"),
        (
            folder.path().join("none").display().to_string(),
            "No such file",
        ),
    ];
    for (path, wanted) in &cases {
        // The second operand may be a list of routes or rules as well as an image.
        let mut commands = vec![vec!["inspect", path], vec!["diff", path]];
        if !path.ends_with("/text") && !path.ends_with("/empty") {
            commands.push(vec!["diff", &table, path]);
        }
        for command in &commands {
            let said = refused(command, 1);
            assert!(
                said.contains(wanted) && said.contains(path),
                "{wanted}: {said}"
            );
        }
    }
    let said = refused(&["diff", &table, "--rib", &table], 1);
    assert!(said.contains("one or the other"), "{said}");
}

#[test]
fn what_is_there_stays_when_nothing_can_be_built() {
    let (folder, table) = built();
    let before = fs::read(&table).unwrap();
    let many: Vec<String> = (0..300)
        .map(|at| format!("10.{}.{}.0/24 192.0.{}.1\n", at / 256, at % 256, at % 256))
        .collect();
    let more = many.concat() + "11.0.0.0/8 198.51.100.1\n";
    let rib = file(folder.path(), "many.txt", &more);
    let said = refused(
        &["build", "--rib", &rib, "--layout", "bytes", "-o", &table],
        1,
    );
    assert!(
        said.contains("257 next hops") && said.contains("--layout mixed"),
        "{said}"
    );
    assert!(fs::read(&table).unwrap() == before);
    let far: Vec<String> = (0..40_000_u32)
        .map(|at| {
            format!(
                "10.{}.{}.0/24 20.1.{}.{}\n",
                at / 256,
                at % 256,
                at / 256,
                at % 256
            )
        })
        .collect();
    let rib = file(folder.path(), "far.txt", &far.concat());
    let said = refused(&["build", "--rib", &rib, "-o", &table], 1);
    assert!(said.contains("40000 different next hops"), "{said}");
    let routes = folder.path().join("routes.txt").display().to_string();
    let output = router(&["build", "--rib", &routes, "-o", "/dev/null"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    let files = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 5, "nothing is left behind");
}
