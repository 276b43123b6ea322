//! What the relay sees to around its datapaths: it follows its devices, latches and hand-overs.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

mod rig;

use std::time::{Duration, Instant};

use netdev::{LinkSpec, Netlink};
use relay::counters::DropReason;
use rig::{Rig, datagram, stream};

const FAST: [&str; 3] = ["xdp", "tc", "af-xdp"];
const SENDER: &str = "10.91.0.1:4000";
const INGEST: &str = "10.91.0.2:5004";

#[test]
fn a_fast_path_follows_its_devices_address() {
    const NEW_MAC: [u8; 6] = [2, 0x91, 0, 0, 0, 0x77];
    if !sys::require::root() {
        return;
    }
    for datapath in FAST {
        let rig = Rig::new(None);
        let core = rig.serve(vec![stream(datapath, INGEST, vec![])]);
        let rename = || {
            let mut netlink = Netlink::new().unwrap();
            let index = netlink.link_by_name("in0").unwrap().index;
            let spec = LinkSpec::unnamed().mac(NEW_MAC);
            netlink.set_link(index, &spec).unwrap();
        };
        rig.relay.run(rename).unwrap();
        // Only a fast path counts a datagram that lies about its length.
        let mut frame = datagram(SENDER, INGEST, *b"lie").frame();
        frame[..6].copy_from_slice(&NEW_MAC);
        frame[39] += 1;
        let deadline = Instant::now() + Duration::from_secs(10);
        while !core.counters()[0]
            .drops
            .0
            .contains_key(&DropReason::Malformed)
        {
            assert!(Instant::now() < deadline, "{datapath} has not followed");
            rig.inject(&frame);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
