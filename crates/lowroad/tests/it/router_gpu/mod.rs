//! `lowroad router process --device` as people run it, on PoCL's device: this machine's own processor.

mod crossover;

mod socket;
mod timeline;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use packet::build;
use packet::pcap::{ETHERNET, Writer};
use serde_json::Value;

const ROUTES: &str = "10.0.0.0/8\n10.1.0.0/16\n192.0.2.0/24\n2001:db8::/32\n";
const RULES: &str = r#"[
  {"action": "drop", "protocol": "udp", "destination_ports": "53"},
  {"action": "punt", "destination": "10.1.0.0/16"},
  {"action": "accept"}
]"#;

fn router(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lowroad"));
    command.arg("router").args(arguments);
    command
}

fn json(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The name of a device; reports the skip where there is none.
fn device() -> Option<String> {
    let listed = json(&router(&["devices", "--json"]).output().unwrap());
    let opencl = &listed["backends"][0];
    assert_eq!(opencl["backend"], "opencl");
    let devices = opencl["devices"].as_array();
    let mut processors = devices
        .into_iter()
        .flatten()
        .filter(|device| device["kind"] == "CPU");
    let name = processors.next().and_then(|device| device["name"].as_str());
    if name.is_none() {
        let missing = format!(
            "{}: {}",
            opencl["missing"]["what"], opencl["missing"]["remedy"]
        );
        sys::require::skip(sys::require::Class::Core, &missing);
    }
    name.map(str::to_owned)
}

/// Routes, rules and a capture of packets that meet each of them.
fn files(folder: &Path) -> [String; 3] {
    let [routes, rules, capture] =
        ["routes", "rules.json", "in.pcap"].map(|name| folder.join(name));
    fs::write(&routes, ROUTES).unwrap();
    fs::write(&rules, RULES).unwrap();
    let mut writer = Writer::new(fs::File::create(&capture).unwrap(), ETHERNET).unwrap();
    let v4 = "198.51.100.1:9".parse().unwrap();
    let v6 = "[2001:db8::1]:9".parse().unwrap();
    for at in 0..500_u16 {
        let to = ["10.0.0.1", "10.1.0.1", "192.0.2.9", "203.0.113.1"][usize::from(at % 4)];
        let port = [53, 80, 443][usize::from(at % 3)];
        writer
            .write(
                0,
                &build::udp(v4, (to.parse::<std::net::IpAddr>().unwrap(), port).into()).frame(),
            )
            .unwrap();
        let to6 = format!("[2001:db{:x}::7]:{port}", 8 + at % 2);
        writer
            .write(0, &build::udp(v6, to6.parse().unwrap()).frame())
            .unwrap();
        writer.write(0, &[0; 60]).unwrap();
    }
    writer.finish().unwrap();
    [routes, rules, capture].map(|path| path.to_str().unwrap().to_owned())
}

/// Ways to a device, and what it is to do there.
const WAYS: [&str; 12] = [
    "--batch 1",
    "--batch 1000 --gpu-mem pageable --gpu-copy full",
    "--batch 700 --gpu-mem mapped --streams 4",
    "--threads 2 --engine-lpm4 words",
    "--function lpm --streams 2",
    "--schedule per-function --batch 300",
    "--gpu-result u16 --gpu-copy full --gpu-mem mapped",
    "--schedule per-function --gpu-result compact --streams 3",
    "--launch graph --streams 2 --batch 100",
    "--launch graph --gpu-mem mapped --schedule per-function --gpu-result u16",
    "--launch persistent --gpu-mem mapped",
    "--launch persistent --gpu-mem mapped --gpu-copy full --gpu-result compact --streams 2",
];

/// Whether a capture comes out of a device, reached by this environment, as it does out of CPUs.
fn agree(device: &str, environment: &[(&str, &Path)]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let [routes, rules, capture] = files(folder.path());
    let out = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let given = ["process", "--json", "--rib", &routes, "--rules", &rules];
    let io = ["--io", "pcap", "--capture", &capture, "--out"];
    let run = |more: &[&str], name: &str| {
        let out = out(name);
        let arguments = [&given[..], &io, &[&out], more].concat();
        let mut command = router(&arguments);
        let output = command.envs(environment.iter().copied()).output().unwrap();
        (json(&output), fs::read(out).unwrap())
    };
    let (wanted, forwarded) = run(&["--simd", "portable"], "cpu.pcap");
    assert_eq!(wanted["caution"], Value::Null);
    let told = WAYS.map(|more| {
        let more: Vec<_> = more.split(' ').chain(["--device", device]).collect();
        let (told, written) = run(&more, "device.pcap");
        if told["function"] == "both" {
            for what in ["packets", "verdicts", "rule_packets", "written"] {
                assert_eq!(told[what], wanted[what], "{more:?}");
            }
            assert!(written == forwarded, "{more:?}");
        }
        assert!(told["engine"].as_str().unwrap().contains(device));
        told
    });
    told.into()
}

#[test]
fn a_capture_comes_out_of_a_device_as_it_does_out_of_cpus() {
    let Some(device) = device() else { return };
    for told in agree(&device, &[]) {
        let caution = "the device is a CPU: its times do not stand for a GPU's";
        assert_eq!(told["caution"], caution, "of PoCL's device");
    }
}

#[test]
fn the_arrays_of_an_image_are_what_a_device_gets() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [routes, rules, capture] = files(folder.path());
    let image = folder.path().join("table.lrt");
    let image = image.to_str().unwrap();
    let build = ["build", "--rib", &routes, "--rules", &rules, "-o", image];
    assert!(router(&build).output().unwrap().status.success());
    let run = |more: &[&str]| {
        let given = [
            "process",
            image,
            "--json",
            "--io",
            "pcap",
            "--capture",
            &capture,
        ];
        json(&router(&[&given[..], more].concat()).output().unwrap())
    };
    let wanted = run(&["--simd", "portable"]);
    assert!(wanted["verdicts"]["forwarded"].as_u64().unwrap() > 0);
    for layout in ["bytes", "mixed", "words"] {
        let told = run(&["--device", &device, "--engine-lpm4", layout]);
        for what in ["verdicts", "rule_packets", "prefixes"] {
            assert_eq!(told[what], wanted[what], "{layout}");
        }
    }
}

