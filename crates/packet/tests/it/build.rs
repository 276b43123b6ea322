//! What the builders write, read back by the views.

use std::net::{IpAddr, SocketAddr};

use packet::build::{self, Checksum, Extension};
use packet::parse::{Family, Fragment, Verdict, parse};
use packet::{ParseError, checksum, ethertype, ipv4, ipv6, udp};

fn at(address: &str) -> SocketAddr {
    address.parse().expect("an address")
}

fn ip(address: &str) -> IpAddr {
    address.parse().expect("an address")
}

#[test]
fn an_ipv4_datagram_reads_back() {
    let frame = build::udp(at("192.0.2.1:5000"), at("198.51.100.7:5004"))
        .tag(ethertype::QINQ, 7)
        .vlan(0x6064)
        .tos(0xb8)
        .ttl(3)
        .options(2)
        .payload(*b"media")
        .padding(4)
        .frame();
    let parsed = parse(&frame).unwrap();
    assert_eq!(parsed.verdict, Verdict::Complete);
    assert_eq!((parsed.vlan_tags, parsed.vlan_tci), (2, [7, 0x6064]));
    assert_eq!((parsed.l3, parsed.l4, parsed.payload), (22, 50, 58));
    assert_eq!((parsed.tos, parsed.ttl), (0xb8, 3));
    assert_eq!(parsed.family, Some(Family::V4));
    assert_eq!((parsed.source_port, parsed.destination_port), (5000, 5004));
    assert_eq!(
        &frame[parsed.payload..parsed.l3 + parsed.ip_length],
        b"media"
    );

    let packet = ipv4::Packet::new_checked(&frame[parsed.l3..]).unwrap();
    assert!(packet.verify_checksum());
    let datagram = udp::Packet::new_checked(packet.payload()).unwrap();
    assert!(datagram.verify_checksum(parsed.source, parsed.destination));
    assert_eq!(datagram.payload(), b"media");
}

#[test]
fn ipv6_extension_headers_are_walked() {
    let frame = build::udp(at("[2001:db8::1]:5000"), at("[2001:db8::2]:5004"))
        .tos(0x2e)
        .flow_label(0xabcde)
        .extension(Extension::HopByHop(1))
        .extension(Extension::Authentication(4))
        .extension(Extension::Fragment {
            offset: 0,
            more: false,
        })
        .payload(*b"odd")
        .frame();
    let parsed = parse(&frame).unwrap();
    assert_eq!(parsed.verdict, Verdict::Complete);
    assert_eq!(parsed.l4, 14 + 40 + 16 + 24 + 8);
    assert_eq!(parsed.extensions, 3);
    assert_eq!(parsed.tos, 0x2e);
    let packet = ipv6::Packet::new_checked(&frame[parsed.l3..]).unwrap();
    assert_eq!(packet.flow_label(), 0xabcde);
    let datagram = udp::Packet::new_checked(&frame[parsed.l4..]).unwrap();
    assert!(datagram.verify_checksum(parsed.source, parsed.destination));
}

#[test]
fn fragments_say_which_part_they_are() {
    let whole = build::udp(at("192.0.2.1:1"), at("192.0.2.2:2")).payload([0; 64]);
    let first = parse(&whole.clone().fragment(0, true).frame()).unwrap();
    assert_eq!(first.verdict, Verdict::Fragment);
    assert_eq!(
        (first.fragment, first.destination_port),
        (Fragment::First, 2)
    );
    let later = parse(&whole.fragment(9, false).frame()).unwrap();
    assert_eq!(later.verdict, Verdict::Fragment);
    assert_eq!(
        (later.fragment, later.destination_port),
        (Fragment::Later, 0)
    );
}

#[test]
fn what_cannot_be_followed_is_named() {
    let v4 = || build::other(ip("192.0.2.1"), ip("192.0.2.2"), packet::protocol::IGMP);
    assert_eq!(parse(&v4().frame()).unwrap().verdict, Verdict::Unsupported);
    let tagged = v4().vlan(1).vlan(2).vlan(3).frame();
    assert_eq!(parse(&tagged).unwrap().verdict, Verdict::TooManyTags);

    let mut chain = build::echo(ip("2001:db8::1"), ip("2001:db8::2"));
    for _ in 0..6 {
        chain = chain.extension(Extension::DestinationOptions(0));
    }
    let complete = parse(&chain.frame()).unwrap();
    assert_eq!(
        (complete.verdict, complete.icmp_type),
        (Verdict::Complete, 128)
    );
    let seven = chain.extension(Extension::Routing(0)).frame();
    assert_eq!(parse(&seven).unwrap().verdict, Verdict::TooManyExtensions);
}

#[test]
fn lengths_that_lie_are_malformed() {
    let good = build::udp(at("192.0.2.1:1"), at("192.0.2.2:2"))
        .payload([0; 8])
        .frame();
    let broken = |at: usize, byte: u8| {
        let mut frame = good.clone();
        frame[at] = byte;
        parse(&frame).unwrap_err()
    };
    assert_eq!(broken(14, 0x65), ParseError::BadVersion);
    assert_eq!(broken(14, 0x44), ParseError::BadHeaderLength);
    assert_eq!(broken(17, 19), ParseError::BadTotalLength);
    assert_eq!(broken(17, 37), ParseError::BadTotalLength);
    assert_eq!(broken(39, 7), ParseError::BadUdpLength);
    assert_eq!(broken(39, 17), ParseError::BadUdpLength);
    assert_eq!(parse(&good[..13]), Err(ParseError::TruncatedEthernet));
}

#[test]
fn checksums_are_wrong_only_as_asked() {
    let verify = |kind: Checksum| {
        let frame = build::udp(at("192.0.2.1:1"), at("192.0.2.2:2"))
            .payload(*b"x")
            .checksum(kind)
            .frame();
        let datagram = udp::Packet::new_checked(&frame[34..]).unwrap();
        let (source, destination) = (ip("192.0.2.1"), ip("192.0.2.2"));
        let pseudo = checksum::pseudo(source, destination, packet::protocol::UDP, 9);
        (
            datagram.verify_checksum(source, destination),
            checksum::is_partial(datagram.checksum(), pseudo),
        )
    };
    assert_eq!(verify(Checksum::Right), (true, false));
    assert_eq!(verify(Checksum::Absent), (true, false));
    assert_eq!(verify(Checksum::Partial), (false, true));
    assert_eq!(verify(Checksum::Bad), (false, false));
}
