//! `lowroad features live` as people run it: how it ends, what it says, and what Prometheus is told, of it and
//! of a capture that is read.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use netdev::{LinkSpec, Netlink};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::live_capture::{ADDRESS, Capture, FLOWS, FRAMES, account, live, scrape, send_frames};
use crate::relay_server::{Home, errors, lowroad};
use crate::scrape::{self, write_token};

/// Everything that was seen is exported or dropped under a name, and every row is in the file.
fn assert_adds_up(account: &Value, rows: &Path, name: &str) {
    let number = |of: &Value| of.as_u64().unwrap();
    let drops: u64 = account["drops"]
        .as_object()
        .unwrap()
        .values()
        .map(number)
        .sum();
    let exported = number(&account["packets_exported"]);
    assert_eq!(
        exported + drops,
        number(&account["packets"]),
        "{name}: {account}"
    );
    assert_eq!(number(&account["rows_lost"]), 0, "{name}");
    assert!(exported >= FRAMES, "{name}: {account}");
    let lines = fs::read_to_string(rows).unwrap().lines().count();
    assert_eq!(lines as u64, 1 + number(&account["rows"]), "{name}");
}

#[test]
fn a_signal_ends_it_with_its_rows_and_an_account_that_adds_up() {
    if !sys::require::root() {
        return;
    }
    for datapath in features::live::datapaths() {
        let name = datapath.name();
        let mut arguments = vec!["--schema", "nfstream.v1", "--datapath", name];
        arguments.extend((name == "af-xdp").then_some("--tap"));
        let mut capture = Capture::start(&format!("live-{name}"), &arguments);
        let told = capture.feed();
        capture.signal(Signal::SIGINT);
        let output = capture.end();
        assert_eq!(output.status.code(), Some(0), "{name}: {}", errors(&output));
        let account = account(&output);
        assert_adds_up(&account, &capture.rows(), name);
        assert_consistent(&told, name);
    }
}

/// What Prometheus was told in the midst of a run adds up, too.
fn assert_consistent(told: &BTreeMap<String, u64>, name: &str) {
    let of = |metric: &str| told[&format!("lowroad_features_{metric}")];
    let is_drop = |metric: &&String| {
        metric.starts_with("lowroad_features_dropped_packets_total{") && !metric.contains("no_room")
    };
    let drops: u64 = told.keys().filter(is_drop).map(|metric| told[metric]).sum();
    assert_eq!(
        of("exported_packets_total") + of("open_packets") + drops,
        of("seen_packets_total"),
        "{name}: {told:?}"
    );
    assert_eq!(of("lost_rows_total"), 0, "{name}");
}

#[test]
fn it_ends_by_itself_after_its_time() {
    if !sys::require::root() {
        return;
    }
    let more = ["--datapath", "recv", "--duration", "1s"];
    let mut capture = Capture::start("live-time", &more);
    let output = capture.end();
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert_eq!(account(&output)["packets_unaccounted"], 0);
    // Columns, though no row.
    let rows = fs::read_to_string(capture.rows()).unwrap();
    assert!(rows.lines().count() >= 1);
}

/// Deletes the device of a capture, and waits until it is gone.
fn delete_device(home: &Home) {
    home.run(|| {
        let mut netlink = Netlink::new().unwrap();
        let index = netlink.link_by_name("near").unwrap().index;
        netlink.delete_link(index).unwrap();
    });
}

#[test]
fn a_device_that_is_deleted_ends_it_with_its_rows() {
    if !sys::require::root() {
        return;
    }
    for name in ["recv", "tpacket", "xdp-flow", "tc-flow"] {
        let arguments = ["--schema", "nfstream.v1", "--datapath", name];
        let mut capture = Capture::start(&format!("live-gone-{name}"), &arguments);
        capture.feed();
        delete_device(&capture.home);
        let output = capture.end();
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{name}: {said}");
        assert!(
            said.contains("error: near: the interface was deleted"),
            "{name}: {said}"
        );
        assert_adds_up(&account(&output), &capture.rows(), name);
    }
}

