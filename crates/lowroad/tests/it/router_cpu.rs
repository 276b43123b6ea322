//! `lowroad router process` and `bench` as people run them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use packet::build;
use packet::pcap::{ETHERNET, Reader, Writer};
use serde_json::Value;

use crate::datagrams::Receiver;

const ROUTES: &str = "10.0.0.0/8\n10.1.0.0/16\n192.0.2.0/24\n2001:db8::/32\n";
const RULES: &str = r#"[
  {"action": "drop", "protocol": "udp", "destination_ports": "53"},
  {"action": "punt", "destination": "10.1.0.0/16"},
  {"action": "accept"}
]"#;

struct Files {
    folder: tempfile::TempDir,
    routes: PathBuf,
    rules: PathBuf,
}

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (routes, rules) = (
            folder.path().join("routes"),
            folder.path().join("rules.json"),
        );
        fs::write(&routes, ROUTES).unwrap();
        fs::write(&rules, RULES).unwrap();
        Self {
            folder,
            routes,
            rules,
        }
    }

    /// With routes and rules named.
    fn router(&self, verb: &str, more: &[&str]) -> Command {
        let mut command = router(verb, more);
        command.arg("--rib").arg(&self.routes);
        command.arg("--rules").arg(&self.rules);
        command
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn router(verb: &str, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lowroad"));
    command.args(["router", verb]).args(more);
    // The usual default, which not every machine has.
    if !more.contains(&"--simd") && verb == "process" {
        command.args(["--simd", "portable"]);
    }
    command
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", errors(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn sum(verdicts: &Value) -> u64 {
    let verdicts = verdicts.as_object().unwrap().values();
    verdicts.map(|packets| packets.as_u64().unwrap()).sum()
}

fn udp(to: &str, ttl: u8) -> Vec<u8> {
    let from = if to.starts_with('[') {
        "[2001:db8:9::1]:4000"
    } else {
        "198.51.100.1:4000"
    };
    let udp = build::udp(from.parse().unwrap(), to.parse().unwrap());
    udp.ttl(ttl).payload([1, 2, 3]).frame()
}

/// What is in the capture, and what becomes of it with the TTL one less; none for what is not forwarded.
fn packets() -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let forwarded = |to: &str| (udp(to, 64), Some(udp(to, 63)));
    vec![
        forwarded("10.2.3.4:80"),
        (udp("10.2.3.4:53", 64), None),
        (udp("10.1.3.4:80", 64), None),
        (udp("10.1.3.4:53", 64), None),
        (udp("203.0.113.1:80", 64), None),
        forwarded("[2001:db8::5]:80"),
        (udp("[2001:db9::5]:80", 64), None),
        (udp("192.0.2.1:80", 1), None),
        (vec![0xff; 60], None),
        forwarded("192.0.2.1:80"),
    ]
}

fn capture(path: &Path) {
    let mut writer = Writer::new(Vec::new(), ETHERNET).unwrap();
    for round in 0..500 {
        for (frame, _) in packets() {
            writer.write(round, &frame).unwrap();
        }
    }
    fs::write(path, writer.finish().unwrap()).unwrap();
}

#[test]
fn a_capture_is_forwarded_as_routes_and_rules_say_by_any_number_of_threads() {
    let files = Files::new();
    let (input, out) = (files.at("in.pcap"), files.at("out.pcap"));
    capture(&input);
    for threads in ["1", "2"] {
        if sys::sched::allowed_cpus().unwrap().len() < threads.parse().unwrap() {
            continue;
        }
        let more = [
            "--io",
            "pcap",
            "--json",
            "--batch",
            "33",
            "--threads",
            threads,
        ];
        let mut command = files.router("process", &more);
        let output = command
            .arg("--capture")
            .arg(&input)
            .arg("-o")
            .arg(&out)
            .output();
        let told = json(&output.unwrap());
        assert_eq!(told["function"], "both");
        assert_eq!(told["packets"], 5000);
        let verdicts = &told["verdicts"];
        for (verdict, packets) in [
            ("forwarded", 2000),
            ("dropped", 1000),
            ("punted", 500),
            ("no_route", 1000),
            ("not_ip", 500),
        ] {
            assert_eq!(verdicts[verdict], packets, "{verdict}: {verdicts}");
        }
        assert_eq!(sum(verdicts), 5000);
        let by_rule = |what: &str| -> u64 {
            let rules = told["rule_packets"].as_array().unwrap().iter();
            let about = rules.filter(|rule| rule["text"].as_str().unwrap().contains(what));
            about.map(|rule| rule["packets"].as_u64().unwrap()).sum()
        };
        // All that have a key meet one.
        assert_eq!(
            [by_rule("drop"), by_rule("punt"), by_rule("")],
            [1000, 500, 4500]
        );
        assert_eq!(told["written"]["packets"], 1500);
        assert_eq!(told["written"]["ttl_expired"], 500);
        assert_eq!(
            told["threads"].as_array().unwrap().len().to_string(),
            threads
        );
        let mut reader = Reader::new(fs::File::open(&out).unwrap()).unwrap();
        for round in 0..500 {
            for frame in packets().into_iter().filter_map(|(_, forwarded)| forwarded) {
                let written = reader.read().unwrap().unwrap();
                assert_eq!((written.timestamp_ns, written.bytes), (round, &frame[..]));
            }
        }
        assert!(reader.read().unwrap().is_none());
    }
}

