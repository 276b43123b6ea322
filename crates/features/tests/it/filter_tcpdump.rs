//! The filter's language against tcpdump's on the outside captures: the same packets.
//!
//! Left out is where we mean more: behind tags, labels and extension headers, in later fragments, and
//! where a header is cut off, which for tcpdump makes every expression false.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use features::dissect::{Fragment, Packet, Tunnels, dissect};
use features::filter::{Fate, Rules, Selection};
use packet::pcap::{OwnedFrame, Reader};
use sys::require::{Class, corpus, skip};

use crate::expressions::{Grammar, Random, ends};

/// Expressions for each capture.
const EXPRESSIONS: u32 = 30;
/// At most so many times as many: each is a run of tcpdump.
const LONGER: u32 = 10;

#[test]
fn tcpdump_keeps_the_same_packets() {
    let Some(folder) = corpus().filter(|_| tcpdump_is_present()) else {
        return;
    };
    let mut paths: Vec<_> = fs::read_dir(folder.join("pcap"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let mut random = Random::new(7);
    let mut counts = Counts::default();
    for path in paths {
        let Ok(reader) = Reader::new(File::open(&path).unwrap()) else {
            continue;
        };
        let frames: Vec<OwnedFrame> = reader.map(Result::unwrap).collect();
        if tcpdump(&path, "ip or ip6").is_none() {
            continue;
        }
        let grammar = Grammar {
            ends: ends(&frames),
            files: None,
        };
        counts.captures += 1;
        for _ in 0..EXPRESSIONS * sys::require::fuzz().min(LONGER) {
            let expression = grammar.expression(&mut random, 2);
            compare(&path, &frames, &expression, &mut counts);
        }
    }
    assert!(counts.captures >= 15, "{counts:?}");
    assert!(
        counts.kept > 50_000 && counts.kept < counts.compared,
        "{counts:?}"
    );
}

#[derive(Debug, Default)]
struct Counts {
    captures: u32,
    compared: u64,
    kept: u64,
}

fn compare(path: &Path, frames: &[OwnedFrame], expression: &str, counts: &mut Counts) {
    let rules = Rules {
        filter: Some(expression.to_owned()),
        ..Rules::default()
    };
    let selection = Selection::new(rules).unwrap_or_else(|error| panic!("{expression}: {error}"));
    let kept = tcpdump(path, expression).unwrap();
    let mut kept = kept.iter().peekable();
    for captured in frames {
        // Equal frames have one fate, so that the next of its bytes is the same one.
        let theirs = kept.next_if(|kept| kept.frame == captured.frame).is_some();
        let frame = captured.as_frame();
        let Some(packet) = dissect(&frame, Tunnels::Outer).ok().filter(is_plain) else {
            continue;
        };
        let ours = selection.judge(&packet) == Fate::Kept;
        assert_eq!(ours, theirs, "{}: {expression}: {packet:?}", path.display());
        counts.compared += 1;
        counts.kept += u64::from(ours);
    }
    assert_eq!(kept.next(), None, "{expression}: every kept frame was met");
}

/// Whether tcpdump's offsets are where the headers are.
fn is_plain(packet: &Packet<'_>) -> bool {
    let plain_header = match packet.key.version {
        4 => packet.network.get(9) == Some(&packet.key.protocol),
        _ => packet.ip_header == 40,
    };
    let known = !matches!(packet.key.protocol, 33 | 136);
    let whole = packet.fragment != Fragment::Later && !packet.headless && !packet.malformed;
    let untagged = packet.link.vlan_tags == 0 && matches!(packet.link.l3, 0 | 4 | 14 | 16 | 20);
    plain_header && known && whole && untagged
}

/// The frames that tcpdump keeps; none where it cannot read the capture.
fn tcpdump(path: &Path, expression: &str) -> Option<Vec<OwnedFrame>> {
    // Not optimised: there libpcap 1.10.3 loses a branch now and then, as the last host of `(src port 1 or
    // host A or B) and dst net C or host A or 0.0.0.0`.
    let out = Command::new("tcpdump")
        .args(["-O", "-n", "-w", "-", "-r"])
        .arg(path)
        .arg(expression)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    if said.contains("expression rejects all packets") {
        return Some(Vec::new());
    }
    assert!(!said.contains("syntax error"), "{expression}: {said}");
    let frames = Reader::new(out.stdout.as_slice()).ok()?;
    out.status
        .success()
        .then(|| frames.map(Result::unwrap).collect())
}

fn tcpdump_is_present() -> bool {
    let present = Command::new("tcpdump").arg("--version").output().is_ok();
    if !present {
        skip(Class::Core, "needs tcpdump");
    }
    present
}
