//! Packets and bytes of every two endpoints equal those of tshark's conversations: on captures from
//! outside, and on hard ones made here. What packet.v1 says of a packet equals tshark's fields.
//!
//! What tshark counts otherwise is left out: it has no conversation for a packet with a Mobility
//! header or with more than some 495 extension headers, it takes the last hop of a source route for the
//! destination, follows IPv6 extension headers in IPv4, and counts what is in a tunnel as well.

mod capture;
mod conversations;
mod fields;
mod links;
mod packets;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use capture::Capture;
use conversations::{Conversations, Pair, by_flows, by_tshark, tshark_is_present};

/// Here the addresses in the tunnels are not those of [`is_inside`].
const TUNNEL_CAPTURES: [&str; 1] = ["zeek_zeek__gre-aruba.pcap"];

/// Every capture from outside; none where there is none, or no tshark.
fn outside() -> Vec<PathBuf> {
    let Some(folder) = sys::require::corpus().filter(|_| tshark_is_present()) else {
        return Vec::new();
    };
    let is_capture = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("pcap" | "pcapng"))
    };
    let entries = std::fs::read_dir(folder.join("pcap")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let captures: Vec<PathBuf> = paths.filter(is_capture).collect();
    assert!(!captures.is_empty(), "no captures in {}", folder.display());
    captures
}

#[test]
fn fields_of_packets_in_outside_captures() {
    outside().iter().for_each(|path| fields::check(path));
}

#[test]
fn outside_captures() {
    for path in outside() {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap();
        let ours = by_flows(&path);
        let mut theirs = by_tshark(&path);
        if TUNNEL_CAPTURES.contains(&name) {
            theirs.retain(|pair, _| ours.contains_key(pair));
        }
        assert_same(name, &ours, &theirs);
    }
}

#[test]
fn link_layers() {
    check(links::link_types());
}

#[test]
fn tags_and_labels() {
    check([links::tags()]);
}

#[test]
fn extension_headers() {
    check([packets::extensions()]);
}

#[test]
fn fragments() {
    check([packets::fragments()]);
}

#[test]
fn frames_that_are_cut_off() {
    check([packets::cut_off(), packets::too_short()]);
}

#[test]
fn headers_that_lie() {
    check([packets::lies()]);
}

#[test]
fn odd_conversations() {
    check([packets::odd()]);
}

#[test]
fn jumbograms() {
    check([packets::jumbograms()]);
}

#[test]
fn tunnels_count_by_their_outside() {
    if !tshark_is_present() {
        return;
    }
    let capture = packets::tunnels();
    let file = capture.file();
    let mut theirs = by_tshark(file.path());
    theirs.retain(|pair, _| !is_inside(pair));
    assert_same("tunnels", &by_flows(file.path()), &theirs);
}

fn is_inside((_, ends): &Pair) -> bool {
    ends.iter().any(|(address, _)| match address {
        IpAddr::V4(address) => address.octets()[..2] == [10, 9],
        IpAddr::V6(address) => address.segments()[0] == 0xfd09,
    })
}

fn check(captures: impl IntoIterator<Item = Capture>) {
    if !tshark_is_present() {
        return;
    }
    for capture in captures {
        let file = capture.file();
        check_file(capture.name, file.path());
    }
}

fn check_file(name: &str, path: &Path) {
    let (ours, theirs) = (by_flows(path), by_tshark(path));
    assert!(!theirs.is_empty(), "{name}: tshark sees nothing");
    assert_same(name, &ours, &theirs);
}

fn assert_same(name: &str, ours: &Conversations, theirs: &Conversations) {
    let pairs = ours.keys().chain(theirs.keys());
    let different: Vec<String> = pairs
        .map(|pair| (pair, ours.get(pair), theirs.get(pair)))
        .filter(|(_, ours, theirs)| ours != theirs)
        .take(8)
        .map(|(pair, ours, theirs)| format!("{pair:?}: {ours:?} instead of {theirs:?}"))
        .collect();
    assert!(different.is_empty(), "{name}:\n{}", different.join("\n"));
}