#[test]
fn packets_to_routes_that_lead_nowhere_are_dropped_as_is_explained() {
    let files = Files::new();
    let (rib, image) = (files.at("closed"), files.at("closed.lrt"));
    let routes = "blackhole 10.1.0.0/16\n10.0.0.0/8 via 192.0.2.1\nunreachable 10.2.0.0/16\n\
                  prohibit 10.3.0.0/16\nlocal 10.4.0.0/16 dev lo\nthrow 10.5.0.0/16\n";
    fs::write(&rib, routes).unwrap();
    let (input, out) = (files.at("in.pcap"), files.at("out.pcap"));
    let mut writer = Writer::new(Vec::new(), ETHERNET).unwrap();
    for to in 0..6 {
        let frame = udp(&format!("10.{to}.0.1:80"), 64);
        writer.write(0, &frame).unwrap();
    }
    fs::write(&input, writer.finish().unwrap()).unwrap();
    let mut build = router("build", &["--rib"]);
    let built = build.arg(&rib).arg("-o").arg(&image).output().unwrap();
    assert!(built.status.success(), "{}", errors(&built));
    let explained = |to: usize| {
        let packet = format!("198.51.100.1:4000 -> 10.{to}.0.1:80/udp");
        let mut command = router("explain", &["--json"]);
        let told = json(&command.arg(&image).arg(packet).output().unwrap());
        told["verdict"].as_str().unwrap().to_owned()
    };
    let expected = ["forward", "drop", "drop", "drop", "punt", "punt"];
    assert_eq!([0, 1, 2, 3, 4, 5].map(explained), expected);
    for source in [
        &[image.as_os_str()][..],
        &["--rib".as_ref(), rib.as_os_str()],
    ] {
        let mut command = router("process", &["--io", "pcap", "--json"]);
        command.args(source).arg("--capture").arg(&input);
        let told = json(&command.arg("-o").arg(&out).output().unwrap());
        let verdicts = &told["verdicts"];
        assert_eq!(
            [
                &verdicts["forwarded"],
                &verdicts["dropped"],
                &verdicts["punted"]
            ],
            [1, 3, 2]
        );
        assert_eq!(told["written"]["packets"], 1);
    }
    let mut reader = Reader::new(fs::File::open(&out).unwrap()).unwrap();
    assert_eq!(
        reader.read().unwrap().unwrap().bytes,
        udp("10.0.0.1:80", 63)
    );
    assert!(reader.read().unwrap().is_none());
}

