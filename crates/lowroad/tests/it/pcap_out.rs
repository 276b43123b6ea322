//! `--pcap-out`: the packets of the rows in a capture, live and from a file.

use std::fs::{self, File};
use std::path::Path;
use std::process::Output;

use nix::sys::signal::Signal;
use packet::pcap::Reader;

use crate::live_capture::{Capture, FRAMES, account};
use crate::relay_server::{errors, lowroad};

/// Packets of a file, which must be readable to its end.
fn packets(path: &Path) -> u64 {
    let reader = Reader::new(File::open(path).unwrap()).unwrap();
    let frames: Vec<_> = reader.collect::<Result<_, _>>().unwrap();
    frames.len() as u64
}

#[test]
fn a_live_capture_has_every_packet_of_the_rows_when_a_signal_ends_it() {
    if !sys::require::root() {
        return;
    }
    for (datapath, more) in [
        ("recv", &[][..]),
        ("tpacket", &["--workers", "2"]),
        ("af-xdp", &["--tap"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("packets.pcap");
        let out = path.to_str().unwrap().to_owned();
        let mut arguments = vec![
            "--datapath",
            datapath,
            "--filter",
            "udp",
            "--pcap-out",
            &out,
        ];
        arguments.extend(more);
        let mut capture = Capture::start_in(folder, &format!("out-{datapath}"), &arguments);
        let told = capture.feed();
        assert!(
            told.contains_key("lowroad_features_recorded_packets_total"),
            "{told:?}"
        );
        assert_eq!(
            told["lowroad_features_unrecorded_packets_total"], 0,
            "{datapath}"
        );
        capture.signal(Signal::SIGINT);
        let output = capture.end();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{datapath}: {}",
            errors(&output)
        );
        let account = account(&output);
        let exported = account["packets_exported"].as_u64().unwrap();
        assert!(exported >= FRAMES, "{datapath}: {account}");
        assert_eq!(account["pcap_out"]["packets"], exported, "{datapath}");
        assert_eq!(account["pcap_out"]["lost"], 0, "{datapath}");
        assert_eq!(packets(&path), exported, "{datapath}");
    }
}

fn pcap(arguments: &[&str]) -> Output {
    lowroad()
        .args(["features", "pcap"])
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn a_file_is_filtered_into_another() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (input, rows, out) = (file("mix.pcap"), file("a.csv"), file("dns.pcap"));
    fs::write(&input, loadgen::mix::write(Vec::new(), 3000, 5).unwrap()).unwrap();
    let filter = ["--filter", "udp port 53"];
    let output = pcap(
        &[
            &[&input, "-o", &rows, "--pcap-out", &out, "--json"],
            &filter[..],
        ]
        .concat(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let told = account(&output);
    assert_eq!(told["pcap_out"]["packets"], told["packets_exported"]);
    let again = pcap(&[&out, "-o", "-", "--format", "csv"]);
    assert_eq!(
        String::from_utf8(again.stdout).unwrap(),
        fs::read_to_string(&rows).unwrap()
    );

    // By a pipe, with the account where it does not mix with packets.
    let piped = pcap(&[&[&input, "-o", &rows, "--pcap-out", "-"], &filter[..]].concat());
    assert_eq!(piped.stdout, fs::read(&out).unwrap());
    assert!(
        errors(&piped).contains("packets recorded"),
        "{}",
        errors(&piped)
    );
}

#[test]
fn what_is_no_capture_leaves_an_output_alone_and_a_folder_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (input, rows) = (file("a.txt"), file("a.csv"));
    fs::write(&rows, "from before").unwrap();
    for (content, threads) in [
        ("", "1"),
        ("text", "3"),
        ("longer text than any header has", "1"),
    ] {
        fs::write(&input, content).unwrap();
        let output = pcap(&[&input, "-o", &rows, "--threads", threads]);
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.ends_with("a.txt: not a pcap or pcapng file\n"),
            "{said}"
        );
        assert!(output.stdout.is_empty());
        assert_eq!(fs::read_to_string(&rows).unwrap(), "from before");
    }
    let place = folder.path().display().to_string();
    for (arguments, code, says) in [
        (["-o", &place, "--format", "csv"], 2, "is a folder"),
        (
            ["-o", "/nonexistent/a.csv", "--format", "csv"],
            1,
            "/nonexistent/a.csv: No such file",
        ),
        (["-o", &rows, "--pcap-out", &place], 2, "is a folder"),
    ] {
        let output = pcap(&[&[input.as_str()], &arguments[..]].concat());
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
        assert_eq!(
            said.matches("os error").count(),
            usize::from(code == 1),
            "{said}"
        );
    }
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        2,
        "nothing is left behind"
    );
}

#[test]
fn two_outputs_in_one_place_are_refused_and_the_input_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (input, rows) = (file("mix.pcap"), file("a.csv"));
    let capture = loadgen::mix::write(Vec::new(), 100, 5).unwrap();
    fs::write(&input, &capture).unwrap();
    for (arguments, says) in [
        (&["-o", &rows, "--pcap-out", &input][..], "is read"),
        (&["-o", "-", "--pcap-out", "-"], "same"),
        (&["-o", &rows, "--pcap-out", &rows], "same"),
        (&["-o", &rows, "--pcap-out", &file("a.pcapng")], ".pcap"),
        (
            &["-o", &rows, "--pcap-out", &file("a.pcap"), "--threads", "2"],
            "--threads",
        ),
        (&["-o", &rows, "--pcap-out-size", "1MB"], "--pcap-out"),
    ] {
        let output = pcap(&[&[input.as_str()], arguments].concat());
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
    let over_itself = pcap(&[&input, "-o", &input, "--format", "csv"]);
    assert_eq!(over_itself.status.code(), Some(2));
    assert!(
        errors(&over_itself).contains("is read"),
        "{}",
        errors(&over_itself)
    );
    assert_eq!(fs::read(&input).unwrap(), capture);
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "nothing is left behind"
    );
}
