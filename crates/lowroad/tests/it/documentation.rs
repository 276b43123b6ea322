//! What the book says is what the program does.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::deployment::files;
use crate::service_units::{has_systemd, units};

const RELAY: &str = include_str!("../../../../docs/src/relay.md");
const RELAY_CONFIGURATION: &str = include_str!("../../../../docs/src/relay-configuration.md");
const RELAY_DATAPATHS: &str = include_str!("../../../../docs/src/relay-datapaths.md");
const REPLICATE_KEYS: &str = include_str!("../../../../docs/src/replicate-configuration.md");
const REPLICATE_SERVICE: &str = include_str!("../../../../docs/src/replicate-run.md");
const REPLICA_UNIT: &str = include_str!("../../../../packaging/lowroad-replica.service");

#[test]
fn the_relay_page_lists_the_datapaths_there_are() {
    for datapath in relay::datapaths() {
        let row = format!("| `{}` |", datapath.name());
        assert!(RELAY_DATAPATHS.contains(&row), "{row} is missing");
    }
}

#[test]
fn troubleshooting_has_messages_of_the_code() {
    const PAGE: &str = include_str!("../../../../docs/src/troubleshooting.md");
    let sources = files("crates", &[".rs"]);
    let sources = sources
        .iter()
        .filter(|path| path.to_string_lossy().contains("/src/"));
    // A text that goes on in the next line has a backslash at the end of the line.
    let texts: Vec<String> = sources
        .map(|path| {
            let text = fs::read_to_string(path).unwrap();
            let mut lines = text.split("\\\n");
            let first = lines.next().unwrap_or_default().to_owned();
            lines.fold(first, |text, line| text + line.trim_start())
        })
        .collect();
    let headings = PAGE.lines().filter(|line| line.starts_with("### "));
    // Every second piece between backquotes is a message, or a word of one.
    let messages = headings.flat_map(|heading| heading.split('`').skip(1).step_by(2));
    let messages: Vec<&str> = messages.collect();
    assert!(messages.len() > 20, "{messages:?}");
    for message in messages {
        let known = texts.iter().any(|text| text.contains(message));
        assert!(known, "no source has the message of the entry `{message}`");
    }
}

#[test]
fn the_features_page_lists_what_there_is() {
    const FEATURES: &str = include_str!("../../../../docs/src/features-live.md");
    const SCHEMAS: &str = include_str!("../../../../docs/src/features-schemas.md");
    let datapaths = features::live::datapaths();
    let datapaths = datapaths.iter().map(|datapath| (FEATURES, datapath.name()));
    let schemas = features::schema::SCHEMAS.iter();
    let schemas = schemas.map(|schema| (SCHEMAS, schema.name));
    for (page, name) in datapaths.chain(schemas) {
        let row = format!("| `{name}` |");
        assert!(page.contains(&row), "{row} is missing");
    }
}

#[test]
fn the_router_page_lists_the_formats() {
    const ROUTER: &str = include_str!("../../../../docs/src/router.md");
    let routes = router::routes::Format::ALL.map(router::routes::Format::name);
    let rules = router::rules::Format::ALL.map(router::rules::Format::name);
    for (option, formats) in [
        ("--rib-format", &routes[..]),
        ("--rules-format", &rules[..]),
    ] {
        let (_, table) = ROUTER.split_once(&format!("| `{option}` |")).unwrap();
        let table = table.split("\n\n").next().unwrap();
        for name in formats {
            let mut firsts = table.lines().filter_map(|row| row.split('|').nth(1));
            let listed = firsts.any(|first| first.contains(&format!("`{name}`")));
            assert!(listed, "{name} is missing in the table of {option}");
        }
    }
}

#[test]
fn the_relay_page_explains_the_keys_there_are() {
    for (heading, table, nested) in [
        ("`[relay]`", "[relay]", &["http"][..]),
        (
            "`[[stream]]`",
            "[[stream]]",
            &["rate", "multicast", "fec"][..],
        ),
        (
            "`[[stream.subscriber]]`",
            "[[stream]]\n[[stream.subscriber]]",
            &[][..],
        ),
    ] {
        let load = relay_complaint;
        let mut known = keys(load, &format!("{table}\n\"?\" = 0\n"));
        for key in nested {
            assert!(known.remove(*key), "{table} has no {key}");
            let within = keys(load, &format!("{table}\n{key} = {{ \"?\" = 0 }}\n"));
            known.extend(within.iter().map(|inner| format!("{key}.{inner}")));
        }
        let rows = explained(RELAY_CONFIGURATION, heading);
        assert_eq!(rows, known, "the table of {heading}");
    }
}