#[test]
fn packets_from_memory_add_up_whatever_they_are_drawn_from() {
    let files = Files::new();
    let input = files.at("in.pcap");
    capture(&input);
    let run = |more: &[&str]| {
        let mut all = vec!["--json", "--duration", "100ms"];
        all.extend(more);
        json(&files.router("process", &all).output().unwrap())
    };
    for traffic in ["uniform", "per-prefix", "zipf", "sequential"] {
        let told = run(&[
            "--function",
            "lpm",
            "--traffic",
            traffic,
            "--packets",
            "5000",
        ]);
        assert!(told["packets"].as_u64() > Some(0), "{traffic}");
        assert_eq!(
            told["verdicts"]["forwarded"], told["packets"],
            "{traffic}: all have routes"
        );
    }
    for more in [
        &["--traffic", "rules", "--packets", "1000", "--ipv6", "50"][..],
        &["--function", "acl", "--packets", "1000"],
        &["--packets", "1000", "--length", "1514", "--batch", "32"],
        &["--capture", input.to_str().unwrap()],
    ] {
        let told = run(more);
        assert_eq!(
            sum(&told["verdicts"]),
            told["packets"].as_u64().unwrap(),
            "{more:?}"
        );
        assert!(told["packets_per_s"].as_f64() > Some(0.0), "{more:?}");
        let stages = &told["stages_ns_per_packet"];
        let stage = |name: &str| stages[name].as_f64().unwrap();
        let all = stage("gather") + stage("process") + stage("scatter");
        assert!((told["ns_per_packet"].as_f64().unwrap() / all - 1.0).abs() < 1e-6);
        assert!(stages["send"].is_null(), "nothing is sent");
        let latency = |which: &str| told[which]["max"].as_f64().unwrap();
        assert!(latency("batch_latency_max_us") >= latency("batch_latency_min_us"));
    }
}

#[test]
fn a_signal_ends_it_with_what_it_has() {
    let files = Files::new();
    let child = files
        .router(
            "process",
            &["--json", "--duration", "1h", "--packets", "1000"],
        )
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let process = Pid::from_raw(child.id().cast_signed());
    // A second thread, besides the one that waits: it is at work.
    let tasks = format!("/proc/{}/task", child.id());
    while fs::read_dir(&tasks).unwrap().count() < 2 {
        std::thread::yield_now();
    }
    kill(process, Signal::SIGINT).unwrap();
    let told = json(&child.wait_with_output().unwrap());
    assert_eq!(sum(&told["verdicts"]), told["packets"].as_u64().unwrap());
}

