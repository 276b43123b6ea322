//! The real binary attaches its programs again when another program has detached them.

use std::time::{Duration, Instant};

use serde_json::Value;
use test_support::bpf_link;

use crate::relay_server::Relay;

const TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn what_another_program_detaches_is_attached_again_and_named() {
    if !sys::require::root() {
        return;
    }
    for (datapath, link_type) in [("tc", "tcx"), ("xdp", "xdp"), ("af-xdp", "xdp")] {
        let streams = format!(
            "[[stream]]\nname = \"s\"\nlisten = \"192.0.2.1:5004\"\ndatapath = \"{datapath}\"\n\
             source = \"any\"\ninterfaces = [\"near\"]\n"
        );
        let relay = Relay::serve(&format!("detach-{datapath}"), &streams);
        let index = relay.home.run(|| {
            let mut netlink = netdev::Netlink::new().unwrap();
            netlink.link_by_name("near").unwrap().index
        });
        for times in 1..=2 {
            let detached = bpf_link::detach(relay.id(), link_type, index);
            assert_eq!(detached, 1, "{datapath}");
            let started = Instant::now();
            loop {
                let explained = explain(&relay);
                let detachment = &explained[0]["detachments"][0];
                if detachment["count"] == times && detachment["error"].is_null() {
                    assert_eq!(detachment["device"], "near");
                    break;
                }
                assert!(started.elapsed() < TIMEOUT, "{datapath}: {explained:#}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let text = String::from_utf8(relay.ask(&["explain"]).stdout).unwrap();
        let line = "  detached from near by another program 2 times; attached again\n";
        assert!(text.contains(line), "{datapath}: {text}");
    }
}

fn explain(relay: &Relay) -> Value {
    let output = relay.ask(&["explain", "--json"]);
    serde_json::from_slice(&output.stdout).unwrap()
}
