//! Servers on other machines as arms. Here such a machine is a namespace at the other end of a cable, which the
//! client reaches from this machine's own network.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::common::{ONE_BLOCK, alone, lowroad, path, record, stderr, stdout, succeeded};
use serde_json::Value;
use sys::require::{Class, skip};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A namespace, the cable that leads there, and what both ends know.
struct Machine {
    number: u32,
    name: String,
    folder: tempfile::TempDir,
}

/// `lowroad netbench serve` there, and what it says.
struct Server {
    process: Child,
    said: Receiver<Value>,
}

impl Machine {
    /// `None` where none can be had.
    fn new() -> Option<Self> {
        if !sys::require::root() {
            return None;
        }
        if !program().is_file() {
            skip(Class::Core, "lowroad is not built: cargo build -p lowroad");
            return None;
        }
        static MACHINES: AtomicU32 = AtomicU32::new(0);
        let number = std::process::id() * 4 + MACHINES.fetch_add(1, Ordering::Relaxed);
        let name = format!("away{number}");
        ip(&["netns", "add", &name]);
        let machine = Self {
            number,
            name,
            folder: tempfile::tempdir().unwrap(),
        };
        let (name, near) = (&machine.name, machine.device());
        ip(&[
            "link", "add", &near, "type", "veth", "peer", "name", "eth0", "netns", name,
        ]);
        ip(&[
            "address",
            "add",
            &format!("{}/30", address(number, 1)),
            "dev",
            &near,
        ]);
        ip(&["link", "set", &near, "up"]);
        let there = format!("{}/30", machine.there());
        ip(&["-n", name, "address", "add", &there, "dev", "eth0"]);
        ip(&["-n", name, "link", "set", "eth0", "up"]);
        machine.write("token", "known at both ends\n");
        Some(machine)
    }

    fn there(&self) -> String {
        address(self.number, 2)
    }

    /// The cable's end on this machine.
    fn device(&self) -> String {
        format!("{}n", self.name)
    }

    /// A file that only its owner reads, as tokens have to be.
    fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.folder.path().join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        file
    }

    fn serve(&self, port: u16) -> Server {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program());
        command.args(["netbench", "serve", "--json", "--listen"]);
        command.arg(format!("{}:{port}", self.there()));
        command
            .arg("--token-file")
            .arg(self.folder.path().join("token"));
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (say, said) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // The receiver may be gone.
                let _ = say.send(serde_json::from_str(&line).unwrap());
            }
        });
        let server = Server { process, said };
        server.wait(|said| said["ready"].is_object());
        server
    }

    /// An experiment with these hosts beside a local arm.
    fn plan(&self, baseline: &str, hosts: &[(&str, u16, &str)], loads: &str) -> PathBuf {
        let names: Vec<String> = hosts.iter().map(|(name, ..)| format!("{name:?}")).collect();
        let mut text = format!(
            "name = \"two-hosts\"\njob = \"netbench\"\nabout = \"Two hosts\"\nmeasure = \"exchange\"\n\
             baseline = {baseline:?}\narms = [\"native/direct\", {}]\nblocks = 6\n\
             primary = [\"tcp_rr_us_p50\"]\n{loads}",
            names.join(", ")
        );
        for (name, port, token) in hosts {
            text += &format!(
                "[host.{name}]\nagent = \"tcp://{}:{port}\"\ntoken-file = {:?}\n",
                self.there(),
                self.folder.path().join(token)
            );
        }
        self.write("two-hosts.toml", &text)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Now: the namespace takes its time to go.
        ip(&["link", "delete", &self.device()]);
        ip(&["netns", "delete", &self.name]);
    }
}

impl Server {
    /// Until it has said such a thing.
    fn wait(&self, wanted: impl Fn(&Value) -> bool) {
        let until = Instant::now() + TIMEOUT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let said = self.said.recv_timeout(left).expect("it has not said so");
            if wanted(&said) {
                return;
            }
        }
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.process.try_wait().unwrap().is_none() {
            self.kill();
        }
    }
}

