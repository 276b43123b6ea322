//! The dashboards, alerts and the dissector of `packaging/`: they name what there is, and their programs can read them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use packet::payload;
use packet::pcap::Writer;
use serde_json::Value;
use sys::require::{self, Class};

use crate::scrape::BOOK;

const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");
const ALERTS: &str = include_str!("../../../../../packaging/prometheus/alerts.yml");
const ALERT_TESTS: &str = include_str!("alerts.test.yml");
/// Labels that Prometheus adds, that of buckets, and the name of an alert.
const GENERAL: [&str; 3] = ["instance", "job", "le"];
const ETHERNET: u32 = 1;

/// The metrics of the book with their labels; a histogram's series under their own names.
fn metrics() -> BTreeMap<String, BTreeSet<&'static str>> {
    let mut metrics = BTreeMap::new();
    for row in BOOK.lines().filter(|line| line.starts_with("| `lowroad_")) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`');
        let labels = cells[3].split(", ").map(|label| label.trim_matches('`'));
        let labels: BTreeSet<_> = labels
            .filter(|label| !label.is_empty())
            .chain(GENERAL)
            .collect();
        let series = match cells[2] {
            "histogram" => &["_bucket", "_sum", "_count"][..],
            _ => &[""],
        };
        for suffix in series {
            metrics.insert(format!("{name}{suffix}"), labels.clone());
        }
    }
    metrics
}

/// The words of a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// Panics unless an expression has metrics of the book alone. Returns the labels that all of them have together.
fn labels_of(expression: &str) -> BTreeSet<&'static str> {
    let known = metrics();
    let mut labels = BTreeSet::new();
    let names: Vec<_> = words(expression)
        .filter(|word| word.starts_with("lowroad_"))
        .collect();
    for name in &names {
        let own = known.get(*name);
        labels.extend(own.unwrap_or_else(|| panic!("no metric {name}: {expression}")));
    }
    assert!(
        !names.is_empty() || expression.starts_with("up{"),
        "{expression}"
    );
    labels.extend(GENERAL);
    labels
}

/// The labels that an expression selects or groups by.
fn used_labels(expression: &str) -> Vec<&str> {
    let lists = ["by (", "ignoring ("].into_iter().flat_map(|start| {
        let parts = expression.split(start).skip(1);
        parts.flat_map(|part| part.split(')').next().unwrap().split(", "))
    });
    let selectors = expression.split('{').skip(1);
    let selectors = selectors.flat_map(|part| part.split('}').next().unwrap().split(", "));
    let selected = selectors.map(|matcher| matcher.split(['=', '!']).next().unwrap());
    lists.chain(selected).collect()
}

#[test]
fn dashboards_show_metrics_that_exist() {
    let mut shown = BTreeSet::new();
    for job in ["relay", "features", "router", "replicate"] {
        let path = Path::new(PACKAGING).join(format!("grafana/lowroad-{job}.json"));
        let dashboard: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(dashboard["uid"], format!("lowroad-{job}"));
        let mut numbers = BTreeSet::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            assert!(numbers.insert(panel["id"].as_u64().unwrap()), "{panel}");
            for target in panel["targets"].as_array().unwrap() {
                let expression = target["expr"].as_str().unwrap();
                let labels = labels_of(expression);
                let legend = target["legendFormat"].as_str().unwrap();
                let legend = legend
                    .split("{{")
                    .skip(1)
                    .map(|part| part.split("}}").next().unwrap());
                for label in used_labels(expression).into_iter().chain(legend) {
                    assert!(labels.contains(label), "{label}: {expression}");
                }
                let names = words(expression).filter(|word| word.starts_with("lowroad_"));
                shown.extend(names.map(str::to_owned));
            }
        }
    }
    // A job's main counters are on its page.
    for name in [
        "relay_received",
        "features_seen",
        "router",
        "replicate_part_state",
    ] {
        let name = format!("lowroad_{name}");
        assert!(shown.iter().any(|one| one.starts_with(&name)), "{name}");
    }
}

#[test]
fn alerts_are_about_metrics_that_exist() {
    let (mut open, mut count) = (None::<String>, 0);
    for text in ALERTS.lines().map(str::trim) {
        if let Some(start) = text.strip_prefix("expr:") {
            open = Some(start.trim_start_matches(" >-").trim().to_owned());
        } else if text.starts_with("for:") || text.starts_with("labels:") {
            let Some(expression) = open.take() else {
                continue;
            };
            let labels = labels_of(&expression);
            for label in used_labels(&expression) {
                assert!(labels.contains(label), "{label}: {expression}");
            }
            count += 1;
        } else if let Some(expression) = &mut open {
            expression.push(' ');
            expression.push_str(text);
        }
    }
    assert_eq!(count, ALERTS.matches("- alert:").count());
}

/// Under `--full` only: the package is large.
#[test]
fn alerts_fire_when_they_should() {
    if Command::new("promtool").arg("--version").output().is_err() {
        return require::skip(Class::OptIn, "no promtool: apt install prometheus");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("alerts.yml"), ALERTS).unwrap();
    fs::write(folder.path().join("alerts.test.yml"), ALERT_TESTS).unwrap();
    for arguments in [
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts.test.yml"],
    ] {
        let output = Command::new("promtool")
            .args(arguments)
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&said)
        );
    }
}

#[test]
fn wireshark_shows_parity_and_generated_datagrams() {
    if Command::new("tshark").arg("--version").output().is_err() {
        return require::skip(Class::Core, "tshark is not installed");
    }
    let mut parity = vec![0xfe, b'L', b'F', 1, 10, 0];
    parity.extend(1316_u16.to_be_bytes());
    parity.extend(70_u64.to_be_bytes());
    parity.extend([0xaa; 4]);
    let header = payload::Header {
        run: 0xabc,
        flow: 3,
        sequence: 7,
        intended_ns: 1500,
        sent_ns: 1000,
    };
    let mut generated = vec![0; payload::LEN + 20];
    header.write(&mut generated);
    let mut other_version = parity.clone();
    other_version[3] = 2;
    let short = generated[..payload::LEN - 1].to_vec();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("datagrams.pcap");
    let mut capture = Writer::new(fs::File::create(&path).unwrap(), ETHERNET).unwrap();
    let [from, to] =
        ["192.0.2.1:5000", "192.0.2.2:5004"].map(|text| text.parse::<SocketAddr>().unwrap());
    for datagram in [parity, generated, other_version, short] {
        let frame = packet::build::udp(from, to).payload(datagram).frame();
        capture.write(0, &frame).unwrap();
    }
    capture.finish().unwrap();
    let fields = [
        "_ws.col.Info",
        "lowroad_fec.lengths",
        "lowroad_fec.base",
        "lowroad_fec.parity",
        "lowroad.run",
        "lowroad.sequence",
        "lowroad.late_ns",
    ];
    let output = Command::new("tshark")
        .args([
            "-n",
            "-X",
            &format!("lua_script:{PACKAGING}/wireshark/lowroad.lua"),
            "-r",
        ])
        .arg(&path)
        .args(["-T", "fields"])
        .args(fields.iter().flat_map(|field| ["-e", field]))
        .output()
        .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = shown.lines().collect();
    assert_eq!(
        lines[..2],
        [
            "parity of 10 datagrams from 70\t1316\t70\taaaaaaaa\t\t\t",
            "flow 3 sequence 7\t\t\t\t0x00000abc\t7\t-500",
        ],
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(lines.len(), 4);
    assert!(
        lines[2..].iter().all(|line| line.ends_with("\t\t\t\t\t\t")),
        "{shown}"
    );
}
