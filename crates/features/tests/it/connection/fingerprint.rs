//! Fingerprints of SYNs that are made here, with the signatures that p0f's documentation has for such systems.

use std::net::SocketAddr;

use packet::build::Builder;
use packet::pcap;

use super::{ACK, ECE, PSH, SYN, Segment, URG, client, ends, rows};

const MSS_1460: [u8; 4] = [2, 4, 0x05, 0xb4];

fn options(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// A timestamps option without an echo.
const TIMESTAMPS: [u8; 10] = [8, 10, 0, 0, 0, 1, 0, 0, 0, 0];

fn of(segment: &Segment, change: impl Fn(Builder) -> Builder) -> String {
    let (from, to) = ends();
    between(segment, from, to, change)
}

fn between(
    segment: &Segment,
    from: SocketAddr,
    to: SocketAddr,
    change: impl Fn(Builder) -> Builder,
) -> String {
    let mut writer = pcap::Writer::new(Vec::new(), pcap::ETHERNET).unwrap();
    writer.write(1, &segment.between(from, to, change)).unwrap();
    let rows = rows(&writer.finish().unwrap());
    rows[0]["syn_fingerprint"].as_str().unwrap().to_owned()
}

fn syn() -> Segment {
    client(SYN, 100, 0, 0)
}

#[test]
fn systems_that_are_known() {
    let shift = |shift| [3, 3, shift];
    let linux = options(&[&MSS_1460, &[4, 2], &TIMESTAMPS, &[1], &shift(10)]);
    let windows = options(&[&MSS_1460, &[1], &shift(8), &[1, 1, 4, 2]]);
    let mac = options(&[
        &MSS_1460,
        &[1],
        &shift(3),
        &[1, 1],
        &TIMESTAMPS,
        &[4, 2, 0, 0],
    ]);
    for (expected, window, options, ttl) in [
        (
            "4:64:0:1460:mss*20,10:mss,sok,ts,nop,ws:df,id+:0",
            29_200,
            linux,
            51,
        ),
        (
            "4:128:0:1460:8192,8:mss,nop,ws,nop,nop,sok:df,id+:0",
            8192,
            windows,
            117,
        ),
        (
            "4:64:0:1460:65535,3:mss,nop,ws,nop,nop,ts,sok,eol+1:df,id+:0",
            65_535,
            mac,
            64,
        ),
    ] {
        let segment = syn().window(window).options(options);
        assert_eq!(of(&segment, |syn| syn.ttl(ttl).identification(7)), expected);
    }
}

#[test]
fn ipv6_has_its_own_sizes_and_a_flow_label() {
    let (from, to) = (
        "[fd00::1]:5".parse().unwrap(),
        "[fd00::2]:6".parse().unwrap(),
    );
    let segment = syn().window(28_800).options([2, 4, 0x05, 0xa0]);
    let plain = between(&segment, from, to, |syn| syn);
    assert_eq!(plain, "6:64:0:1440:mss*20,0:mss::0");
    let labelled = between(&segment, from, to, |syn| syn.flow_label(9));
    assert_eq!(labelled, "6:64:0:1440:mss*20,0:mss:flow:0");
}

#[test]
fn windows_are_multiples_of_an_mss_or_an_mtu() {
    for (window, expected) in [
        (2920, "mss*2"),
        (1448 * 3, "mss*3"),
        (6000, "mtu*4"),
        (1000, "1000"),
        (0, "0"),
    ] {
        let found = of(&syn().window(window).options(MSS_1460), |syn| syn);
        assert_eq!(found, format!("4:64:0:1460:{expected},0:mss:df:0"));
    }
}

#[test]
fn initial_ttls_are_guessed_from_those_near_them() {
    for (ttl, expected) in [
        (1, "32"),
        (32, "32"),
        (33, "64"),
        (92, "92+?"),
        (93, "128"),
        (219, "219+?"),
        (220, "255"),
    ] {
        let found = of(&syn(), |syn| syn.ttl(ttl));
        assert_eq!(found, format!("4:{expected}:0:0:1000,0::df:0"));
    }
}

#[test]
fn quirks_are_named_in_their_order() {
    let plain = |segment: &Segment| of(segment, |syn| syn);
    let urgent = Segment {
        urgent: 5,
        ..client(SYN, 0, 1, 3)
    };
    let options = |bytes: &[u8]| syn().options(bytes);
    for (expected, found) in [
        ("4:64:0:0:1000,0::df,seq-,ack+,uptr+:+", plain(&urgent)),
        (
            "4:64:0:0:1000,0::df,ecn,urgf+,pushf+:0",
            plain(&client(SYN | URG | PSH | ECE, 9, 0, 0)),
        ),
        (
            "4:64:0:0:1000,0::id-:0",
            of(&syn(), |syn| syn.dont_fragment(false)),
        ),
        (
            "4:64:8:0:1000,0::ecn:0",
            of(&syn(), |syn| {
                let syn = syn.dont_fragment(false).identification(3);
                syn.options(2).tos(2)
            }),
        ),
        (
            "4:64:0:0:1000,15:ts,ws,?99,eol+1:df,ts1-,ts2+,opt+,exws:0",
            plain(&options(&[
                8, 10, 0, 0, 0, 0, 0, 0, 0, 9, 3, 3, 15, 99, 5, 0, 0, 0, 0, 1,
            ])),
        ),
        (
            "4:64:0:0:1000,0:nop:df,bad:0",
            plain(&options(&[1, 2, 9, 0])),
        ),
    ] {
        assert_eq!(found, expected);
    }
}

#[test]
fn only_a_syn_without_ack_has_one() {
    let (server, client_end) = (ends().1, ends().0);
    let answer = client(SYN | ACK, 1, 2, 0).between(server, client_end, |syn| syn);
    let mut writer = pcap::Writer::new(Vec::new(), pcap::ETHERNET).unwrap();
    writer.write(1, &answer).unwrap();
    let rows = rows(&writer.finish().unwrap());
    assert!(rows[0]["syn_fingerprint"].is_null());
}