fn program() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_lowroad-compare")).with_file_name("lowroad")
}

/// The address of an end of the cable: of networks that no other test of this machine has meanwhile, and no real one.
fn address(number: u32, end: u32) -> String {
    let first = u32::from(Ipv4Addr::new(198, 18, 0, 0));
    Ipv4Addr::from(first + number % 0x8000 * 4 + end).to_string()
}

fn ip(words: &[&str]) {
    let output = Command::new("ip").args(words).output().unwrap();
    assert!(output.status.success(), "ip {words:?}: {}", stderr(&output));
}

const LOADS: &str = r#"
[[load]]
options = { test = "tcp_rr" }
duration = "100ms"

[[load]]
options = { test = "udp_stream", rate = 1000 }
duration = "100ms"

[[load]]
measure = "cpu"
options = { test = "tcp_rr" }
duration = "100ms"
"#;

#[test]
fn remote_servers_are_measured_beside_local() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let _servers = [machine.serve(7411), machine.serve(7412)];
    let hosts = [("metal", 7411, "token"), ("box", 7412, "token")];
    let plan = machine.plan("native/direct", &hosts, LOADS);
    let dry = lowroad(&["compare", path(&plan), "--dry-run"])
        .output()
        .unwrap();
    succeeded(&dry);
    let agent = format!("tcp://{}:7411", machine.there());
    let line = format!("host      metal {agent}\n");
    assert!(stdout(&dry).contains(&line), "{}", stdout(&dry));
    let out = machine.folder.path().join("out");
    let output = alone(|| {
        let mut command = lowroad(&["compare", path(&plan), "--out", path(&out)]);
        command.args(ONE_BLOCK).output().unwrap()
    });
    succeeded(&output);
    let record = record(&out);
    assert_eq!(record[0]["hosts"]["metal"], agent.as_str());
    for arm in ["metal", "box"] {
        for (load, metric) in [
            ("test=tcp_rr", "tcp_rr_us_p50"),
            ("rate=1000 test=udp_stream", "udp_stream_mbps"),
        ] {
            let mut trials = record[1..].iter();
            let trial = trials.find(|trial| trial["arm"] == arm && trial["load"] == load);
            let trial = trial.unwrap_or_else(|| panic!("{arm} {load}"));
            assert!(!trial["flags"].to_string().contains("failed"), "{trial}");
            assert!(trial["values"][metric].as_f64() > Some(0.0), "{trial}");
            let facts = &trial["environment"];
            assert_eq!(facts["host.server.noise"], "not seen", "{trial}");
            assert_eq!(facts["line.device"], machine.device(), "{trial}");
            // A cable that the kernel makes has no speed.
            assert!(facts["line.speed_mbps"].is_null(), "{trial}");
            assert!(facts["far"]["all_bytes"].as_u64() > Some(0), "{trial}");
            assert!(trial["noise"]["foreign_cpu_pct"].is_number(), "{trial}");
        }
        // Half of what it costs is not what it costs.
        let mut skipped = record[0]["skipped"].as_array().unwrap().iter();
        let cpu = skipped.find(|skip| skip["arm"] == arm && skip["load"] == "cpu test=tcp_rr");
        let why = cpu.unwrap_or_else(|| panic!("{arm}: {}", record[0]))["reason"].to_string();
        assert!(why.contains("CPU is not seen"), "{why}");
    }
    let said = "Noise on those machines is not measured";
    assert!(stdout(&output).contains(said), "{}", stdout(&output));
    let report = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(
        report.contains(said) && report.contains(&agent),
        "{}",
        out.display()
    );
}

/// With seed 5, the first block runs them in this order. During the first one a server has time to print that it has a
/// client.
const LOADS_OF_A_FAILURE: &str = r#"
[[load]]
options = { test = "tcp_rr", size = 1 }
duration = "1500ms"

[[load]]
options = { test = "tcp_rr", size = 2 }
duration = "100ms"