/// A folder with what stands in for NVIDIA's driver and compiler.
fn stand_in() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/devices");
    for (source, library, version) in [
        ("cuda.c", "libcuda.so", "libcuda.so.1"),
        ("nvrtc.c", "libnvrtc.so", "libnvrtc.so.12"),
    ] {
        let library = folder.path().join(library);
        let cc = Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-Wall", "-Werror", "-o"])
            .args([&library, &sources.join(source)])
            .status();
        assert!(cc.unwrap().success(), "cc compiles {source}");
        // By both names: else a driver of this machine might answer to one.
        symlink(&library, folder.path().join(version)).unwrap();
    }
    folder
}

#[test]
fn a_capture_comes_out_of_cuda_as_it_does_out_of_cpus() {
    let libraries = stand_in();
    agree("cuda:0", &[("LD_LIBRARY_PATH", libraries.path())]);
}

#[test]
fn a_cuda_device_that_fails_is_one_line() {
    let libraries = stand_in();
    let folder = tempfile::tempdir().unwrap();
    let [routes, rules, capture] = files(folder.path());
    let crossover = [
        "crossover",
        "--rib",
        &routes,
        "--device",
        "cuda:0",
        "--simd",
        "portable",
    ];
    let mut crossover = router(&crossover);
    crossover
        .env("LD_LIBRARY_PATH", libraries.path())
        .env("CUDA_WAITS", "60");
    let output = crossover.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("CUDA_ERROR_LAUNCH_FAILED"), "{said}");
    assert!(
        output.stdout.is_empty(),
        "no figure of a device that failed"
    );
    for (name, value, wanted) in [
        (
            "CUDA_WAITS",
            "60",
            "cuda:0 (stand-in, a GPU) fails: waiting: CUDA_ERROR_LAUNCH_FAILED",
        ),
        (
            "CUDA_MEMORY",
            "1000000",
            "bytes of memory in one piece (at most 1000000)",
        ),
    ] {
        let process = [
            "process", "--rib", &routes, "--rules", &rules, "--device", "cuda:0",
        ];
        let more = ["--io", "pcap", "--capture", &capture, "--batch", "32"];
        let mut command = router(&[&process[..], &more].concat());
        command.env("LD_LIBRARY_PATH", libraries.path());
        let output = command.env(name, value).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(wanted) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn cpus_go_on_where_a_device_fails_if_that_is_wanted() {
    let libraries = stand_in();
    let folder = tempfile::tempdir().unwrap();
    let [routes, rules, capture] = files(folder.path());
    let io = ["--io", "pcap", "--capture", &capture, "--simd", "portable"];
    let process = ["process", "--json", "--rib", &routes];
    for (filter, batch) in [(&["--rules", &rules][..], "32"), (&[], "1")] {
        let given = [&process[..], filter, &io, &["--batch", batch]].concat();
        let wanted = json(&router(&given).output().unwrap());
        assert_eq!(wanted["fallback"], Value::Null);
        for (name, value, why) in [
            ("CUDA_WAITS", "60", "CUDA_ERROR_LAUNCH_FAILED"),
            ("CUDA_MEMORY", "1000000", "bytes of memory in one piece"),
            ("CUDA_ALLOCATIONS", "5", "bytes of memory in one piece"),
            ("CUDA_REFUSES", "1", "cannot build the kernels"),
        ] {
            let device = ["--device", "cuda:0", "--fallback", "cpu"];
            let mut command = router(&[&given[..], &device].concat());
            command.env("LD_LIBRARY_PATH", libraries.path());
            let output = command.env(name, value).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let told = json(&output);
            assert_eq!(told["verdicts"], wanted["verdicts"], "{name}: {said}");
            assert_eq!(said.matches("CPUs decide from now on").count(), 1, "{said}");
            assert!(said.contains(why), "{name}: {said}");
            let fallback = &told["fallback"];
            assert!(fallback["why"].as_str().unwrap().contains(why));
            let by_cpus = fallback["packets"].as_u64().unwrap();
            let all = told["packets"].as_u64().unwrap();
            assert!(by_cpus > 0 && by_cpus <= all, "{fallback}");
            // Lost in the middle.
            assert_eq!(by_cpus < all, name == "CUDA_WAITS", "{name}: {fallback}");
        }
    }
}

#[test]
fn packets_that_come_at_a_rate_are_decided_about_in_time_while_routes_change() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [routes, rules, _] = files(folder.path());
    let process = ["process", "--json", "--rib", &routes, "--rules", &rules];
    let pace = ["--rate", "2kpps", "--batch-wait", "1ms", "--updates", "200"];
    let time = ["--duration", "2s", "--packets", "1000", "--batch", "1000"];
    for device in [&["--device", &device][..], &[]] {
        let told = json(
            &router(&[&process[..], &pace, &time, device].concat())
                .output()
                .unwrap(),
        );
        // A thousand packets take half a second to come, and wait for a thousandth.
        assert!(told["partial_batches"].as_u64().unwrap() > 0, "{told}");
        let sum: u64 = told["verdicts"]
            .as_object()
            .unwrap()
            .values()
            .map(|packets| packets.as_u64().unwrap())
            .sum();
        assert_eq!(told["packets"], sum);
        let updates = &told["updates"];
        assert!(updates["changes"].as_u64().unwrap() > 0);
        let on_device = &updates["device"];
        if device.is_empty() {
            assert_eq!(*on_device, Value::Null);
        } else {
            assert!(on_device["batches"].as_u64().unwrap() > 0, "{updates}");
        }
    }
    let mut without = router(&[&process[..], &["--batch-wait", "1ms"]].concat());
    let refused = without.output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "nothing ever waits");
}

