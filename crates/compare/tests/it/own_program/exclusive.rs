//! Builds and external programs at work beside each other.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::common::{ONE_BLOCK, alone, lowroad, path, program, record, stderr, succeeded};
use serde_json::Value;

use super::EXAMPLE;

const RELAY: &str = r#"
name = "mine"
job = "relay"
about = "One small load"
measure = "delay"
baseline = "recv"
arms = ["recv", "xdp"]
blocks = 6
primary = ["delay_p50"]

[[load]]
payload = "200B"
rate = "1kpps"
subscribers = 2
duration = "100ms"
"#;

/// Runs a plan in a folder with these words more.
fn compare(folder: &Path, plan: &str, words: &[&str]) -> Output {
    let file = folder.join("plan.toml");
    fs::write(&file, plan).unwrap();
    let out = folder.join("out");
    alone(|| {
        let mut command = lowroad(&["compare", path(&file), "--out", path(&out)]);
        command.args(words).output().unwrap()
    })
}

/// The trials of an arm in the record of that folder.
fn trials(folder: &Path, arm: &str) -> Vec<Value> {
    let record = record(&folder.join("out")).split_off(1);
    let of_arm = record.into_iter().filter(|trial| trial["arm"] == arm);
    let trials: Vec<Value> = of_arm.collect();
    assert!(!trials.is_empty(), "no trial of {arm}");
    trials
}

fn value(trial: &Value, name: &str) -> f64 {
    trial["values"][name]
        .as_f64()
        .unwrap_or_else(|| panic!("no {name}: {trial}"))
}

#[test]
fn builds_and_a_program_relay_in_one_run() {
    if !sys::require::root() {
        return;
    }
    let Some(new) = program() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("lowroad-old");
    fs::copy(&new, &old).unwrap();
    let arms = [
        format!("old={}", old.display()),
        format!("new={},datapath=xdp", new.display()),
        format!("mine={EXAMPLE}/forwarder.toml"),
    ];
    let mut words: Vec<&str> = arms
        .iter()
        .flat_map(|arm| ["--arm", arm.as_str()])
        .collect();
    words.extend(ONE_BLOCK);
    let output = compare(folder.path(), RELAY, &words);
    succeeded(&output);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains("Builds of lowroad: new is lowroad "),
        "{said}"
    );
    assert!(said.contains("External programs: mine ("), "{said}");

    let header = record(&folder.path().join("out")).remove(0);
    assert_eq!(header["baseline"], "old");
    let (before, after) = (&header["builds"]["old"], &header["builds"]["new"]);
    assert_eq!(before["hash"], after["hash"], "it is a copy");
    assert_eq!(before["path"], path(&old.canonicalize().unwrap()));
    assert_eq!(
        (&before["arm"], &after["arm"]),
        (&"recv".into(), &"xdp".into())
    );
    assert!(before["version"].as_str().unwrap().starts_with("lowroad "));
    for (arm, runs) in [("old", 3), ("new", 1), ("mine", 1)] {
        let trials = trials(folder.path(), arm);
        assert_eq!(trials.len(), runs, "{arm}");
        for trial in trials {
            let count = |name: &str| trial["counts"][name].as_u64().unwrap();
            assert!(
                count("sent") > 0 && count("unique") == 2 * count("sent"),
                "{trial}"
            );
            assert!(value(&trial, "delay_p50") > 0.0, "{trial}");
            let program = trial["environment"]["program"].as_str().unwrap_or_default();
            assert_eq!(program.contains("forwarder.py"), arm == "mine", "{trial}");
        }
    }
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        assert!(!words.contains("own-program/forwarder.py"), "{words}");
    }

    // Blocks of another build are not added.
    fs::OpenOptions::new()
        .append(true)
        .open(&old)
        .unwrap()
        .set_len(fs::metadata(&old).unwrap().len() + 1)
        .unwrap();
    let mut words: Vec<&str> = arms
        .iter()
        .flat_map(|arm| ["--arm", arm.as_str()])
        .collect();
    words.extend(["--blocks", "2", "--resume"]);
    let output = compare(folder.path(), RELAY, &words);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("another plan (builds)"), "{said}");
}

#[test]
fn broken_program_leaves_the_others_alone() {
    if !sys::require::root() || program().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let arm = "\n[[arm]]\nname = \"mine\"\ncommand = \"echo cannot bind; exit 7\"\nready = { udp = \"{port}\" }\n";
    let plan = RELAY.replace("\"xdp\"]", "\"mine\"]");
    let plan = plan.replace("subscribers = 2", "subscribers = 1") + arm;
    succeeded(&compare(folder.path(), &plan, &ONE_BLOCK));
    let broken = &trials(folder.path(), "mine")[0];
    let flags = broken["flags"].to_string();
    let wanted =
        "failed: mine ended with exit status: 7 before it was ready; it printed: cannot bind";
    assert!(flags.contains(wanted), "{flags}");
    assert!(value(&trials(folder.path(), "recv")[0], "delay_p50") > 0.0);
}

