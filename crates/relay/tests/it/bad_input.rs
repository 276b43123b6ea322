//! Frames that are cut, lie or are somebody else's, as fast as they can be sent: a good stream
//! beside them loses nothing, and nobody gets what was not meant for them.

use std::time::{Duration, Instant};

use relay::counters::DropReason;
use relay::spec::SubscriberSpec;

use crate::common::relay_rig::{Rig, await_counts, stream, subscriber};
use crate::common::traffic::{self, Ends, Fate, Item};

/// Rounds of every bad frame between two good datagrams; the queues on the way hold one burst.
const ROUNDS: usize = 8;

#[test]
fn a_good_stream_survives_bad_frames_at_full_rate() {
    if !sys::require::root() {
        return;
    }
    let long = std::env::var_os("LOWROAD_OPT_IN").is_some();
    let time = Duration::from_secs(if long { 60 } else { 2 });
    for datapath in relay::datapaths() {
        let name = datapath.name();
        if let Err(missing) = datapath.check() {
            sys::require::skip(sys::require::Class::Core, &format!("{name}: {missing}"));
            continue;
        }
        for ends in [Ends::v4(), Ends::v6()] {
            flood(name, ends, time / 2);
        }
    }
}

fn flood(datapath: &str, ends: Ends, time: Duration) {
    let rig = Rig::new(None);
    let subscribers: Vec<SubscriberSpec> = ["10.91.1.2:6000", "[fd91:0:0:2::2]:6001"]
        .iter()
        .map(|to| subscriber(to, to))
        .collect();
    let core = rig.serve(vec![stream(
        datapath,
        &ends.to.to_string(),
        subscribers.clone(),
    )]);
    let fast = core.explain(None).unwrap()[0].has_fast_path;
    let capture = rig.capture();
    let bad: Vec<Item> = traffic::capture(ends)
        .into_iter()
        .filter(|item| matches!(item.fate, Fate::Malformed | Fate::Nothing) && !item.alone)
        .collect();
    let good = |number: u32| {
        let mut payload = b"good".to_vec();
        payload.extend(number.to_be_bytes());
        payload
    };
    let deadline = Instant::now() + time;
    let mut sent = 0;
    let mut rounds = 0;
    while Instant::now() < deadline {
        for _ in 0..ROUNDS {
            for item in &bad {
                rig.inject(&item.frame);
            }
            rounds += 1;
        }
        rig.inject(&ends.datagram(good(sent)).frame());
        let copies = capture.take(subscribers.len());
        assert_eq!(copies.len(), subscribers.len(), "{datapath}: number {sent}");
        for copy in copies {
            assert_eq!(
                copy.payload,
                good(sent),
                "{datapath}: to {}",
                copy.destination
            );
            let subscribed = subscribers.iter().any(|spec| spec.to == copy.destination);
            assert!(subscribed, "{datapath}: to {}", copy.destination);
        }
        sent += 1;
    }
    let view = await_counts(&core, |view| view.forwarded.packets == u64::from(sent));
    let lies = bad
        .iter()
        .filter(|item| matches!(item.fate, Fate::Malformed));
    let expected = if fast { rounds * lies.count() } else { 0 };
    let malformed = view.drops.0.get(&DropReason::Malformed).copied();
    assert_eq!(malformed.unwrap_or(0), expected as u64, "{datapath}");
    assert_eq!(
        view.received.packets,
        view.forwarded.packets + view.drops.total()
    );
    drop(core);
    assert_eq!(capture.rest(), [], "{datapath}");
}