#[test]
fn with_wait_it_goes_on_when_its_device_is_back() {
    if !sys::require::root() {
        return;
    }
    for name in ["recv", "tpacket", "xdp-flow", "tc-flow"] {
        let arguments = ["--schema", "nfstream.v1", "--datapath", name, "--wait"];
        let mut capture = Capture::start(&format!("live-back-{name}"), &arguments);
        capture.feed();
        delete_device(&capture.home);
        let deadline = Instant::now() + Duration::from_secs(60);
        while !capture.warned().contains("waiting until it is back") {
            assert!(Instant::now() < deadline, "{name}: {}", capture.warned());
            thread::sleep(Duration::from_millis(50));
        }
        let before = capture.scrape();
        capture.home.run(|| {
            let mut netlink = Netlink::new().unwrap();
            let (near, far) = (LinkSpec::new("near"), LinkSpec::new("far"));
            netlink.add_veth(&near, &far).unwrap();
            for name in ["near", "far"] {
                let index = netlink.link_by_name(name).unwrap().index;
                netlink.set_link(index, &LinkSpec::unnamed().up()).unwrap();
            }
        });
        let seen = "lowroad_features_seen_packets_total";
        while capture.scrape()[seen] < before[seen] + FRAMES {
            assert!(Instant::now() < deadline, "{name}: {}", capture.warned());
            capture.home.run(send_frames);
            thread::sleep(Duration::from_millis(300));
        }
        capture.signal(Signal::SIGTERM);
        let output = capture.end();
        assert_eq!(output.status.code(), Some(0), "{name}: {}", errors(&output));
        let account = account(&output);
        assert!(
            account["flows"].as_u64() >= Some(2 * FLOWS),
            "{name}: {account}"
        );
        assert_adds_up(&account, &capture.rows(), name);
    }
}

#[test]
fn columns_of_the_default_schema_that_the_kernel_does_not_give_are_null() {
    if !sys::require::root() {
        return;
    }
    for name in ["xdp-flow", "tc-flow", "xdp-ringbuf"] {
        let mut capture = Capture::start(&format!("live-null-{name}"), &["--datapath", name]);
        capture.feed();
        capture.signal(Signal::SIGINT);
        let output = capture.end();
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(0), "{name}: {said}");
        let notice = format!(
            "{name} does not give these columns, which are null: tls_sni,tls_ja4,dns_name,\
             fwd_first_payload_entropy,bwd_first_payload_entropy,tls_alpn,quic_version,quic_sni,\
             quic_alpn,quic_ja4;"
        );
        assert_eq!(said.matches(&notice).count(), 1, "{name}: {said}");
        assert_adds_up(&account(&output), &capture.rows(), name);
        let rows = fs::read_to_string(capture.rows()).unwrap();
        let mut lines = rows.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let header = lines.next().unwrap();
        let place = |name| header.iter().position(|known| *known == name).unwrap();
        let (null, packets) = (place("fwd_first_payload_entropy"), place("packets"));
        for line in lines {
            assert_eq!(line[null], "", "{name}: {line:?}");
            assert_ne!(line[packets], "", "{name}: {line:?}");
        }
    }
}

