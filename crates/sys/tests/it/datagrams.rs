//! Datagrams over loopback: what is sent with control messages arrives with control messages.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use sys::mmsg::{self, DONT_WAIT, Outgoing, RecvBatch, RecvInfo, SendBatch};
use sys::multicast::{self, Membership};
use sys::socket::{self, Family};

const LOOPBACK: [(Family, IpAddr); 2] = [
    (Family::V4, IpAddr::V4(Ipv4Addr::LOCALHOST)),
    (Family::V6, IpAddr::V6(Ipv6Addr::LOCALHOST)),
];

/// How long a datagram may take on a machine that has much else to do.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A bound socket that waits for datagrams, for [`TIMEOUT`] each.
fn open(family: Family, ip: IpAddr) -> (UdpSocket, SocketAddr) {
    let socket = socket::unbound(family).unwrap();
    socket::bind(&socket, SocketAddr::new(ip, 0)).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

fn ask_for_everything(socket: &UdpSocket, family: Family) {
    socket::receive_ttl(socket, family).unwrap();
    socket::receive_tos(socket, family).unwrap();
    socket::packet_info(socket, family).unwrap();
    socket::count_drops(socket).unwrap();
}

/// Receives until `wanted` datagrams have come.
fn collect(socket: &UdpSocket, batch: &mut RecvBatch, wanted: usize) -> Vec<(RecvInfo, Vec<u8>)> {
    let mut all = Vec::new();
    while all.len() < wanted {
        batch.receive(socket, mmsg::WAIT_FOR_ONE).unwrap();
        all.extend(batch.iter().map(|(meta, bytes)| (*meta, bytes.to_vec())));
    }
    all
}

#[test]
fn a_batch_arrives_whole_with_its_headers() {
    for (family, ip) in LOOPBACK {
        let (receiver, to) = open(family, ip);
        let (sender, from) = open(family, ip);
        ask_for_everything(&receiver, family);
        let payloads: Vec<Vec<u8>> = (0..5_u8).map(|i| vec![i; usize::from(i) + 1]).collect();
        let mut batch = SendBatch::new(5);
        let mut burst = batch.burst();
        for (i, payload) in (0..).zip(&payloads) {
            let mut outgoing = Outgoing::to(to);
            outgoing.ttl = Some(40 + i);
            outgoing.tos = Some(i << 3);
            assert!(burst.push(payload, &outgoing));
        }
        assert!(!burst.push(&payloads[0], &Outgoing::to(to)), "a sixth");
        assert_eq!(burst.send(&sender, 0).unwrap(), 5);
        assert!(burst.is_empty());

        let got = collect(&receiver, &mut RecvBatch::new(3, 64), 5);
        for ((i, payload), (meta, bytes)) in (0..).zip(&payloads).zip(&got) {
            assert_eq!(bytes, payload);
            assert_eq!(meta.source, Some(from));
            assert_eq!(meta.destination, Some(ip));
            assert_eq!(meta.ttl, Some(40 + i));
            assert_eq!(meta.tos, Some(i << 3));
            assert!(meta.ifindex.is_some());
            assert!(!meta.truncated);
        }
    }
}

#[test]
fn one_datagram_at_a_time_says_the_same() {
    for (family, ip) in LOOPBACK {
        let (receiver, to) = open(family, ip);
        let (sender, from) = open(family, ip);
        ask_for_everything(&receiver, family);
        sender.connect(to).unwrap();
        let mut outgoing = Outgoing::connected(family);
        outgoing.ttl = Some(9);
        assert_eq!(mmsg::send_one(&sender, b"hello", &outgoing, 0).unwrap(), 5);
        let mut buffer = [0; 3];
        let meta = mmsg::receive_one(&receiver, &mut buffer, 0).unwrap();
        assert_eq!((&buffer, meta.len), (b"hel", 3));
        assert!(meta.truncated);
        assert_eq!((meta.ttl, meta.source), (Some(9), Some(from)));
        let nothing = mmsg::receive_one(&receiver, &mut buffer, DONT_WAIT);
        assert_eq!(nothing.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}

#[test]
fn the_source_address_can_be_chosen() {
    let (receiver, to) = open(Family::V4, Ipv4Addr::LOCALHOST.into());
    let (sender, _) = open(Family::V4, Ipv4Addr::UNSPECIFIED.into());
    let mut outgoing = Outgoing::to(to);
    outgoing.source = Some(Ipv4Addr::new(127, 9, 8, 7).into());
    mmsg::send_one(&sender, b"x", &outgoing, 0).unwrap();
    let meta = mmsg::receive_one(&receiver, &mut [0; 8], 0).unwrap();
    assert_eq!(meta.source.map(|s| s.ip()), outgoing.source);
}

#[test]
fn a_refused_datagram_is_reported_and_can_be_skipped() {
    let (receiver, to) = open(Family::V4, Ipv4Addr::LOCALHOST.into());
    let (sender, _) = open(Family::V4, Ipv4Addr::LOCALHOST.into());
    let oversized = vec![0; 66_000];
    let mut batch = SendBatch::new(3);
    let mut burst = batch.burst();
    for payload in [&b"first"[..], &oversized, &b"last"[..]] {
        assert!(burst.push(payload, &Outgoing::to(to)));
    }
    assert_eq!(burst.send(&sender, 0).unwrap(), 1);
    let refused = burst.send(&sender, 0).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EMSGSIZE));
    burst.skip();
    assert_eq!(burst.send(&sender, 0).unwrap(), 1);
    let got = collect(&receiver, &mut RecvBatch::new(4, 64), 2);
    assert_eq!(got[1].1, b"last");
}

#[test]
fn a_train_is_cut_by_gso_and_glued_by_gro() {
    for (family, ip) in LOOPBACK {
        let (receiver, to) = open(family, ip);
        let (sender, _) = open(family, ip);
        socket::udp_gro(&receiver).unwrap();
        let payload: Vec<u8> = (0..=255).cycle().take(1050).collect();
        let mut outgoing = Outgoing::to(to);
        outgoing.segment = Some(200);
        mmsg::send_one(&sender, &payload, &outgoing, 0).unwrap();
        let got = collect(&receiver, &mut RecvBatch::new(1, 65536), 1);
        assert_eq!(got[0].1, payload);
        assert_eq!(got[0].0.segment, Some(200));
    }
}

#[test]
fn lost_datagrams_are_counted_by_the_socket() {
    let (receiver, to) = open(Family::V4, Ipv4Addr::LOCALHOST.into());
    let (sender, _) = open(Family::V4, Ipv4Addr::LOCALHOST.into());
    socket::count_drops(&receiver).unwrap();
    let in_effect = socket::receive_buffer(&receiver, 4096).unwrap();
    assert!(in_effect >= 4096);
    let total = 200;
    for _ in 0..total {
        mmsg::send_one(&sender, &[0; 1000], &Outgoing::to(to), 0).unwrap();
    }
    let mut batch = RecvBatch::new(256, 1000);
    let kept = batch.receive(&receiver, DONT_WAIT).unwrap();
    assert!(kept < total, "a 4 KiB buffer held all");
    // The count travels with a datagram that was queued after the losses.
    mmsg::send_one(&sender, b"marker", &Outgoing::to(to), 0).unwrap();
    let meta = mmsg::receive_one(&receiver, &mut [0; 8], 0).unwrap();
    assert_eq!(meta.dropped, u32::try_from(total - kept).ok());
}

#[test]
fn what_exceeds_the_path_is_refused_not_fragmented() {
    let (sender, _) = open(Family::V4, Ipv4Addr::LOCALHOST.into());
    let (_receiver, to) = open(Family::V4, Ipv4Addr::LOCALHOST.into());
    socket::never_fragment(&sender, Family::V4).unwrap();
    // Loopback's MTU is 65536: 65507 bytes of payload and 28 of headers fit, fragments are not
    // needed; the IPv4 maximum stands in for a smaller path.
    let refused = mmsg::send_one(&sender, &[0; 65_508], &Outgoing::to(to), 0).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EMSGSIZE));
}

