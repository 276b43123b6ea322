//! QUIC beside tshark: in the corpus, and in the packets made by hand.

use std::net::SocketAddr;
use std::path::Path;

use features::payload::tls::ClientHello;
use packet::build;
use packet::pcap::{ETHERNET, Writer};
use sha2::{Digest, Sha256};

use super::captures::{captures, flows};
use super::hello::browser;
use super::quic::cases;
use super::tshark::{self, QuicHello};
use crate::common::{json_rows, run};

type ClientHelloFields = (u32, String, String, String);

/// What the flows of a capture have.
fn ours(path: &Path) -> Vec<ClientHelloFields> {
    let said = |version, hello: &ClientHello| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        (
            version,
            text(&hello.sni),
            text(&hello.alpn),
            hello.ja4.clone(),
        )
    };
    let flows = flows(path);
    let quic = flows.iter().filter_map(|flow| flow.contents.quic());
    let mut ours: Vec<_> = quic
        .filter_map(|quic| Some(said(quic.version(), quic.hello()?)))
        .collect();
    ours.sort();
    ours
}

fn theirs(path: &Path) -> Vec<ClientHelloFields> {
    let said = |hello: QuicHello| {
        let ja4 = ja4(&hello);
        (hello.version, hello.sni, hello.alpn, ja4)
    };
    let mut theirs: Vec<_> = tshark::quic_hellos(path).into_iter().map(said).collect();
    theirs.sort();
    theirs
}

/// JA4 of the lists that tshark shows; it has the fingerprint itself only since 4.2.
fn ja4(hello: &QuicHello) -> String {
    let numbers = |list: &str| -> Vec<u16> {
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(hexadecimal) => u16::from_str_radix(hexadecimal, 16).unwrap(),
            None => text.parse().unwrap(),
        };
        let numbers = list.split(',').filter(|text| !text.is_empty()).map(number);
        numbers.filter(|number| number & 0x0f0f != 0x0a0a).collect()
    };
    let joined = |mut numbers: Vec<u16>, sort: bool| {
        if sort {
            numbers.sort_unstable();
        }
        let texts: Vec<_> = numbers
            .iter()
            .map(|number| format!("{number:04x}"))
            .collect();
        texts.join(",")
    };
    let hash = |text: String| {
        let digits: Vec<_> = Sha256::digest(text)
            .iter()
            .take(6)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        digits.concat()
    };
    let (ciphers, extensions) = (numbers(&hello.ciphers), numbers(&hello.extensions));
    let version = match numbers(&hello.versions).into_iter().max() {
        Some(0x0304) => "13",
        _ => "00",
    };
    let first = hello.alpn.split(',').next().unwrap();
    let ends: String = [first.chars().next().unwrap(), first.chars().last().unwrap()]
        .iter()
        .collect();
    let named = if extensions.contains(&0) { 'd' } else { 'i' };
    let hashed = extensions
        .iter()
        .copied()
        .filter(|kind| ![0, 16].contains(kind))
        .collect();
    let algorithms = joined(numbers(&hello.algorithms), false);
    format!(
        "q{version}{named}{:02}{:02}{ends}_{}_{}",
        ciphers.len(),
        extensions.len(),
        hash(joined(ciphers, true)),
        hash(format!("{}_{algorithms}", joined(hashed, true))),
    )
}

#[test]
fn quic_hellos_are_tshark_s() {
    let (Some(captures), true) = (captures(), tshark::present()) else {
        return;
    };
    let mut hellos = 0;
    for path in captures {
        let ours = ours(&path);
        assert_eq!(ours, theirs(&path), "{}", path.display());
        hellos += ours.len();
    }
    assert!(hellos > 0, "no capture has QUIC");
}

/// Each case from a port of its own, without the server's packets, which tshark needs in the cases that
/// are left out; and it does not know 0-RTT in front of the first Initial packet.
#[test]
fn hellos_made_by_hand_are_tshark_s() {
    const NOT_BY_TSHARK: [&str; 4] = [
        "behind 0-RTT",
        "server's ID",
        "after a Retry",
        "upgraded to version 2",
    ];
    if !tshark::present() {
        return;
    }
    let capture = tempfile::NamedTempFile::new().unwrap();
    let mut writer = Writer::new(capture.reopen().unwrap(), ETHERNET).unwrap();
    let cases = cases().into_iter();
    let cases = cases.filter(|case| !NOT_BY_TSHARK.contains(&case.name));
    for (port, case) in (40_000..).zip(cases) {
        let ends: [SocketAddr; 2] = [([192, 0, 2, 1], port).into(), ([192, 0, 2, 2], 443).into()];
        for datagram in case.datagrams {
            let frame = build::udp(ends[0], ends[1]).payload(datagram).frame();
            let length = u32::try_from(frame.len()).unwrap();
            writer
                .write_cut(i64::from(port) * 1_000_000, length, &frame)
                .unwrap();
        }
    }
    writer.finish().unwrap();
    assert_eq!(ours(capture.path()), theirs(capture.path()));
}

#[test]
fn columns_of_quic_and_of_tls_are_apart() {
    let ends: [SocketAddr; 2] = [([192, 0, 2, 1], 4000).into(), ([192, 0, 2, 2], 443).into()];
    let case = cases().into_iter().find(|case| case.name == "version 2");
    let datagram = case.unwrap().datagrams.remove(0);
    let mut writer = Writer::new(Vec::new(), ETHERNET).unwrap();
    let over_udp = build::udp(ends[0], ends[1]).payload(datagram);
    let over_tcp = build::tcp(ends[0], ends[1], 16, 0).payload(browser().records(1 << 14));
    writer.write(1, &over_udp.frame()).unwrap();
    writer.write(2, &over_tcp.frame()).unwrap();
    let (_, rows) = json_rows(&run("flow.v1"), &writer.finish().unwrap());
    for (protocol, of, other) in [(17, "quic", "tls"), (6, "tls", "quic")] {
        let row = rows.iter().find(|row| row["protocol"] == protocol).unwrap();
        let column = |of: &str, what: &str| &row[&format!("{of}_{what}")];
        let ja4 = "13d1516h2_8daaf6152771_e5627efa2ab1";
        let letter = if of == "quic" { 'q' } else { 't' };
        assert_eq!(column(of, "sni"), "www.example.com");
        assert_eq!(column(of, "alpn"), "h2,http/1.1");
        assert_eq!(column(of, "ja4"), &format!("{letter}{ja4}"));
        for what in ["sni", "alpn", "ja4"] {
            assert!(column(other, what).is_null(), "{other}_{what}");
        }
        let version = (of == "quic").then_some(0x6b33_43cf_u32);
        assert_eq!(row["quic_version"], serde_json::json!(version));
    }
}