/// Counts the frames of a device until it is asked to end, those too that wait then. Its buffer holds all that a trial
/// sends.
const COUNTER: &str = r#"
import signal, socket, sys
SO_RCVBUFFORCE = 33
tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
tap.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
signal.signal(signal.SIGTERM, lambda *_: tap.setblocking(False))
tap.bind((sys.argv[1], 0))
tap.settimeout(0.05)
print("counting", flush=True)
seen = 0
while True:
    try:
        tap.recv(2048)
        seen += 1
    except BlockingIOError:
        break
    except TimeoutError:
        pass
print("packets", seen, flush=True)
"#;

#[test]
fn program_sees_the_packets_of_a_device() {
    if !sys::require::root() || program().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("counter.py"), COUNTER).unwrap();
    let plan = r#"
name = "mine"
job = "features"
about = "One small load"
measure = "goodput"
baseline = "recv"
arms = ["recv", "mine"]
blocks = 6
primary = ["goodput_pps"]

[[load]]
rate = "1kpps"
flows = 4
duration = "100ms"

[[load]]
measure = "cpu"
rate = "1kpps"
flows = 4
duration = "100ms"

[[arm]]
name = "mine"
command = ["python3", "{here}/counter.py", "{interface}"]
ready = { line = "counting" }
packets = "sed -n 's/^packets //p' {folder}/output"
"#;
    succeeded(&compare(folder.path(), plan, &ONE_BLOCK));
    for trial in trials(folder.path(), "mine") {
        let count = |name: &str| trial["counts"][name].as_u64().unwrap();
        // A second's thousand before the measured ones, and the device's own.
        assert!(
            count("sent") >= 100 && count("unique") >= count("sent"),
            "{trial}"
        );
        assert!(value(&trial, "loss_pct") < 1.0, "{trial}");
    }
    let trials = trials(folder.path(), "mine");
    let mut trials = trials.iter();
    let of_cpu = trials.find(|trial| trial["load"].as_str().unwrap().contains("cpu"));
    assert!(value(of_cpu.unwrap(), "cpu_ns_per_packet_process") > 0.0);
}

#[test]
fn program_reads_a_capture_to_its_end() {
    if !sys::require::root() || program().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plan = r#"
name = "mine"
job = "features"
about = "One small capture"
measure = "file"
baseline = "pcap"
arms = ["pcap", "mine"]
blocks = 6
primary = ["packets_per_cpu_s"]

[[load]]
packets = 2000
duration = "1s"

[[arm]]
name = "mine"
setup = "mkdir {folder}/copies"
command = ["cp", "{capture}", "{folder}/copies"]
teardown = "test -s {folder}/copies/*"
"#;
    succeeded(&compare(folder.path(), plan, &ONE_BLOCK));
    for arm in ["pcap", "mine"] {
        let trial = &trials(folder.path(), arm)[0];
        assert!(value(trial, "packets_per_s") > 0.0, "{trial}");
        assert_eq!(trial["counts"]["packets"], 2000, "{trial}");
    }
}

#[test]
fn program_forwards_between_two_devices() {
    if !sys::require::root() || program().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plan = r#"
name = "mine"
job = "router"
about = "One small table"
measure = "forward"
baseline = "kernel"
arms = ["kernel", "mine"]
blocks = 6
primary = ["forward_pps"]

[[load]]
table = { ipv4 = 3000 }
traffic = "per-prefix"
flows = 512
options = { generator = "af-xdp" }
duration = "20ms"

[[arm]]
name = "mine"
setup = "grep -q 1 /proc/sys/net/ipv4/ip_forward && test -d /proc/sys/net/ipv4/conf/{egress_interface}"
command = "echo forwards from {interface}; exec sleep 1000"
ready = { line = "forwards" }
"#;
    succeeded(&compare(folder.path(), plan, &ONE_BLOCK));
    for arm in ["kernel", "mine"] {
        assert!(
            value(&trials(folder.path(), arm)[0], "forward_pps") > 0.0,
            "{arm}"
        );
    }
}

#[test]
fn program_keeps_a_copy_of_a_tree() {
    if !sys::require::root() || program().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plan = r#"
name = "mine"
job = "replicate"
about = "One small load"
measure = "lag"
baseline = "file"
arms = ["file", "mine"]
blocks = 6
primary = ["lag_ms_p50"]

[[load]]
payload = "64B"
options = { rate = 100, sync = 1 }
duration = "100ms"

[[arm]]
name = "mine"
command = '''
echo copies
while true; do
    for file in $(ls {tree}); do
        dd if={tree}/$file of={copy}/$file bs=1M conv=notrunc 2>/dev/null
    done
done
'''
ready = { line = "copies" }
"#;
    succeeded(&compare(folder.path(), plan, &ONE_BLOCK));
    for arm in ["file", "mine"] {
        let trial = &trials(folder.path(), arm)[0];
        assert!(value(trial, "lag_ms_p50") > 0.0, "{trial}");
        assert!(value(trial, "bytes_differing").abs() < 0.5, "{trial}");
    }
}

