//! The real binary with several captures, directories, patterns and compressed files: one account, and flows that go on
//! from one capture to the next.

use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use packet::build;
use packet::pcap::{ETHERNET, Writer};
use serde_json::Value;

/// The packets of these turns: in each one, ten flows have a packet in both directions.
fn capture(turns: std::ops::Range<u16>) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), ETHERNET).unwrap();
    let server: SocketAddr = "192.0.2.2:443".parse().unwrap();
    for turn in turns {
        for flow in 0..10 {
            let client = SocketAddr::from(([10, 0, 0, 1], 20_000 + flow));
            let time = 1_000_000_000 * i64::from(turn) + i64::from(flow);
            for (from, to) in [(client, server), (server, client)] {
                writer.write(time, &build::udp(from, to).frame()).unwrap();
            }
        }
    }
    writer.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 0).unwrap()
}

fn features(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lowroad"))
        .args(["features", "pcap", "--json", "-o", "out.csv"])
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn account(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn rows(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("out.csv")).unwrap();
    let mut rows: Vec<String> = text.lines().map(str::to_owned).collect();
    rows.sort();
    rows
}

#[test]
fn several_captures_are_one() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("whole.pcap"), capture(0..30)).unwrap();
    assert!(features(folder, &["whole.pcap"]).status.success());
    let expected = rows(folder);
    assert_eq!(expected.len(), 11);

    // Names in an order that is not that of their bytes, formats by content and not by name.
    fs::create_dir(folder.join("ring")).unwrap();
    fs::write(folder.join("ring/x.pcap"), capture(0..10)).unwrap();
    fs::write(folder.join("ring/x.pcap9"), zstd(&capture(10..20))).unwrap();
    fs::write(folder.join("ring/x.pcap10.gz"), zstd(&capture(20..30))).unwrap();
    fs::write(folder.join("ring/notes.txt"), "no capture").unwrap();
    for arguments in [
        &["ring"][..],
        &["ring/x.*"],
        &["ring/x.pcap", "ring/x.pcap9", "ring/x.pcap10.gz"],
        &["ring", "--threads", "3"],
        &["ring/x.pcap", "ring"],
    ] {
        let output = features(folder, arguments);
        let account = account(&output);
        assert!(output.status.success(), "{arguments:?}: {account}");
        assert_eq!(account["packets"], 600, "{arguments:?}");
        assert_eq!(account["captures"], 3, "{arguments:?}");
        assert_eq!(account["damaged"], Value::Array(Vec::new()));
        assert_eq!(rows(folder), expected, "{arguments:?}");
    }
}

#[test]
fn a_compressed_capture_comes_by_standard_input_too() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("first.pcap"), capture(0..10)).unwrap();
    fs::write(folder.join("second"), zstd(&capture(10..30))).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lowroad"));
    command.args([
        "features",
        "pcap",
        "--json",
        "-o",
        "out.csv",
        "first.pcap",
        "-",
    ]);
    let second = File::open(folder.join("second")).unwrap();
    let output = command
        .current_dir(folder)
        .stdin(Stdio::from(second))
        .output()
        .unwrap();
    assert_eq!(account(&output)["packets"], 600);
    assert_eq!(rows(folder).len(), 11);
}

