//! `nfstream.v1` beside NFStream itself: equal rows, but for the differences that are documented.

mod captures;
mod compare;
mod differ;
mod equal;
mod ours;
mod peer;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use features::dissect::Tunnels;

use captures::{Case, Difference, Expectation};
use compare::{Tolerance, compare};
use peer::{Decode, NfStream, Row, Rows};

/// The list of differences.
const PAGE: &str = include_str!("../../../../../docs/src/features-nfstream.md");

#[test]
fn small_captures_give_equal_rows_or_a_documented_difference() {
    let Some(nfstream) = NfStream::install() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let cases = captures::cases();
    let files = (0..).zip(&cases).map(|(number, case)| {
        let file = folder.path().join(format!("{number}.pcap"));
        fs::write(&file, ours::capture(&case.frames)).unwrap();
        file
    });
    let files: Vec<PathBuf> = files.collect();
    let results = nfstream.run(&files, Decode::Inner);
    let wrong: Vec<String> = cases
        .iter()
        .zip(&results)
        .filter_map(|(case, theirs)| judge(case, theirs).err())
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn judge(case: &Case, theirs: &Rows) -> Result<(), String> {
    let rows = ours::rows(&ours::capture(&case.frames), case.tunnels);
    match &case.expected {
        Expectation::Equal => {
            let seen = ours::as_nfstream_sees(&case.frames);
            let exact = ours::rows(&ours::capture(&seen.frames), case.tunnels);
            equal(case.name, &exact, theirs, Tolerance::Noise)?;
            equal(case.name, &rows, theirs, Tolerance::Rounding)
        }
        Expectation::Differ(expected) => differs(case.name, expected, &rows, theirs),
    }
}

fn equal(name: &str, ours: &Rows, theirs: &Rows, within: Tolerance) -> Result<(), String> {
    let differences = compare(ours, theirs, within);
    if differences.none() {
        return Ok(());
    }
    Err(format!("{name}: {}", differences.words.join("\n  ")))
}

fn differs(name: &str, expected: &Difference, ours: &Rows, theirs: &Rows) -> Result<(), String> {
    if !PAGE.contains(&format!("\n## {name}\n")) {
        return Err(format!("{name} is not documented"));
    }
    let found = compare(ours, theirs, Tolerance::Rounding);
    let both = [packets(ours), packets(theirs)];
    let as_expected = found.flows == expected.flows
        && found.columns.iter().eq(expected.columns.iter().copied())
        && both == expected.packets;
    if as_expected {
        return Ok(());
    }
    Err(format!("{name}: packets {both:?}: {found:#?}"))
}

#[test]
fn every_capture_of_the_corpus_gives_equal_rows() {
    let Some(corpus) = sys::require::corpus() else {
        return;
    };
    let Some(nfstream) = NfStream::install() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let captures = copies(&corpus.join("pcap"), folder.path());
    let inner = nfstream.run(&captures, Decode::Inner);
    let outer = nfstream.run(&captures, Decode::Outer);
    let mut flows = 0;
    for (capture, (inner, outer)) in captures.iter().zip(inner.iter().zip(&outer)) {
        flows += capture_is_equal(capture, inner, outer).unwrap_or_else(|why| panic!("{why}"));
    }
    println!("{} captures, {flows} flows", captures.len());
    assert!(flows > 0);
}

/// NFStream's rows are written beside a capture, and the corpus is not ours to write to.
fn copies(from: &Path, to: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(from)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let captures = files.filter(|path| {
        let ending = path.extension().and_then(OsStr::to_str);
        matches!(ending, Some("pcap" | "pcapng"))
    });
    let copy = |path: PathBuf| {
        let copy = to.join(path.file_name().unwrap());
        fs::copy(path, &copy).unwrap();
        copy
    };
    captures.map(copy).collect()
}

/// Flows in a capture, if our rows and NFStream's are equal.
fn capture_is_equal(file: &Path, inner: &Rows, outer: &Rows) -> Result<usize, String> {
    let name = &file.display().to_string();
    let frames = ours::frames(file);
    let seen = ours::as_nfstream_sees(&frames);
    let exact = ours::rows(&ours::capture(&seen.frames), Tunnels::Outer);
    let rows = ours::rows(&fs::read(file).unwrap(), Tunnels::Outer);
    equal(name, &exact, outer, Tolerance::Noise)?;
    // Where NFStream takes a packet for a tunnel, it has rows that nobody else has.
    if inner.rows.iter().all(|row| row["tunnel_id"] == 0) {
        assert_eq!(inner.names, exact.names, "{name}");
        equal(name, &exact, inner, Tolerance::Noise)?;
    }
    assert_eq!(packets(&rows), packets(outer) + seen.left_out, "{name}");
    if seen.left_out == 0 && !seen.moved {
        equal(name, &rows, outer, Tolerance::Rounding)?;
    }
    Ok(exact.rows.len())
}

/// Packets in all rows.
fn packets(rows: &Rows) -> u64 {
    let packets = |row: &Row| row["bidirectional_packets"].as_u64().unwrap();
    rows.rows.iter().map(packets).sum()
}