#[test]
fn every_engine_answers_right_and_the_best_is_among_them() {
    let files = Files::new();
    let plot = files.at("plot.svg");
    let more = ["--keys", "2000", "--rounds", "6", "--json"];
    let mut command = files.router("bench", &more);
    let told = json(&command.arg("--plot").arg(&plot).output().unwrap());
    let groups = told["groups"].as_array().unwrap();
    let names: Vec<_> = groups
        .iter()
        .map(|group| group["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["IPv4", "IPv6", "IPv4 rules", "IPv6 rules"]);
    let simds = lpm::Simd::available().count();
    for (group, layouts) in groups.iter().zip([3, 2, 1, 1]) {
        let arms = group["arms"].as_array().unwrap();
        assert_eq!(arms.len(), layouts * simds, "{group}");
        let engines: Vec<_> = arms.iter().map(|arm| &arm["engine"]).collect();
        for arm in arms {
            assert_eq!(arm["wrong"], 0, "{arm}");
            for (pattern, ns) in arm["ns_per_lookup"].as_object().unwrap() {
                assert_eq!(ns["n"], 6, "{pattern}");
                assert!(ns["lower"].as_f64() <= ns["median"].as_f64(), "{ns}");
                let best = &group["best"][pattern];
                assert!(engines.contains(&&best["engine"]), "{best}");
            }
        }
    }
    let drawn = fs::read_to_string(plot).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"));
    let panels = drawn.matches("ns per lookup").count();
    assert_eq!(panels, 4 + 4 + 2 + 2);
}

#[test]
fn measuring_that_is_stopped_tells_whole_rounds() {
    let files = Files::new();
    let mut child = files
        .router("bench", &["--keys", "1024", "--rounds", "1000", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().starts_with("round 2/")));
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
    let rest = std::thread::spawn(move || said.for_each(drop));
    let told = json(&child.wait_with_output().unwrap());
    rest.join().unwrap();
    let rounds = |arm: &Value| {
        let ns = arm["ns_per_lookup"].as_object().unwrap().values();
        ns.map(|ns| ns["n"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    for group in told["groups"].as_array().unwrap() {
        let first = rounds(&group["arms"][0])[0];
        assert!(first > 0);
        for arm in group["arms"].as_array().unwrap() {
            assert!(rounds(arm).into_iter().all(|n| n == first), "{arm}");
        }
    }
}

#[test]
fn datagrams_are_forwarded_in_whole_batches() {
    let files = Files::new();
    let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = sink.local_addr().unwrap().to_string();
    let socket = ["--io", "socket", "--listen", "127.0.0.1:0", "--to", &to];
    let more = [
        &socket[..],
        &["--batch", "10", "--duration", "1h", "--json"],
    ]
    .concat();
    let receiver = Receiver::start(&mut files.router("process", &more));
    let sender = &receiver.sender;
    let mut frame = [0; 2048];
    for _ in 0..3 {
        for (sent, _) in packets() {
            sender.send(&sent).unwrap();
        }
        for forwarded in packets().into_iter().filter_map(|(_, forwarded)| forwarded) {
            let length = sink.recv(&mut frame).unwrap();
            assert_eq!(frame[..length], forwarded);
        }
    }
    // Of no whole batch.
    sender.send(&packets()[0].0).unwrap();
    receiver.end();
    let told = json(&receiver.output());
    assert_eq!((&told["packets"], sum(&told["verdicts"])), (&20.into(), 20));
    assert_eq!(told["first_batch_packets"], 10);
    assert!(told["stages_ns_per_packet"]["send"].as_f64() > Some(0.0));
    let socket = &told["socket"];
    for (what, count) in [
        ("received", 30),
        ("sent", 9),
        ("ttl_expired", 3),
        ("lost", 0),
        ("cut", 0),
        ("refused", 0),
    ] {
        assert_eq!(socket[what], count, "{what}");
    }
    assert!(socket["left"].as_u64() <= Some(1), "{socket}");
}

#[test]
fn random_packets_are_udp_from_anywhere() {
    let files = Files::new();
    let more = ["--traffic", "random", "--duration", "1ms", "--json"];
    let told = json(&files.router("process", &more).output().unwrap());
    assert!(told["packets"].as_u64() > Some(0));
    assert_eq!(sum(&told["verdicts"]), told["packets"].as_u64().unwrap());
    // Most addresses have no route, and all of them have keys.
    let verdicts = &told["verdicts"];
    assert!(verdicts["no_route"].as_u64() > verdicts["forwarded"].as_u64());
    assert_eq!(verdicts["malformed"], 0);
}

#[test]
fn what_does_not_go_together_is_refused_in_a_line() {
    let files = Files::new();
    let routes = ["--rib", files.routes.to_str().unwrap()];
    let with = |more: &[&str]| {
        let mut command = router("process", more);
        command.args(routes);
        command
    };
    for (mut command, says) in [
        (router("process", &[]), "--rib FILE"),
        (with(&["--function", "both"]), "--rules FILE"),
        (with(&["--function", "hash"]), "lpm, acl, both"),
        (with(&["--batch", "0"]), "1..=65536"),
        (with(&["--duration", "0s"]), "no time"),
        (with(&["--duration", "10"]), "10s"),
        (with(&["--threads", "5000"]), "5000"),
        (with(&["--io", "pcap"]), "--capture FILE"),
        (with(&["-o", "/dev/null"]), "--io pcap"),
        (with(&["--io", "socket"]), "--listen ADDR:PORT"),
        (with(&["--listen", "127.0.0.1:0"]), "--io socket"),
        (
            with(&["--capture", "/nonexistent.pcap"]),
            "/nonexistent.pcap",
        ),
        (with(&["--capture", "/etc/passwd"]), "not a pcap"),
        (
            with(&["--io", "pcap", "--capture", "/etc/passwd"]),
            "not a pcap",
        ),
    ] {
        let output = command.output().unwrap();
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {said}");
        assert!(said.contains(says), "{command:?}: {said}");
        assert!(output.stdout.is_empty());
    }
    let bytes = ["--engine-lpm4", "bytes", "--spread", "300"];
    let output = router("process", &bytes)
        .arg("--rib")
        .arg(many_prefixes(&files))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        errors(&output).contains("mixed or words"),
        "{}",
        errors(&output)
    );
}

/// Prefixes that name no next hop: enough to spread over 300.
fn many_prefixes(files: &Files) -> PathBuf {
    let path = files.at("prefixes");
    let prefixes = (0..20_000).map(|at| format!("10.{}.{}.0/24\n", at / 256, at % 256));
    fs::write(&path, prefixes.collect::<String>()).unwrap();
    path
}