#[test]
fn a_damaged_capture_is_named_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let packed = zstd(&capture(10..20));
    fs::write(folder.join("1.pcap"), capture(0..10)).unwrap();
    fs::write(folder.join("2.pcap"), &packed[..packed.len() - 9]).unwrap();
    fs::write(folder.join("3.pcap"), "no capture").unwrap();
    fs::write(folder.join("4.pcap"), capture(20..30)).unwrap();
    let output = features(folder, &["."]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    for part in [
        "2 of 4 captures are damaged: ",
        "2.pcap: cut off after ",
        "3.pcap: not a pcap or pcapng file; the rows of what came before are complete",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let account = account(&output);
    assert!(account["packets"].as_u64().unwrap() >= 400, "{account}");
    assert_eq!(account["packets_unaccounted"], 0);
    assert_eq!(account["damaged"][1]["capture"], "./3.pcap");
    assert_eq!(account["damaged"][1]["error"], "not a pcap or pcapng file");
    assert_eq!(rows(folder).len(), 11);
}

#[test]
fn names_that_stand_for_no_capture_are_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("empty")).unwrap();
    fs::write(folder.join("1.pcap"), capture(0..1)).unwrap();
    fs::write(folder.join("text.pcap"), "no capture").unwrap();
    fs::write(folder.join("out.csv"), "as before").unwrap();
    for (arguments, what) in [
        (&["1.pcap", "2.pcap"][..], "2.pcap: No such file"),
        (&["1.pcap", "day*/*.pcap"], "day*/*.pcap: no file matches"),
        (&["1.pcap", "empty"], "empty: the directory has no captures"),
        (&["text.pcap"], "text.pcap: not a pcap or pcapng file"),
        (
            &["text.pcap", "/dev/null"],
            "2 of 2 captures are damaged: text.pcap: not a pcap",
        ),
        (
            &["1.pcap", "out.csv"],
            "out.csv is read, and cannot be --out",
        ),
        (
            &["1.pcap", ".", "--pcap-out", "text.pcap"],
            "text.pcap is read, and cannot be --pcap-out",
        ),
    ] {
        let output = features(folder, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(what), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
        let text = fs::read_to_string(folder.join("out.csv")).unwrap();
        assert_eq!(text, "as before", "{arguments:?}");
    }
}

/// A capture program that rotates: a file grows, ends with half a record for a while, and is followed by another one.
#[test]
fn a_rotation_is_followed_until_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("ring")).unwrap();
    fs::write(folder.join("ring/x.pcap9"), capture(0..10)).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_lowroad"))
        .args(["features", "pcap", "--json", "-o", "out.csv"])
        .args(["--follow", "ring", "--pcap-out", "copy.pcap"])
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pause = || thread::sleep(Duration::from_millis(300));
    let second = capture(10..20);
    let (half, rest) = second.split_at(second.len() / 2 + 3);
    let mut file = File::create(folder.join("ring/x.pcap10")).unwrap();
    file.write_all(half).unwrap();
    pause();
    file.write_all(rest).unwrap();
    fs::write(folder.join("ring/x.pcap11.part"), "not yet").unwrap();
    // What `tcpdump -z` makes of a capture that has been read, and no file.
    fs::write(folder.join("ring/x.pcap10.zst"), zstd(&second)).unwrap();
    fs::create_dir(folder.join("ring/x.pcap10x.pcap")).unwrap();
    pause();
    fs::write(folder.join("ring/x.pcap11"), zstd(&capture(20..30))).unwrap();
    // The last one is still being written.
    let last = capture(30..40);
    fs::write(folder.join("ring/x.pcap12"), &last[..last.len() - 5]).unwrap();
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
    let output = child.wait_with_output().unwrap();
    let account = account(&output);
    assert_eq!(output.status.code(), Some(0), "{account}");
    assert_eq!(account["packets"], 4 * 200 - 1, "{account}");
    assert_eq!(account["captures"], 4);
    assert_eq!(account["pcap_out"]["packets"], 4 * 200 - 1);
    assert_eq!(rows(folder).len(), 11);
}

#[test]
fn a_rotation_that_cannot_be_followed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("file.pcap"), capture(0..1)).unwrap();
    for (arguments, what) in [
        (&["--follow", "none"][..], "none: no such directory"),
        (&["--follow", "file.pcap"], "file.pcap: no such directory"),
        (
            &["--follow", ".", "--pcap-out", "copy.pcap"],
            "--pcap-out would write to the directory that --follow reads",
        ),
        (&["--follow", ".", "file.pcap"], "cannot be used with"),
        (&["--follow", ".", "--threads", "2"], "cannot be used with"),
    ] {
        let output = features(folder, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(what), "{arguments:?}: {said}");
    }
}
