//! Datagrams to a device.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::{device, files, json, router};
use packet::build;

/// Much less than PoCL needs for a kernel that it never saw.
const BRIEF: [&str; 2] = ["--duration", "100ms"];

#[test]
fn the_time_of_a_run_from_a_socket_is_not_gone_while_the_device_builds_what_it_runs() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [routes, rules, _] = files(folder.path());
    let cache = folder.path().join("kernels");
    fs::create_dir(&cache).unwrap();
    let given = [
        "process", "--json", "--rib", &routes, "--rules", &rules, "--device", &device,
    ];
    let socket = ["--io", "socket", "--listen", "127.0.0.1:0", "--batch", "16"];
    let mut child = router(&[&given[..], &socket, &BRIEF].concat())
        .env("POCL_CACHE_DIR", &cache)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let ready = "ready: frames as datagrams to ";
    let ready = said.find_map(|line| Some(line.unwrap().strip_prefix(ready)?.to_owned()));
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(ready.unwrap()).unwrap();
    let (from, to) = ("198.51.100.1:9", "10.0.0.1:80");
    let frame = build::udp(from.parse().unwrap(), to.parse().unwrap()).frame();
    let over = AtomicBool::new(false);
    let output = thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // Refused once it has ended.
                let _ = sender.send(&frame);
                thread::sleep(Duration::from_millis(1));
            }
        });
        scope.spawn(|| said.for_each(drop));
        let output = child.wait_with_output();
        over.store(true, Ordering::Relaxed);
        output
    });
    let told = json(&output.unwrap());
    assert!(told["packets"].as_u64() > Some(0), "{told}");
    assert_eq!(told["first_batch_packets"], 16);
}
