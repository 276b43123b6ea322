//! What a device times of its own batches.

use std::path::Path;

use serde_json::Value;

use super::{device, files, json, router, stand_in};

/// What a device timed of its own batches.
fn timeline(device: &str, environment: &[(&str, &Path)], more: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let [routes, rules, _] = files(folder.path());
    let given = ["process", "--json", "--rib", &routes, "--rules", &rules];
    let batches = ["--packets", "4096", "--batch", "1000", "--duration", "50ms"];
    let timed = ["--device", device, "--timeline", "--ipv6", "30"];
    let mut command = router(&[&given[..], &batches, &timed, more].concat());
    command.envs(environment.iter().copied());
    let told = json(&command.output().unwrap());
    told["timeline"].clone()
}

#[test]
fn a_device_times_its_own_batches_part_by_part() {
    let libraries = stand_in();
    let cuda = [("LD_LIBRARY_PATH", libraries.path())];
    let opencl = device().map(|name| (name, &[][..]));
    for (device, environment) in opencl.into_iter().chain([("cuda:0".to_owned(), &cuda[..])]) {
        for memory in ["pageable", "pinned"] {
            let ways = [
                "--streams",
                "2",
                "--gpu-mem",
                memory,
                "--schedule",
                "per-function",
            ];
            let told = timeline(&device, environment, &ways);
            assert!(told["batches"].as_u64() >= Some(3), "{told}");
            let us = |name: &str| told[name].as_f64().unwrap();
            assert!(
                us("kernel_us") > 0.0 && us("kernel_floor_us") > 0.0,
                "{told}"
            );
            assert!(us("memory_gb_per_s") > 0.0, "{told}");
            assert!((0.0..=1.0).contains(&us("overlapped")), "{told}");
            let parts = us("copy_in_us").max(us("kernel_us")).max(us("copy_out_us"));
            assert!(us("batch_us") >= parts, "{told}");
            let spans = told["spans"].as_array().unwrap();
            for stream in 0..2 {
                let of = spans.iter().filter(|span| span["stream"] == stream);
                let of: Vec<_> = of.collect();
                let named = of.iter().map(|span| span["part"].as_str().unwrap());
                let named: Vec<_> = named.collect();
                // Routes and rules of two families, and what joins them.
                let kernels = named.len() - 2;
                assert_eq!(kernels, 5, "{named:?}");
                assert_eq!((named[0], named[named.len() - 1]), ("copy in", "copy out"));
                for pair in of.windows(2) {
                    let [end, start] = [&pair[0]["end_us"], &pair[1]["start_us"]];
                    assert!(end.as_f64() <= start.as_f64(), "{pair:?}");
                }
            }
        }
        let mapped = timeline(&device, environment, &["--gpu-mem", "mapped"]);
        for name in ["copy_in_us", "copy_out_us", "overlapped"] {
            assert!(mapped[name].is_null(), "nothing is copied: {mapped}");
        }
        assert!(mapped["kernel_us"].as_f64() > Some(0.0), "{mapped}");
    }
}

#[test]
fn a_timeline_is_of_calls_and_of_batches_of_one_size() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [routes, _, capture] = files(folder.path());
    let given = ["process", "--rib", &routes, "--timeline"];
    let graph = ["--device", &device, "--launch", "graph"];
    let pcap = ["--device", &device, "--io", "pcap", "--capture", &capture];
    for (more, why) in [
        (&graph[..], "--launch stream"),
        (&pcap[..], "from memory or a socket"),
        (&[][..], "--device"),
    ] {
        let output = router(&[&given[..], more].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why), "{said}");
    }
}
