//! Groups come in and are delivered to the same way on every datapath.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use relay::spec::{Multicast, StreamSpec, SubscriberSpec};

use crate::common::relay_rig::{
    ReceivedDatagram, Rig, SENDER_MAC, await_counts, datagram, stream, subscriber,
};
use crate::common::space::TIMEOUT;

const DATAPATHS: [&str; 4] = ["mmsg", "tc", "xdp", "af-xdp"];

/// One family's addresses.
#[derive(Clone, Copy)]
struct Addresses {
    sender: &'static str,
    stranger: &'static str,
    ingest: &'static str,
    /// The frame's own destination.
    ingest_mac: [u8; 6],
    other_group: &'static str,
    unicast: &'static str,
    delivery: &'static str,
    /// Where copies come from on the two devices.
    sources: [&'static str; 2],
}

const V4: Addresses = Addresses {
    sender: "10.91.0.1:4000",
    stranger: "10.91.0.77:4000",
    ingest: "239.1.2.3:5004",
    ingest_mac: [0x01, 0x00, 0x5e, 1, 2, 3],
    other_group: "239.1.2.4:5004",
    unicast: "10.91.1.2:6000",
    delivery: "239.9.9.9:7000",
    sources: ["10.91.1.1:5004", "10.91.2.1:5004"],
};

const V6: Addresses = Addresses {
    sender: "[fd91::1]:4000",
    stranger: "[fd91::77]:4000",
    ingest: "[ff15::1:203]:5004",
    ingest_mac: [0x33, 0x33, 0, 1, 2, 3],
    other_group: "[ff15::1:204]:5004",
    unicast: "[fd91:0:0:1::2]:6000",
    delivery: "[ff15::909]:7000",
    sources: ["[fd91:0:0:1::1]:5004", "[fd91:0:0:2::1]:5004"],
};

impl Addresses {
    fn spec(self, datapath: &str, subscribers: Vec<SubscriberSpec>) -> StreamSpec {
        let mut spec = stream(datapath, self.ingest, subscribers);
        spec.multicast = Some(Multicast {
            interface: "in0".into(),
            source: None,
        });
        spec
    }

    /// A group behind the second device.
    fn group(self) -> SubscriberSpec {
        let mut group = subscriber("group", self.delivery);
        group.interface = Some("out2".into());
        group.ttl = Some(7);
        group
    }

    fn frame(self, from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
        let frame = datagram(from, to, payload).ttl(17);
        frame.macs(SENDER_MAC, self.ingest_mac).frame()
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A receiver that has joined the delivery's group on the second device.
fn member(rig: &Rig, at: Addresses) -> UdpSocket {
    let join = || {
        let group = address(at.delivery);
        let socket = UdpSocket::bind(group).unwrap();
        match group.ip() {
            IpAddr::V4(group) => {
                let device = "10.91.2.2".parse().unwrap();
                socket.join_multicast_v4(&group, &device).unwrap();
            }
            IpAddr::V6(group) => {
                let mut netlink = netdev::Netlink::new().unwrap();
                let device = netlink.link_by_name("c2").unwrap().index;
                socket.join_multicast_v6(&group, device).unwrap();
            }
        }
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket
    };
    rig.receivers.run(join)
}

#[test]
fn a_group_is_relayed_to_a_receiver_and_to_another_group() {
    if !sys::require::root() {
        return;
    }
    for datapath in DATAPATHS {
        for at in [V4, V6] {
            let rig = Rig::new(None);
            let unicast = subscriber("unicast", at.unicast);
            let core = rig.serve(vec![at.spec(datapath, vec![unicast, at.group()])]);
            let (capture, member) = (rig.capture(), member(&rig, at));
            rig.inject(&at.frame(at.sender, at.other_group, b"another group's"));
            rig.inject(&at.frame(at.sender, at.ingest, b"hello"));
            let mut taken = capture.take(2);
            taken.sort();
            let copy = |device: u8, ttl, to: &str| ReceivedDatagram {
                device,
                source: address(at.sources[usize::from(device) - 1]),
                destination: address(to),
                ttl,
                tos: 0,
                whole: true,
                payload: b"hello".to_vec(),
            };
            let expected = [copy(1, 16, at.unicast), copy(2, 7, at.delivery)];
            assert_eq!(taken, expected, "{datapath}");
            let mut buffer = [0; 64];
            let length = member.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"hello", "{datapath}");
            let view = await_counts(&core, |view| view.received.packets == 1);
            assert_eq!(view.forwarded.packets, 1, "{datapath}");
            for counted in &view.subscribers {
                assert_eq!(counted.delivered.packets, 1, "{datapath}");
            }
            assert_eq!(capture.rest(), [], "{datapath}");
        }
    }
}

#[test]
fn a_group_joined_for_one_sender_is_that_senders() {
    if !sys::require::root() {
        return;
    }
    for datapath in DATAPATHS {
        for at in [V4, V6] {
            let rig = Rig::new(None);
            let mut spec = at.spec(datapath, vec![subscriber("unicast", at.unicast)]);
            if let Some(multicast) = &mut spec.multicast {
                multicast.source = Some(address(at.sender).ip());
            }
            let core = rig.serve(vec![spec]);
            let capture = rig.capture();
            rig.inject(&at.frame(at.stranger, at.ingest, b"stranger"));
            rig.inject(&at.frame(at.sender, at.ingest, b"known"));
            let payloads = capture.take(1).into_iter().map(|copy| copy.payload);
            assert_eq!(payloads.collect::<Vec<_>>(), [b"known"], "{datapath}");
            await_counts(&core, |view| view.forwarded.packets == 1);
            assert_eq!(capture.rest(), [], "{datapath}");
        }
    }
}

#[test]
fn a_group_reaches_a_subscriber_on_this_machine() {
    const LOCAL: &str = "10.91.2.1:6500";
    if !sys::require::root() {
        return;
    }
    for datapath in DATAPATHS {
        for at in [V4, V6] {
            let rig = Rig::new(None);
            let socket = rig.relay.listen(LOCAL);
            let unicast = subscriber("unicast", at.unicast);
            let subscribers = vec![unicast, subscriber("local", LOCAL)];
            let core = rig.serve(vec![at.spec(datapath, subscribers)]);
            let capture = rig.capture();
            rig.inject(&at.frame(at.sender, at.ingest, b"hello"));
            let mut buffer = [0; 64];
            let length = socket.recv(&mut buffer).expect(datapath);
            assert_eq!(&buffer[..length], b"hello", "{datapath}");
            assert_eq!(capture.take(1).len(), 1, "{datapath}");
            await_counts(&core, |view| {
                let mut subscribers = view.subscribers.iter();
                subscribers.all(|one| one.delivered.packets == 1)
            });
        }
    }
}
