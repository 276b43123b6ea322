//! Frames that are lost after they were sent are counted under one end each. All others arrive.

use std::net::{SocketAddr, UdpSocket};

use netdev::XdpMode;
use router::forward::Family;
use router::xdp::End;
use sys::ethtool::Ethtool;
use testbed::Neighbours;

use super::rig::Rig;
use crate::common::network::{TIMEOUT, await_that, topology};

const PORT: u16 = 7100;
/// Few enough for a socket's buffer.
const DATAGRAMS: u64 = 30;

/// A router between a client and a server, with permanent neighbours.
fn rig(name: &str, mode: XdpMode) -> Rig {
    let mut rig = Rig::new(name, &topology(Neighbours::Permanent, 1500), mode);
    rig.introduce();
    rig
}

impl Rig {
    /// Sets whether the server's device accepts redirected frames.
    fn server_takes(&self, on: bool) {
        let server = self.host("server");
        let device = &server.interface("router").unwrap().name;
        let set = || Ethtool::open(device)?.set_features(&[("rx-gro", on)]);
        server.run(set).unwrap().unwrap();
    }

    /// Sends datagrams of these lengths in turn, from the client to the server.
    fn send(&self, count: u64, lengths: &[usize]) {
        let client = self.host("client");
        let sender = client
            .run(|| UdpSocket::bind("0.0.0.0:0").unwrap())
            .unwrap();
        let to = SocketAddr::new(self.server(Family::V4), PORT);
        for (_, length) in (0..count).zip(lengths.iter().cycle()) {
            sender.send_to(&vec![0; *length], to).unwrap();
        }
    }

    /// Checks that the server receives this many datagrams, and no more.
    fn arrive(&self, receiver: &UdpSocket, count: u64) {
        receiver.set_read_timeout(Some(TIMEOUT)).unwrap();
        for _ in 0..count {
            receiver.recv(&mut [0; 2048]).unwrap();
        }
        receiver.set_nonblocking(true).unwrap();
        assert!(receiver.recv(&mut [0; 2048]).is_err());
    }

    fn receiver(&self) -> UdpSocket {
        let at = SocketAddr::new(self.server(Family::V4), PORT);
        let receiver = self.host("server").run(|| UdpSocket::bind(at).unwrap());
        receiver.unwrap()
    }
}

#[test]
fn what_the_other_end_takes_no_more_is_dropped() {
    if !sys::require::root() {
        return;
    }
    let rig = rig("xdp-lost", XdpMode::Native);
    let receiver = rig.receiver();
    rig.server_takes(false);
    rig.send(DATAGRAMS, &[100]);
    // Since Linux 6.3, a veth reports in advance that its other end accepts none.
    let dropped = || rig.packets(End::DroppedAtTransmit) + rig.packets(End::DroppedAtDevice);
    await_that("each is counted once", || dropped() == DATAGRAMS);
    assert_eq!(rig.packets(End::Forwarded), 0);
    rig.server_takes(true);
    rig.send(DATAGRAMS, &[100]);
    rig.arrive(&receiver, DATAGRAMS);
    assert_eq!(
        (rig.packets(End::Forwarded), dropped()),
        (DATAGRAMS, DATAGRAMS)
    );
}

#[test]
fn what_a_driver_leaves_of_a_batch_is_dropped_at_transmit() {
    if !sys::require::root() {
        return;
    }
    let rig = rig("xdp-batch", XdpMode::Native);
    let other = self::rig("xdp-batch2", XdpMode::Native);
    // Only the namespace distinguishes their devices.
    let devices = |rig: &Rig| {
        let of = rig.host("router").interfaces().iter();
        of.map(|one| one.ifindex).collect::<Vec<_>>()
    };
    assert_eq!(devices(&rig), devices(&other));
    let receiver = rig.receiver();
    let device = rig.host("server").interface("router").unwrap().name.clone();
    // Its driver accepts a batch up to the first frame that is too long for it.
    let (worked, said) = rig.print("server", &format!("ip link set {device} mtu 1000"));
    assert!(worked, "{said}");
    rig.send(DATAGRAMS, &[100, 100, 1200]);
    let ends = || [End::Forwarded, End::DroppedAtTransmit].map(|end| rig.packets(end));
    await_that("the longest are dropped", || {
        let [forwarded, dropped] = ends();
        forwarded + dropped == DATAGRAMS && dropped >= DATAGRAMS / 3
    });
    // Frames that are counted as forwarded may still be in a batch that the driver has not seen.
    router::xdp::settle();
    rig.arrive(&receiver, ends()[0]);
    assert_eq!(ends().iter().sum::<u64>(), DATAGRAMS);
    for end in [End::Forwarded, End::DroppedAtTransmit] {
        assert_eq!(other.packets(end), 0, "another router's");
    }
}

#[test]
fn what_a_device_refuses_is_dropped_at_it() {
    if !sys::require::root() {
        return;
    }
    for (name, mode) in [
        ("xdp-down", XdpMode::Native),
        ("xdp-down-generic", XdpMode::Generic),
    ] {
        let rig = rig(name, mode);
        let device = rig.host("router").interface("server").unwrap().name.clone();
        let (worked, said) = rig.print("router", &format!("ip link set {device} down"));
        assert!(worked, "{said}");
        rig.send(DATAGRAMS, &[100]);
        await_that("each is counted once", || {
            rig.packets(End::DroppedAtDevice) == DATAGRAMS
        });
        assert_eq!(rig.packets(End::Forwarded), 0);
    }
}
