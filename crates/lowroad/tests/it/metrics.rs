//! What Prometheus reads of a relay and of a router that run. The tests of features and replicate scrape theirs.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use testbed::Bed;

use crate::relay_server::{Relay, STREAM};
use crate::router_topology::{TIMEOUT, serve_between, topology};
use crate::scrape::{BOOK, scrape, write_token};

const ADDRESS: &str = "127.0.0.1:8642";

#[test]
fn a_relay_of_256_streams_has_each_family_once() {
    if !sys::require::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let token = write_token(folder.path());
    let mut text = format!("http = {{ listen = {ADDRESS:?}, token_file = {token:?} }}\n{STREAM}");
    for number in 1..256 {
        text += &format!(
            "[[stream]]\nname = 'camera \"{number}\" \\'\nlisten = \"127.0.0.1:{}\"\ndatapath = \"recv\"\n\
             source = \"any\"\ninterfaces = [\"lo\"]\n\
             [[stream.subscriber]]\nname = \"a\"\nto = \"127.0.0.1:6000\"\n",
            7000 + number
        );
    }
    let relay = Relay::serve_in(folder, "metrics-relay", &text);
    relay.relays(1);
    let page = relay.home.run(|| scrape(ADDRESS));
    page.assert_complete(BOOK, "lowroad_relay_");
    let good = ("stream", "good");
    let received = "lowroad_relay_received_packets_total";
    assert_eq!(page.value(received, &[good]), 1.0);
    assert_eq!(
        page.value("lowroad_relay_received_bytes_total", &[good]),
        1.0
    );
    let delivered = [good, ("subscriber", "a")];
    assert_eq!(
        page.value("lowroad_relay_delivered_packets_total", &delivered),
        1.0
    );
    let denied = [good, ("reason", "source_denied")];
    assert_eq!(
        page.value("lowroad_relay_refused_packets_total", &denied),
        0.0
    );
    assert_eq!(
        page.value(received, &[("stream", "camera \"255\" \\")]),
        0.0
    );
    let streams = page.samples().filter(|sample| sample.name == received);
    assert_eq!(streams.count(), 256);
}

#[test]
fn a_routers_lag_is_a_histogram_in_seconds() {
    if !sys::require::root() {
        return;
    }
    for datapath in ["xdp", "af-xdp", "kernel"] {
        let bed = Bed::up(
            &topology(&["client", "server"]),
            &format!("metrics-{datapath}"),
        )
        .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let token = write_token(folder.path());
        let http = format!("http = {{ listen = {ADDRESS:?}, token_file = {token:?} }}\n");
        let router = bed.host("router").unwrap();
        let peers = ["client", "server"];
        let _served = serve_between(router, &peers, folder.path(), datapath, &http);
        let add = "ip route add blackhole 192.0.2.0/24";
        let added = router.run(|| Command::new("sh").args(["-c", add]).status().unwrap());
        assert!(added.unwrap().success());
        let started = Instant::now();
        let page = loop {
            let page = router.run(|| scrape(ADDRESS)).unwrap();
            if page.value("lowroad_router_event_lag_seconds_count", &[]) > 0.0 {
                break page;
            }
            assert!(started.elapsed() < TIMEOUT, "{datapath}: {page:#?}");
            thread::sleep(Duration::from_millis(20));
        };
        let value = |name: &str| page.value(name, &[]);
        let (sum, max) = (
            value("lowroad_router_event_lag_seconds_sum"),
            value("lowroad_router_event_lag_max_seconds"),
        );
        let mean = sum / value("lowroad_router_event_lag_seconds_count");
        assert!(mean <= max && max <= sum, "{datapath}: {page:#?}");
        let changed = [("table", "routes")];
        assert!(
            page.value("lowroad_router_changes_total", &changed) > 0.0,
            "{datapath}"
        );
        let counts_packets = page
            .families
            .iter()
            .any(|family| family.name == "lowroad_router_packets_total");
        assert_eq!(counts_packets, datapath != "kernel");
        if datapath == "xdp" {
            page.assert_complete(BOOK, "lowroad_router_");
        }
    }
}