/// A receiver of one group over loopback, and the group's address.
fn group_receiver(family: Family, group: &str, ifindex: u32) -> (UdpSocket, SocketAddr) {
    let receiver = socket::unbound(family).unwrap();
    socket::reuse_address(&receiver).unwrap();
    multicast::only_own_groups(&receiver, family).unwrap();
    let mut to = SocketAddr::new(group.parse().unwrap(), 0);
    if let SocketAddr::V6(v6) = &mut to {
        v6.set_scope_id(ifindex);
    }
    socket::bind(&receiver, to).unwrap();
    to.set_port(receiver.local_addr().unwrap().port());
    receiver.set_read_timeout(Some(TIMEOUT)).unwrap();
    (receiver, to)
}

#[test]
fn a_group_is_received_from_the_chosen_source_only() {
    let ifindex = nix::net::if_::if_nametoindex("lo").unwrap();
    let family = Family::V4;
    let (receiver, to) = group_receiver(family, "232.1.2.3", ifindex);
    let (sender, from) = open(family, Ipv4Addr::LOCALHOST.into());
    multicast::send_by(&sender, family, ifindex).unwrap();
    multicast::loop_back(&sender, family, true).unwrap();
    multicast::ttl(&sender, family, 3).unwrap();
    let wanted = Membership {
        group: to.ip(),
        source: Some(from.ip()),
        ifindex,
    };
    multicast::join(&receiver, &wanted).unwrap();
    mmsg::send_one(&sender, b"in", &Outgoing::to(to), 0).unwrap();
    let meta = mmsg::receive_one(&receiver, &mut [0; 8], 0).unwrap();
    assert_eq!(meta.source, Some(from));

    multicast::leave(&receiver, &wanted).unwrap();
    let stranger = Membership {
        source: Some(IpAddr::from([127, 0, 0, 99])),
        ..wanted
    };
    multicast::join(&receiver, &stranger).unwrap();
    // Loopback delivers inside the call, so nothing can be still on its way.
    mmsg::send_one(&sender, b"out", &Outgoing::to(to), 0).unwrap();
    let nothing = mmsg::receive_one(&receiver, &mut [0; 8], DONT_WAIT);
    assert_eq!(nothing.unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn memberships_of_both_kinds_and_families_can_be_left_once() {
    let ifindex = nix::net::if_::if_nametoindex("lo").unwrap();
    for (family, group, source) in [
        (Family::V4, "239.1.2.3", None),
        (Family::V4, "232.1.2.3", Some("192.0.2.1")),
        (Family::V6, "ff12::8000:1", None),
        (Family::V6, "ff32::8000:1", Some("2001:db8::1")),
    ] {
        let (receiver, to) = group_receiver(family, group, ifindex);
        let membership = Membership {
            group: to.ip(),
            source: source.map(|source| source.parse().unwrap()),
            ifindex,
        };
        multicast::join(&receiver, &membership).unwrap();
        multicast::leave(&receiver, &membership).unwrap();
        assert!(multicast::leave(&receiver, &membership).is_err(), "{group}");
    }
}