[[load]]
options = { test = "tcp_rr", size = 3 }
duration = "100ms"
"#;

#[test]
fn server_that_dies_fails_only_its_arm() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let _metal = machine.serve(7411);
    let hosts = [("metal", 7411, "token"), ("box", 7412, "token")];
    let plan = machine.plan("native/direct", &hosts, LOADS_OF_A_FAILURE);
    let out = machine.folder.path().join("out");
    let output = alone(|| {
        let mut server = machine.serve(7412);
        let mut command = lowroad(&["compare", path(&plan), "--out", path(&out)]);
        command.args(ONE_BLOCK);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = command.spawn().unwrap();
        // The trial lasts longer than the time between two lines of status.
        let busy = |said: &Value| said["status"]["clients"] == 1 && said["status"]["tests"] == 1;
        while running.try_wait().unwrap().is_none() {
            let said = server.said.recv_timeout(Duration::from_millis(100));
            if said.is_ok_and(|said| busy(&said)) {
                server.kill();
                break;
            }
        }
        running.wait_with_output().unwrap()
    });
    succeeded(&output);
    let record = record(&out);
    let flags = |trial: &Value| trial["flags"].to_string();
    let of = |arm: &'static str| record.iter().filter(move |line| line["arm"] == arm);
    let failed: Vec<String> = of("box")
        .filter(|line| line["kind"] == "trial")
        .map(flags)
        .filter(|flags| flags.contains("failed"))
        .collect();
    assert_eq!(failed.len(), 3, "{failed:?}");
    assert!(failed[0].contains("is gone"), "{failed:?}");
    assert!(failed[1].contains("no netbench server"), "{failed:?}");
    for (arm, trials) in [("native/direct", 3 * 3), ("metal", 3)] {
        assert!(
            of(arm).all(|trial| !flags(trial).contains("failed")),
            "{arm}"
        );
        assert_eq!(of(arm).count(), trials, "{arm}");
    }
    let given_up = record.iter().find(|line| line["kind"] == "skip").unwrap();
    let remedy = given_up["remedy"].as_str().unwrap();
    assert!(remedy.starts_with("run there: lowroad netbench serve --listen 0.0.0.0:7412"));
    let said = stderr(&output);
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("WARN") && line.contains("is gone"))
        .collect();
    assert!(lines.len() == 1 && lines[0].contains("box: "), "{said}");
    assert!(
        lines[0].contains("run there: lowroad netbench serve"),
        "{said}"
    );
}

#[test]
fn unreachable_server_is_skipped_with_remedy() {
    let Some(machine) = Machine::new() else {
        return;
    };
    machine.write("other", "known at one end\n");
    let _server = machine.serve(7411);
    let hosts = [("metal", 7411, "other"), ("box", 7412, "token")];
    let plan = machine.plan("native/direct", &hosts, LOADS_OF_A_FAILURE);
    let dry = lowroad(&["compare", path(&plan), "--dry-run"])
        .output()
        .unwrap();
    succeeded(&dry);
    let said = stdout(&dry);
    for (arm, what, remedy) in [
        ("metal", "refuses this client", "[host.metal]'s token-file"),
        (
            "box",
            "no netbench server at",
            "run there: lowroad netbench serve --listen 0.0.0.0:7412",
        ),
    ] {
        let mut lines = said.lines();
        let line = lines.find(|line| line.starts_with(&format!("skipped {arm}: ")));
        let line = line.unwrap_or_else(|| panic!("{arm}: {said}"));
        assert!(line.contains(what) && line.contains(remedy), "{line}");
    }
    let plan = machine.plan("box", &hosts, LOADS_OF_A_FAILURE);
    let output = alone(|| {
        let out = machine.folder.path().join("out");
        lowroad(&["compare", path(&plan), "--out", path(&out)])
            .output()
            .unwrap()
    });
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("the baseline box cannot run here"),
        "{}",
        stderr(&output)
    );
}
