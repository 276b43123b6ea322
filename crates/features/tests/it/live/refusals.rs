//! What a datapath refuses, and whom it names instead.

use std::num::NonZeroUsize;

use features::kernel::Wakeup;
use features::live::{Direction, Plan, datapaths};
use features::recording::{Recorder, Recording};
use features::schema;
use features::sink::{Mode, Series};

use super::{find, in_namespace, plan, reads_headers_only, schema_for};
use crate::common::MemorySink;

#[test]
fn what_a_datapath_cannot_do_is_refused_and_who_can_is_named() {
    if !sys::require::root() {
        return;
    }
    let kept = MemorySink::default();
    let refusal = |name: &'static str, change: fn(&mut Plan)| {
        let mut plan = plan(1, schema_for(name), &kept);
        change(&mut plan);
        find(name).start(&plan).err().unwrap().to_string()
    };
    for name in ["recv", "tpacket"] {
        assert!(refusal(name, |plan| plan.tap = true).contains("xdp"));
        assert!(refusal(name, |plan| plan.direction = Direction::Out).contains("tc-flow"));
    }
    for name in ["xdp-flow", "xdp-generic", "xdp-ringbuf"] {
        assert!(refusal(name, |plan| plan.direction = Direction::Both).contains("tc-flow"));
    }
    for name in ["xdp-flow", "tc-flow", "af-xdp"] {
        assert!(refusal(name, |plan| plan.workers = NonZeroUsize::new(2)).contains("tpacket"));
    }
    for name in ["recv", "tpacket", "tc-flow", "xdp-ringbuf", "af-xdp"] {
        assert!(refusal(name, |plan| plan.steer = true).contains("xdp-generic"));
    }
    for name in ["recv", "tpacket"] {
        assert!(refusal(name, |plan| plan.wakeup = Wakeup::Every).contains("XDP"));
    }
    assert!(refusal("af-xdp", |_| ()).contains("--tap"));
    for name in ["xdp-flow", "xdp-generic", "tc-flow", "xdp-ringbuf"] {
        let recorded = refusal(name, |plan| plan.recorder = recorder());
        assert!(recorded.contains("tpacket"), "{recorded}");
    }
    let sent_tap = |plan: &mut Plan| (plan.tap, plan.direction) = (true, Direction::Both);
    assert!(refusal("tc-flow", sent_tap).contains("--direction in"));
}

fn recorder() -> Option<Recorder> {
    let nowhere = Recording::start("/dev/null".as_ref(), Series::default(), Mode::Live);
    Some(nowhere.unwrap().recorder())
}

#[test]
fn the_kernel_refuses_columns_made_from_payload_and_names_who_gives_them() {
    if !sys::require::root() {
        return;
    }
    for datapath in datapaths() {
        let name = datapath.name();
        for schema in ["flow.v1", "packet.v1", "nprint.v1", "conn.v1"] {
            match refused(name, schema) {
                Some(why) => assert!(why.contains("tpacket") && why.contains(name), "{why}"),
                None => assert!(!reads_headers_only(name), "{name}"),
            }
        }
    }
}

#[test]
fn who_keeps_flows_in_the_kernel_names_who_hands_up_packets() {
    if !sys::require::root() {
        return;
    }
    for name in ["xdp-flow", "xdp-generic", "tc-flow"] {
        let why = refused(name, "packet.v1").unwrap();
        assert!(why.contains("xdp-ringbuf"), "{why}");
    }
}

/// Why a datapath does not start with a schema.
fn refused(name: &'static str, schema: &str) -> Option<String> {
    let schema = schema::find(schema).unwrap();
    let kept = MemorySink::default();
    in_namespace(move |_, right| {
        let plan = Plan {
            tap: name == "af-xdp",
            ..plan(right, schema, &kept)
        };
        let refused = find(name).start(&plan).err();
        refused.map(|error| error.to_string())
    })
}