#[test]
fn the_replicate_page_explains_the_keys_there_are() {
    for table in [
        "[replicate]",
        "[[capture]]",
        "[[serve]]",
        "[[publish]]",
        "[[receive]]",
        "[[apply]]",
    ] {
        let load = replicate_complaint;
        let mut known = keys(load, &format!("{table}\n\"?\" = 0\n"));
        if known.remove("http") {
            let within = keys(load, &format!("{table}\nhttp = {{ \"?\" = 0 }}\n"));
            known.extend(within.iter().map(|inner| format!("http.{inner}")));
        }
        let explained = explained(REPLICATE_KEYS, &format!("`{table}`"));
        assert_eq!(explained, known, "the table of {table}");
    }
}

fn relay_complaint(file: &Path) -> String {
    relay::config::load(file, &[]).unwrap_err().message
}

fn replicate_complaint(file: &Path) -> String {
    let loaded = replicate::service::config::load(file);
    loaded.unwrap_err().message
}

/// The keys that are known where a configuration has an unknown one.
fn keys(complaint: fn(&Path) -> String, text: &str) -> BTreeSet<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    fs::write(&file, text).unwrap();
    let message = complaint(&file);
    let (_, known) = message.split_once("known here: ").unwrap();
    known.split(", ").map(str::to_owned).collect()
}

/// The keys in the table under a heading of a page.
fn explained(page: &str, heading: &str) -> BTreeSet<String> {
    let (_, section) = page.split_once(&format!("### {heading}\n")).unwrap();
    let section = section.split("\n#").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split('`').next().unwrap().to_owned())
        .collect()
}

#[test]
fn the_units_are_ones_that_systemd_takes() {
    if !has_systemd() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, unit) in units() {
        let unit = fs::read_to_string(unit).unwrap();
        // It looks whether the program is there.
        let unit = unit.replace("/usr/bin/lowroad", env!("CARGO_BIN_EXE_lowroad"));
        let file = folder.path().join(&name);
        fs::write(&file, unit).unwrap();
        let verify = Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(&file)
            .output();
        let verified = verify.unwrap();
        let said = String::from_utf8_lossy(&verified.stderr);
        assert!(
            verified.status.success() && !said.contains(&name),
            "{name}: {said}"
        );
    }
}

#[test]
fn the_replicas_user_exists_and_owns_its_files() {
    let users = include_str!("../../../../packaging/lowroad.sysusers");
    let user = REPLICA_UNIT
        .lines()
        .find_map(|line| line.strip_prefix("User="));
    let user = user.expect("the unit names a user");
    assert!(users.contains(&format!("u {user} ")));
    // Keys are refused if others can read them, so they belong to this user.
    let owned = |line: &&str| line.contains(&format!("-o {user}")) && line.contains("/etc/lowroad");
    assert!(REPLICATE_SERVICE.lines().any(|line| owned(&line)), "{user}");
}

#[test]
fn the_services_user_is_made_and_may_read_its_files() {
    let unit = include_str!("../../../../packaging/lowroad-relay.service");
    let users = include_str!("../../../../packaging/lowroad.sysusers");
    let user = unit.lines().find_map(|line| line.strip_prefix("User="));
    let user = user.expect("the unit names a user");
    assert!(users.contains(&format!("u {user} ")));
    for (owner, path) in [
        (format!("-g {user} -m 0750"), "/etc/lowroad"),
        (format!("-g {user} -m 0640"), "/etc/lowroad/relay.toml"),
        (format!("chown {user}"), "/etc/lowroad/token"),
    ] {
        let given = |line: &&str| line.contains(&owner) && line.contains(path);
        assert!(RELAY.lines().any(|line| given(&line)), "{owner} {path}");
    }
}

#[test]
fn the_relay_pages_configurations_are_correct() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("relay.toml");
    let blocks: Vec<_> = RELAY.split("```toml\n").skip(1).collect();
    assert_eq!(blocks.len(), 2);
    for text in blocks {
        fs::write(&file, text.split("```").next().unwrap()).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_lowroad"))
            .args(["relay", "serve", "--check", "--config"])
            .arg(&file)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
}
