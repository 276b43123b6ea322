//! Datagrams to a device.

use std::fs;
use std::thread;
use std::time::Duration;

use packet::build;

use super::{device, files, json, router};
use crate::datagrams::Receiver;

#[test]
fn the_time_of_a_run_from_a_socket_is_not_gone_while_the_device_builds_what_it_runs() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [routes, rules, _] = files(folder.path());
    // PoCL has to compile each kernel, which takes much longer than the run.
    let cache = folder.path().join("kernels");
    fs::create_dir(&cache).unwrap();
    let given = ["process", "--json", "--rib", &routes, "--rules", &rules];
    let how = "--io socket --listen 127.0.0.1:0 --batch 16 --duration 100ms --device";
    let how: Vec<&str> = how.split(' ').chain([&*device]).collect();
    let mut command = router(&[&given[..], &how].concat());
    let mut receiver = Receiver::start(command.env("POCL_CACHE_DIR", &cache));
    let (from, to) = ("198.51.100.1:9", "10.0.0.1:80");
    let frame = build::udp(from.parse().unwrap(), to.parse().unwrap()).frame();
    while !receiver.ended().unwrap() {
        // A batch at once: it is waited for no longer than a run lasts. Refused once it has ended.
        for _ in 0..16 {
            let _ = receiver.sender.send(&frame);
        }
        thread::sleep(Duration::from_millis(1));
    }
    let told = json(&receiver.output());
    assert!(told["packets"].as_u64() > Some(0), "{told}");
    assert_eq!(told["first_batch_packets"], 16);
}