#[test]
fn a_device_is_asked_what_the_naive_engines_are() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [routes, rules, _] = files(folder.path());
    let given = ["diff", "--json", "--rib", &routes, "--rules", &rules];
    let asked = |more: &[&str]| {
        let arguments = [&given[..], &["--keys", "999", "--device", &device], more].concat();
        router(&arguments).output().unwrap()
    };
    for more in ["--gpu-mem mapped", "--gpu-result compact --streams 2"] {
        let more: Vec<_> = more.split(' ').collect();
        let told = json(&asked(&more));
        let engines = told["engines"].as_array().unwrap();
        let ours = engines.iter().filter_map(|engine| {
            let name = engine["engine"].as_str()?.strip_prefix(device.as_str())?;
            assert!(engine["keys"].as_u64().unwrap() >= 999, "{engine}");
            assert_eq!(engine["wrong"], 0, "{engine}");
            Some(name.trim())
        });
        let all = ["lpm", "acl", "both"];
        let all = all.map(|function| ["IPv4", "IPv6"].map(|family| format!("{function} {family}")));
        assert!(ours.eq(all.as_flattened()), "{told}");
    }
    let frames = asked(&["--gpu-copy", "full"]);
    assert_eq!(frames.status.code(), Some(2), "nobody has frames of keys");
}