#[test]
fn program_follows_the_writes_to_a_tree() {
    if !sys::require::root() || program().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plan = r#"
name = "mine"
job = "replicate"
about = "One small load"
measure = "writes"
baseline = "none"
arms = ["none", "mine"]
blocks = 6
primary = ["pwrite_ns"]

[[load]]
payload = "64B"
options = { writes = 300 }
duration = "100ms"

[[arm]]
name = "mine"
command = "ls -l {tree} > {folder}/list; echo follows; exec sleep 1000"
ready = { line = "follows" }
"#;
    succeeded(&compare(folder.path(), plan, &ONE_BLOCK));
    let trial = &trials(folder.path(), "mine")[0];
    assert!(value(trial, "pwrite_ns") > 0.0, "{trial}");
    assert!(trial["counts"]["log_bytes"].as_u64() > Some(0), "{trial}");
}

/// Answers each byte with one, and with arguments for a client asks for a while and prints the median.
const ECHO: &str = r#"
import socket, statistics, sys, time
mode, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
if mode == "serve":
    with socket.create_server((host, port)) as server:
        while True:
            connection, _ = server.accept()
            while connection.recv(1):
                connection.send(b"x")
connection = socket.create_connection((host, port))
end, times = time.monotonic() + float(sys.argv[4]), []
while time.monotonic() < end:
    begun = time.monotonic_ns()
    connection.send(b"x")
    connection.recv(1)
    times.append(time.monotonic_ns() - begun)
print("round trips", len(times), "median", statistics.median(times), "ns")
"#;

#[test]
fn client_output_gives_the_metrics() {
    if !sys::require::root() || program().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("echo.py"), ECHO).unwrap();
    let plan = r#"
name = "mine"
job = "netbench"
about = "One short test"
measure = "exchange"
baseline = "native/direct"
arms = ["native/direct", "mine"]
blocks = 6
primary = ["tcp_rr_us_p50"]

[[load]]
options = { test = "tcp_rr" }
duration = "200ms"

[[arm]]
name = "mine"
command = ["python3", "{here}/echo.py", "serve", "{address}", "{port}"]
ready = { tcp = "{port}" }
client = ["python3", "{here}/echo.py", "ask", "{address}", "{port}", "{seconds}"]
values = [{ metric = "tcp_rr_us_p50", pattern = 'median ([0-9.]+) ns', scale = 1e-3 }]
"#;
    succeeded(&compare(folder.path(), plan, &ONE_BLOCK));
    for arm in ["native/direct", "mine"] {
        let trial = &trials(folder.path(), arm)[0];
        let median = value(trial, "tcp_rr_us_p50");
        assert!(median > 0.1 && median < 1e5, "{trial}");
    }
}

/// Runs one load by two builds, which are the same program.
fn two_builds(plan: &str, arm: &str, metric: &str) {
    if !sys::require::root() {
        return;
    }
    let Some(build) = program() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let arms = ["old", "new"].map(|name| format!("{name}={},datapath={arm}", build.display()));
    let mut words: Vec<&str> = arms
        .iter()
        .flat_map(|arm| ["--arm", arm.as_str()])
        .collect();
    words.extend(ONE_BLOCK);
    succeeded(&compare(folder.path(), plan, &words));
    for name in ["old", "new"] {
        let trial = &trials(folder.path(), name)[0];
        assert!(!trial["flags"].to_string().contains("failed"), "{trial}");
        assert!(value(trial, metric) > 0.0, "{trial}");
    }
}

/// A plan of one job; the load is TOML.
fn plan(job: &str, measure: &str, (arm, metric): (&str, &str), load: &str) -> String {
    format!(
        "name = \"mine\"\njob = \"{job}\"\nabout = \"One small load\"\nmeasure = \"{measure}\"\n\
         baseline = \"{arm}\"\narms = [\"{arm}\"]\nblocks = 6\nprimary = [\"{metric}\"]\n\n[[load]]\n{load}\n"
    )
}

#[test]
fn builds_of_every_job_are_compared() {
    for (job, measure, arm, metric, load) in [
        (
            "features",
            "goodput",
            "recv",
            "goodput_pps",
            "rate = \"1kpps\"\nflows = 4\nduration = \"100ms\"",
        ),
        (
            "features",
            "file",
            "pcap",
            "packets_per_s",
            "packets = 2000\nduration = \"1s\"",
        ),
        (
            "router",
            "lookup",
            "lowroad",
            "ns_per_lookup",
            "table = { ipv4 = 3000 }\ntraffic = \"uniform\"\nduration = \"20ms\"",
        ),
        (
            "router",
            "forward",
            "xdp",
            "forward_pps",
            "table = { ipv4 = 3000 }\ntraffic = \"per-prefix\"\nflows = 512\noptions = { generator = \"af-xdp\" }\nduration = \"20ms\"",
        ),
        (
            "replicate",
            "writes",
            "data",
            "pwrite_ns",
            "payload = \"64B\"\noptions = { writes = 300 }\nduration = \"100ms\"",
        ),
        (
            "netbench",
            "exchange",
            "native/direct",
            "tcp_rr_us_p50",
            "options = { test = \"tcp_rr\" }\nduration = \"200ms\"",
        ),
    ] {
        two_builds(&plan(job, measure, (arm, metric), load), arm, metric);
    }
}
