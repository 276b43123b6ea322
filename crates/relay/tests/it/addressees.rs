//! A fast path relays the frames that are for its device, and leaves to the network stack what a
//! promiscuous or bridged device sees besides.

use crate::common::frame::Frame;
use crate::common::plan_rig::{
    DATAPATHS, Rig, SENDER, SENDER6, assert_identities, everywhere, mac, plan, stream,
};
use crate::common::space::recv_datagram;

/// The relay's own address but for one bit.
const OTHER: [u8; 6] = [0x02, 0, 0, 0, 0x10, 0x82];
const EVERYONE: [u8; 6] = [0xff; 6];
const GROUP: &str = "239.1.2.3:5000";
const GROUP_MAC: [u8; 6] = [0x01, 0x00, 0x5e, 1, 2, 3];
const GROUP6: &str = "[ff15::7]:5000";
const GROUP6_MAC: [u8; 6] = [0x33, 0x33, 0, 0, 0, 7];

#[test]
fn only_frames_for_the_device_itself_are_relayed() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    for (datapath, sender, ingest) in everywhere() {
        let relayed = rig.stream(2, ingest);
        let running = rig.start(datapath, &plan(&relayed));
        let frame = |size| Frame::new(sender, ingest, size);
        rig.send_to(OTHER, &frame(50));
        rig.send_to(EVERYONE, &frame(51));
        assert_eq!(recv_datagram(&relayed.socket).0, 51, "{}", datapath.name());
        rig.send(&frame(52));
        let lengths = capture.take(2).into_iter().map(|one| one.payload.len());
        assert_eq!(lengths.collect::<Vec<_>>(), [52, 52]);
        let counters = running.stop();
        assert_identities(stream(&counters));
        assert_eq!(stream(&counters).received.packets, 1, "{}", datapath.name());
    }
    assert_eq!(capture.rest(), []);
}

#[test]
fn a_groups_datagrams_are_relayed_from_a_groups_frames() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    for datapath in DATAPATHS {
        for (sender, group, address) in [(SENDER, GROUP, GROUP_MAC), (SENDER6, GROUP6, GROUP6_MAC)]
        {
            let relayed = rig.stream(2, group);
            let running = rig.start(datapath, &plan(&relayed));
            rig.send_to(OTHER, &Frame::new(sender, group, 60));
            for device in [address, EVERYONE, mac(2)] {
                rig.send_to(device, &Frame::new(sender, group, 61));
                let lengths = capture.take(2).into_iter().map(|one| one.payload.len());
                assert_eq!(lengths.collect::<Vec<_>>(), [61, 61], "{}", datapath.name());
            }
            let counters = running.stop();
            assert_identities(stream(&counters));
            assert_eq!(stream(&counters).received.packets, 3, "{}", datapath.name());
        }
    }
    assert_eq!(capture.rest(), []);
}
