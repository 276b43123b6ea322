//! Every kernel datapath changes its subscribers under load without a gap and without a stray copy.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test's numbers are small"
)]

mod common;

use common::frame::{Arrived, Frame};
use common::{INGEST, Rig, SENDER, assert_identities, stream};
use datapath::Datapath;
use relay::Relay;
use relay::af_xdp::AfXdp;
use relay::plan::{Plan, Stream};
use relay::tc::Tc;
use relay::xdp::Xdp;

const DATAPATHS: [&dyn Datapath<Relay>; 3] = [&Xdp, &Tc, &AfXdp];

fn plan(stream: &Stream) -> Plan {
    Plan {
        streams: vec![stream.clone()],
        ..Plan::default()
    }
}

#[test]
fn subscribers_come_and_go_without_a_gap_or_a_stray_copy() {
    const FRAMES: u32 = 1000;
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    for datapath in DATAPATHS {
        let few = rig.stream(2, INGEST);
        let many = Stream {
            subscribers: (0..7).map(|i| rig.subscriber(i, true)).collect(),
            ..few.clone()
        };
        let mut running = rig.start(datapath, &plan(&few));
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                for number in 0..FRAMES {
                    let mut frame = Frame::new(SENDER, INGEST, 64);
                    frame.payload[..4].copy_from_slice(&number.to_be_bytes());
                    rig.send(&frame);
                }
            });
            while !sender.is_finished() {
                rig.relay.run(|| running.reconfigure(&plan(&many)).unwrap());
                rig.relay.run(|| running.reconfigure(&plan(&few)).unwrap());
            }
        });
        let counters = running.stop();
        // Those two had every datagram; nothing of the others is on its way after the last.
        let mut arrived = Vec::new();
        while arrived
            .iter()
            .filter(|one: &&Arrived| one.destination.port() < 7002)
            .count()
            < 2 * FRAMES as usize
        {
            arrived.extend(capture.take(1));
        }
        arrived.extend(capture.rest());
        for port in 7000..7007_u16 {
            let numbers: Vec<u32> = arrived
                .iter()
                .filter(|arrived| arrived.destination.port() == port)
                .map(|arrived| u32::from_be_bytes(arrived.payload[..4].try_into().unwrap()))
                .collect();
            assert!(
                numbers.is_sorted_by(|a, b| a < b),
                "{}: {port}",
                datapath.name()
            );
            assert!(
                port > 7001 || numbers.len() == FRAMES as usize,
                "{}: {port}",
                datapath.name()
            );
        }
        assert_identities(stream(&counters));
    }
    assert_eq!(capture.rest(), []);
}