/// A tree over a column that is made from payload.
#[test]
fn a_model_whose_input_the_kernel_does_not_give_is_refused() {
    if !sys::require::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let trees = r#"{"format":"lowroad-trees-1","model":"by hand","columns":["fwd_first_payload_entropy"],"inputs":1,
        "labels":["text","random"],"compare":"single","link":"mean","base":["0.0"],"trees":[{"output":0,
        "left":[1,-1,-1],"right":[2,-1,-1],"feature":[0,-2,-2],"threshold":["6.5","-2.0","-2.0"],
        "missing_left":null,"value":[[],["0.25"],["1.0"]]}]}"#;
    let manifest = "name = \"random\"\ntrees = \"trees.json\"\nschema = \"flow.v1\"\n\
        columns = [{ id = \"flow.v1/fwd_first_payload_entropy\", null = 0 }]\n\
        classes = [{ name = \"text\" }, { name = \"random\" }]\n";
    fs::write(file("trees.json"), trees).unwrap();
    fs::write(file("model.toml"), manifest).unwrap();
    let home = Home::new("live-inputs");
    let mut command = live(&["near", "--datapath", "xdp-flow", "--score"]);
    command
        .arg(file("model.toml"))
        .arg("-o")
        .arg(file("rows.csv"));
    let output = home.run(|| command.output().unwrap());
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("packets themselves: fwd_first_payload_entropy; "),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_reader_that_closes_standard_output_ends_it() {
    if !sys::require::root() {
        return;
    }
    let home = Home::new("live-closed");
    let mut command = live(&["near", "--datapath", "recv", "-o", "-"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = home.run(|| command.spawn().unwrap());
    // The names of the columns come at once.
    let mut output = child.stdout.take().unwrap();
    output.read_exact(&mut [0; 10]).unwrap();
    drop(output);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert!(!errors(&output).contains("error"), "{}", errors(&output));
}

#[test]
fn the_metrics_are_for_who_has_the_token() {
    if !sys::require::root() {
        return;
    }
    let mut capture = Capture::start("live-token", &["--datapath", "recv"]);
    capture.feed();
    let answer = capture.home.run(|| {
        let mut stream = TcpStream::connect(ADDRESS).unwrap();
        let head = format!("GET /metrics HTTP/1.1\r\nHost: {ADDRESS}\r\nConnection: close");
        write!(stream, "{head}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    let page = capture.home.run(|| scrape::scrape(ADDRESS));
    assert!(page.value("lowroad_features_seen_packets_total", &[]) >= FRAMES as f64);
}

#[test]
fn what_cannot_be_captured_is_refused_in_a_line_with_its_exit_code() {
    if !sys::require::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("flows.csv");
    let home = Home::new("live-refused");
    for (arguments, code, says) in [
        (&["nowhere", "--datapath", "recv"][..], 2, "nowhere"),
        (&["near", "--datapath", "pigeon"][..], 2, "xdp-flow"),
        (&["near", "--datapath", "recv", "--tap"][..], 2, "xdp"),
        (
            &["near", "--datapath", "xdp-flow", "--strict"][..],
            2,
            "--without tls_sni,tls_ja4,dns_name,",
        ),
        (
            &["near", "--datapath", "recv", "--workers", "0"][..],
            2,
            "--workers",
        ),
        (
            &["lo", "--datapath", "xdp-flow", "--schema", "cic.v1"][..],
            3,
            "generic",
        ),
        (
            &["near", "--datapath", "tc-flow", "--pcap-out", "/dev/null"][..],
            2,
            "tpacket",
        ),
    ] {
        let mut command = live(arguments);
        command.arg("-o").arg(&out);
        let output = home.run(|| command.output().unwrap());
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
        assert!(!out.exists(), "{arguments:?}");
    }
}

#[test]
fn of_a_capture_that_is_read_prometheus_is_told_the_same() {
    if !sys::require::root() {
        return;
    }
    let home = Home::new("pcap-metrics");
    let folder = tempfile::tempdir().unwrap();
    let token = write_token(folder.path());
    let capture = loadgen::mix::write(Vec::new(), 20_000, 3).unwrap();
    for threads in ["1", "3"] {
        let mut command = lowroad();
        command
            .args([
                "features",
                "pcap",
                "-",
                "--json",
                "-o",
                "/dev/null",
                "--format",
                "csv",
            ])
            .args([
                "--threads",
                threads,
                "--metrics",
                ADDRESS,
                "--metrics-token",
            ])
            .arg(&token)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = home.run(|| command.spawn().unwrap());
        let mut input = child.stdin.take().unwrap();
        input.write_all(&capture).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let seen = "lowroad_features_seen_packets_total";
        // What is in the pipe is read, and the rest waits.
        let told = loop {
            let told = scrape(&home);
            if told.get(seen) > Some(&0) {
                break told;
            }
            assert!(Instant::now() < deadline, "{told:?}");
            thread::sleep(Duration::from_millis(50));
        };
        assert_consistent(&told, threads);
        drop(input);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(account(&output)["packets"], 20_000);
    }
}
