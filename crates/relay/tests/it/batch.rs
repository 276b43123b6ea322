//! Frames of several streams, and of none, that the relay's device takes in at one go: what a frame
//! carries from ingress to where its copies are addressed is no other frame's.
#![allow(
    clippy::cast_possible_truncation,
    reason = "a test's numbers are small"
)]

use relay::counters::{Counters, Traffic};
use relay::plan::{Plan, Stream, StreamId};

use crate::common::frame::{Frame, ReceivedFrame};
use crate::common::plan_rig::{DATAPATHS, Rig, SENDER, SENDER6, assert_identities};

/// Whose a frame is: a stream with these subscribers (number, IPv4), or, without any, the stack's.
struct Owner {
    sender: &'static str,
    ingest: &'static str,
    subscribers: &'static [(u32, bool)],
}

const STACKS: Owner = Owner {
    sender: SENDER,
    ingest: "10.1.0.2:5002",
    subscribers: &[],
};

/// Streams to one subscriber are rewritten in place, which takes room from or gives it to the frame
/// where the family changes; the others are broadcast, by both devices.
const OWNERS: [Owner; 6] = [
    Owner {
        sender: SENDER,
        ingest: "10.1.0.2:5000",
        subscribers: &[(0, true)],
    },
    Owner {
        sender: SENDER,
        ingest: "10.1.0.2:5001",
        subscribers: &[(2, true), (3, true), (4, false), (5, false), (6, true)],
    },
    STACKS,
    Owner {
        sender: SENDER6,
        ingest: "[fd01::2]:5003",
        subscribers: &[(8, true)],
    },
    Owner {
        sender: SENDER6,
        ingest: "[fd01::2]:5004",
        subscribers: &[(10, false), (11, true)],
    },
    Owner {
        sender: SENDER,
        ingest: "10.1.0.2:5005",
        subscribers: &[(13, false)],
    },
];

type SentFrame = (&'static Owner, Frame);

/// Payload of the first frame; each after it is shorter, so that no two are alike.
const MAX_PAYLOAD_LEN: usize = 1400;

impl Owner {
    fn stream(&self, rig: &Rig, id: u32) -> Stream {
        let mut stream = rig.stream(0, self.ingest);
        stream.id = StreamId(id);
        let subscribers = self.subscribers.iter();
        stream.subscribers = subscribers.map(|(i, v4)| rig.subscriber(*i, *v4)).collect();
        stream
    }

    fn frame(&self, number: usize) -> Frame {
        let mut frame = Frame::new(self.sender, self.ingest, MAX_PAYLOAD_LEN - 20 * number);
        frame.payload[0] = number as u8;
        frame.tos = number as u8 * 4;
        frame.ttl = 100 + number as u8;
        frame
    }
}

/// Every owner's frame comes behind one of every owner. No more than a device takes in at one go,
/// which is 64.
fn mixed() -> Vec<SentFrame> {
    let turns = (0..OWNERS.len()).flat_map(|one| {
        let turns = (one..OWNERS.len()).flat_map(move |next| [one, next]);
        turns.chain([one])
    });
    let owners = turns.map(|turn| &OWNERS[turn]).enumerate();
    let frames = owners.map(|(number, owner)| (owner, owner.frame(number)));
    frames.collect()
}

fn of<'a>(frames: &'a [SentFrame], owner: &Owner) -> impl Iterator<Item = &'a SentFrame> {
    let ingest = owner.ingest;
    frames
        .iter()
        .filter(move |(whose, _)| whose.ingest == ingest)
}

fn by_receiver(mut copies: Vec<ReceivedFrame>) -> Vec<ReceivedFrame> {
    copies.sort_by_key(|copy| (copy.destination.port(), copy.payload.len()));
    copies
}

/// Every stream has forwarded its own frames to its own subscribers, and nothing else.
fn assert_counts(counters: &Counters, frames: &[SentFrame], name: &str) {
    assert_eq!(counters.streams.len(), OWNERS.len() - 1, "{name}");
    for (id, stream) in &counters.streams {
        let owner = &OWNERS[*id as usize];
        let mut sent = Traffic::default();
        for (_, frame) in of(frames, owner) {
            sent.add(Traffic {
                packets: 1,
                bytes: frame.payload.len() as u64,
            });
        }
        assert_identities(stream);
        assert_eq!(stream.received, sent, "{name}: {}", owner.ingest);
        assert_eq!(stream.forwarded, sent, "{name}: {}", owner.ingest);
        assert_eq!(stream.subscribers.len(), owner.subscribers.len(), "{name}");
        for (slot, one) in &stream.subscribers {
            assert_eq!(one.delivered, sent, "{name}: subscriber {slot}");
            assert_eq!(one.drops.total(), 0, "{name}: subscriber {slot}");
        }
    }
}

#[test]
fn what_a_frame_carries_is_no_other_frames() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    rig.use_one_queue();
    let bystander = rig.relay.listen(STACKS.ingest);
    let frames = mixed();
    for datapath in DATAPATHS {
        let name = datapath.name();
        let relayed = (0..)
            .zip(&OWNERS)
            .filter(|(_, owner)| !owner.subscribers.is_empty());
        let plan = Plan {
            streams: relayed.map(|(id, owner)| owner.stream(&rig, id)).collect(),
            ..Plan::default()
        };
        let running = rig.start(datapath, &plan);
        rig.send_at_one_go(frames.iter().map(|(_, frame)| frame));

        let copies = |(owner, frame): &SentFrame| {
            let copy = |(i, v4): &(u32, bool)| rig.copy(*i, *v4, frame);
            owner.subscribers.iter().map(copy).collect::<Vec<_>>()
        };
        let expected = by_receiver(frames.iter().flat_map(copies).collect());
        let arrived = by_receiver(capture.take(expected.len()));
        for (copy, expected) in arrived.iter().zip(&expected) {
            assert_eq!(copy, expected, "{name}");
        }
        for (_, frame) in of(&frames, &STACKS) {
            let mut buffer = [0; 2048];
            let length = bystander.recv(&mut buffer).unwrap();
            assert_eq!(
                buffer[..length],
                frame.payload,
                "{name}: passed up the stack"
            );
        }
        assert_counts(&running.stop(), &frames, name);
        assert_eq!(capture.rest(), [], "{name}: for nobody");
    }
}