#[test]
fn what_cannot_be_launched_so_is_refused() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [routes, ..] = files(folder.path());
    let process = ["process", "--rib", &routes, "--device", &device];
    for (more, why) in [
        (
            &["--launch", "graph", "--gpu-mem", "pageable"][..],
            "pinned or mapped",
        ),
        (&["--launch", "persistent"], "mapped"),
        (
            &[
                "--launch",
                "persistent",
                "--gpu-mem",
                "mapped",
                "--schedule",
                "per-function",
            ],
            "per-packet",
        ),
    ] {
        let output = router(&[&process[..], more].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{more:?}: {said}");
        assert!(said.contains(why), "{more:?}: {said}");
    }
}

#[test]
fn frames_in_memory_are_decided_about_by_a_device() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [routes, rules, _] = files(folder.path());
    for function in ["lpm", "acl", "both"] {
        let process = ["process", "--json", "--rib", &routes, "--rules", &rules];
        let more = [
            "--function",
            function,
            "--device",
            &device,
            "--duration",
            "50ms",
        ];
        let told = json(&router(&[&process[..], &more].concat()).output().unwrap());
        assert!(told["packets"].as_u64().unwrap() > 0);
        let verdicts = told["verdicts"].as_object().unwrap().values();
        let sum: u64 = verdicts.map(|packets| packets.as_u64().unwrap()).sum();
        assert_eq!(told["packets"], sum, "{function}");
    }
}

#[test]
fn a_device_that_cannot_be_had_is_one_line_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let [routes, ..] = files(folder.path());
    let process = ["process", "--rib", &routes, "--device"];
    let refused = |name: &str| {
        let mut command = router(&process);
        // Where OpenCL looks for drivers.
        command.arg(name).env("OCL_ICD_VENDORS", folder.path());
        let output = command.output().unwrap();
        (
            output.status.code().unwrap(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (code, said) = refused("opencl:0");
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("apt-get install"), "{said}");
    let (code, said) = refused("opencl:x");
    assert_eq!(code, 3, "{said}");
    let (code, said) = refused("none");
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("there is no device none"), "{said}");
    let simd = router(&process)
        .args(["opencl:0", "--simd", "portable"])
        .output();
    assert_eq!(simd.unwrap().status.code(), Some(2), "--simd is of CPUs");
    let without = router(&["process", "--rib", &routes, "--streams", "2"]).output();
    assert_eq!(
        without.unwrap().status.code(),
        Some(2),
        "--streams is of a device"
    );
}
