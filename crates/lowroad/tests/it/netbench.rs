//! The real binary at both ends: every test, what it prints, and how it ends.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use ::netbench::Test;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// The names of the tests in which flows of both ends take part.
pub(crate) fn with_flows() -> String {
    let tests = Test::ALL.into_iter();
    let tests = tests.filter(|test| test.needs_server() && !test.searches());
    let names: Vec<_> = tests.map(Test::name).collect();
    names.join(",")
}

fn netbench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lowroad"));
    command.arg("netbench").args(arguments);
    command
}

/// A program and what it prints; killed when dropped.
struct Program {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(arguments: &[&str]) -> Self {
        let mut command = netbench(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    /// Its end after a signal, and what it had still to print.
    fn stop(mut self, signal: Signal) -> (ExitStatus, String) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap(), rest)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// A server on the loopback, and where it is.
fn serve(more: &[&str]) -> (Program, String) {
    let arguments = [&["serve", "--listen", "127.0.0.1:0", "--json"], more].concat();
    let mut server = Program::start(&arguments);
    let ready: Value = serde_json::from_str(&server.line()).unwrap();
    let at = ready["ready"]["listen"].as_str().unwrap().to_owned();
    (server, at)
}

fn run(arguments: &[&str]) -> Output {
    netbench(&[&["run"], arguments].concat()).output().unwrap()
}

fn objects(output: &Output) -> Vec<Value> {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = std::str::from_utf8(&output.stdout).unwrap();
    let objects = text.lines().map(serde_json::from_str);
    objects.collect::<Result<_, _>>().unwrap()
}

#[test]
fn every_test_has_a_result() {
    let (server, at) = serve(&[]);
    let tests = with_flows();
    let arguments = [at.as_str(), "--test", &tests, "--duration", "1s"];
    let all = objects(&run(&[&arguments[..], &["--json"]].concat()));
    let names: Vec<_> = all.iter().map(|it| it["test"].as_str().unwrap()).collect();
    assert_eq!(names.join(","), tests);
    for object in &all {
        assert_eq!(object["ended_early"], Value::Null, "{object}");
        assert!(object["near"]["bytes"].as_u64().unwrap() > 0, "{object}");
        if object["latency_us"].is_object() {
            assert!(
                object["latency_us"]["count"].as_u64().unwrap() > 0,
                "{object}"
            );
            assert!(object["transactions_per_s"].as_f64().unwrap() > 0.0);
        } else {
            assert!(object["mbps"].as_f64().unwrap() > 0.0, "{object}");
        }
    }
    let least = [
        at.as_str(),
        "--test",
        "tcp_rr",
        "--duration",
        "50ms",
        "--histogram",
    ];
    let object = &objects(&run(&[&least[..], &["--json"]].concat()))[0];
    let pairs = object["latency_histogram_ns"].as_array().unwrap();
    let seen = pairs
        .iter()
        .map(|pair| pair[1].as_u64().unwrap())
        .sum::<u64>();
    assert_eq!(Some(seen), object["latency_us"]["count"].as_u64());
    assert_eq!(run(&least).status.code(), Some(2), "it needs --json");
    // In words there is a title for each, and a box for each that transacts.
    let said = run(&arguments);
    let announced = String::from_utf8_lossy(&said.stderr);
    let expected = format!("{} tests  this takes about ", names.len());
    assert!(announced.starts_with(&expected), "{announced}");
    let text = String::from_utf8(said.stdout).unwrap();
    for name in names {
        let titles = text.lines().filter(|line| line.starts_with(name)).count();
        let streams = name.parse::<Test>().unwrap().streams();
        assert_eq!(titles, if streams { 1 } else { 2 }, "{text}");
    }
    // A search, which may find no rate on a busy machine.
    let search = run(&[&at, "--test", "udp_rate", "--duration", "200ms", "--json"]);
    let found: Value = serde_json::from_slice(&search.stdout).unwrap();
    assert_eq!(found["test"], "udp_rate");
    assert_eq!(
        found["ended_early"].is_null(),
        search.status.success(),
        "{found}"
    );
    let (status, ended) = server.stop(Signal::SIGTERM);
    assert!(status.success());
    let ended: Value = serde_json::from_str(ended.lines().last().unwrap()).unwrap();
    // A search for a rate is some.
    assert!(ended["ended"]["tests"].as_u64().unwrap() > 12, "{ended}");
    assert_eq!(ended["ended"]["broken"], 0);
}

#[test]
fn lists_make_tests_and_repeats_take_turns() {
    let (_server, at) = serve(&[]);
    let sizes = [
        "--request",
        "1B,64B",
        "--response",
        "1KiB",
        "--flows",
        "1,2",
    ];
    let many = [
        &at,
        "--test",
        "tcp_rr,udp_rr",
        "--repeat",
        "2",
        "--duration",
        "60ms",
        "--json",
    ];
    let all = objects(&run(&[&many[..], &sizes].concat()));
    let key = |it: &Value| {
        (
            it["test"].to_string(),
            it["flows"].to_string(),
            it["request_bytes"].to_string(),
        )
    };
    let keys: Vec<_> = all.iter().map(key).collect();
    assert_eq!(keys.len(), 16);
    assert_eq!(keys[..8], keys[8..]);
    assert!(all.iter().all(|it| it["response_bytes"] == 1024));
    let paced = [
        "--rate",
        "1kpps",
        "--test",
        "udp_rr",
        "--duration",
        "100ms",
        "--json",
    ];
    let [paced] = &objects(&run(&[&[at.as_str()], &paced[..]].concat()))[..] else {
        panic!("one test");
    };
    assert_eq!(
        (&paced["loop"], &paced["rate_per_s"]),
        (&"open".into(), &1000.0.into())
    );
}

#[test]
fn signal_keeps_results() {
    let (_server, at) = serve(&[]);
    let mut client = Program::start(&[
        "run",
        &at,
        "--test",
        "tcp_rr",
        "--duration",
        "10ms",
        "--repeat",
        "1000",
        "--json",
    ]);
    let first = client.line();
    assert!(first.contains("\"tcp_rr\""), "{first}");
    let (status, rest) = client.stop(Signal::SIGINT);
    assert!(status.success());
    let last = rest.lines().last().unwrap_or(&first);
    assert!(serde_json::from_str::<Value>(last).is_ok(), "{last}");
}

#[test]
fn signal_ends_waiting_client() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap().to_string();
    let client = Program::start(&["run", &at]);
    let _connected = silent.accept().unwrap();
    let (status, _) = client.stop(Signal::SIGTERM);
    assert_eq!(status.signal(), Some(Signal::SIGTERM as i32));
}

#[test]
fn server_that_dies_fails_run_and_keeps_results() {
    let (mut server, at) = serve(&[]);
    let mut client = Program::start(&[
        "run",
        &at,
        "--test",
        "tcp_rr,udp_stream",
        "--duration",
        "3s",
        "--repeat",
        "1000",
        "--json",
    ]);
    let first: Value = serde_json::from_str(&client.line()).unwrap();
    assert_eq!(first["ended_early"], Value::Null);
    // The next one begins once the server counts it.
    loop {
        let told: Value = serde_json::from_str(&server.line()).unwrap();
        if told["status"]["tests"].as_u64() >= Some(2) {
            break;
        }
    }
    // It is under way by then, and not over, also where others have the CPUs.
    std::thread::sleep(Duration::from_millis(500));
    server.stop(Signal::SIGKILL);
    let mut rest = String::new();
    client.output.read_to_string(&mut rest).unwrap();
    assert_eq!(client.child.wait().unwrap().code(), Some(1));
    // One that was cut off is the last, and says what it came to.
    let all: Vec<Value> = rest
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (last, whole) = all.split_last().expect("one was under way");
    assert!(last["ended_early"].is_string(), "{last:#}");
    assert!(last["near"]["window_us"].as_f64().is_some(), "{last:#}");
    assert!(whole.iter().all(|one| one["ended_early"].is_null()));
}

#[test]
fn load_both_directions_and_bytes_have_results() {
    let (_server, at) = serve(&[]);
    let measured = |words: &[&str]| {
        let common = [at.as_str(), "--json"];
        objects(&run(&[&common[..], words].concat()))
    };
    let loaded = &measured(&[
        "--test",
        "udp_rr",
        "--rate",
        "100pps",
        "--duration",
        "1s",
        "--load",
        "both",
        "--load-flows",
        "1",
    ])[0];
    let load = &loaded["load"];
    for figure in ["up_mbps", "down_mbps"] {
        assert!(load[figure].as_f64().unwrap() > 0.0, "{loaded}");
    }
    assert!(
        load["idle_latency_us"]["count"].as_u64().unwrap() > 0,
        "{loaded}"
    );
    assert!(
        loaded["latency_us"]["count"].as_u64().unwrap() > 0,
        "{loaded}"
    );
    let both = measured(&[
        "--test",
        "tcp_stream",
        "--bidir",
        "--duration",
        "1s",
        "-i",
        "300ms",
    ]);
    let (intervals, outcomes): (Vec<_>, Vec<_>) = both
        .iter()
        .partition(|object| object["interval"].is_object());
    let outcomes: Vec<_> = outcomes.iter().map(|it| it["direction"].as_str()).collect();
    assert_eq!(outcomes, [Some("up"), Some("down")]);
    for direction in ["up", "down"] {
        let of = |it: &&&Value| it["interval"]["direction"] == direction;
        let bytes = intervals
            .iter()
            .filter(of)
            .map(|it| it["interval"]["bytes"].as_u64());
        assert!(
            bytes.flatten().sum::<u64>() > 0,
            "{direction}: {intervals:?}"
        );
    }
    for direction in [&[][..], &["--reverse"]] {
        let exact = [
            &["--test", "tcp_stream", "--bytes", "1MB", "--flows", "3"][..],
            direction,
        ];
        let exact = &measured(&exact.concat())[0];
        for end in ["near", "far"] {
            assert_eq!(exact[end]["all_bytes"], 1_000_000, "{exact}");
            assert!(exact[end]["window_us"].as_u64().unwrap() > 0, "{exact}");
        }
        assert!(exact["mbps"].as_f64().unwrap() > 0.0, "{exact}");
    }
}

/// A run that fails with this exit code and one line of an error.
fn refused(arguments: &[&str], words: &str, code: i32) {
    let output = netbench(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert!(said.contains(words), "{arguments:?}: {said}");
    let lines = said
        .lines()
        .filter(|line| line.starts_with("error"))
        .count();
    assert_eq!(lines, 1, "{arguments:?}: {said}");
}

#[test]
fn bad_input_is_one_line_and_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "correct horse").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let token = token.to_str().unwrap();
    let (_server, at) = serve(&["--token-file", token, "--max-duration", "1s"]);
    let known = ["run", at.as_str(), "--token-file", token];
    let with = |more: &[&'static str]| [&known[..], more].concat();
    refused(&["run", &at], "--token-file", 2);
    refused(&with(&["--duration", "2s"]), "no test longer than 1 s", 2);
    refused(&with(&["--duration", "0s"]), "from 10ms to 24h", 2);
    refused(&with(&["--flows", "0"]), "from 1 to 1024 flows", 2);
    refused(&with(&["--test", "tcp-rr"]), "there are: tcp_stream", 2);
    refused(
        &with(&["--test", "udp_rr", "--request", "1MiB"]),
        "to 65507 bytes",
        2,
    );
    refused(
        &with(&["--test", "udp_rate", "--rate", "1kpps"]),
        "takes no rate",
        2,
    );
    refused(
        &with(&["--test", "tcp_rr", "--reverse"]),
        "--reverse has no effect",
        2,
    );
    refused(&["run", "a:b:c"], "is not an address", 2);
    refused(&["run", "127.0.0.1:1"], "127.0.0.1:1", 1);
    let (_full, busy) = serve(&["--clients", "0"]);
    refused(&["run", &busy], "as many clients as the server takes", 1);
    refused(&["serve", "--listen", "0.0.0.0:0"], "--token-file", 2);
    refused(&["serve", "--listen", &at], "listening on", 1);
    refused(&["serve", "--max-mbps", "0"], "--max-mbps", 2);
    refused(&["serve", "--max-mbps", "inf"], "--max-mbps", 2);
    refused(&["serve", "--token-file", "/none"], "/none", 2);
    let served = run(&[
        &at,
        "--token-file",
        token,
        "--duration",
        "50ms",
        "--test",
        "tcp_rr",
    ]);
    assert!(served.status.success());
}

#[test]
fn options_without_effect_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "correct horse").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let token = token.to_str().unwrap();
    let (_server, at) = serve(&["--max-duration", "1s"]);
    for (test, option, value, words) in [
        ("udp_rate", "-i", "100ms", "--interval has no effect"),
        ("icmp", "--client-port", "5000", "--client-port has no"),
        ("icmp", "--token-file", token, "--token-file has no effect"),
        ("tcp_rr", "--client-port", "0", "from 1 to 65535"),
        ("udp_rr", "--mss", "1000", "--mss has no effect"),
        ("udp_rr", "--load", "up", "no test longer than 1 s"),
    ] {
        let test = ["run", &at, "--test", test, "--duration", "200ms"];
        refused(&[&test[..], &[option, value]].concat(), words, 2);
    }
    let streams = ["--test", "tcp_stream", "--histogram", "--json"];
    let streams = [&["run", &at][..], &streams].concat();
    refused(&streams, "--histogram has no effect", 2);
    let short = ["--test", "udp_rr", "--rate", "1kpps", "--request", "1B"];
    refused(&[&["run", &at][..], &short].concat(), "4 B or more", 2);
}

#[test]
fn missing_icmp_privilege_has_remedy() {
    if !sys::require::root() {
        return;
    }
    // Where the program is may be closed to others.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("lowroad");
    fs::copy(env!("CARGO_BIN_EXE_lowroad"), &program).unwrap();
    let mut command = Command::new("unshare");
    // In a namespace of its own no group may, until it is said.
    command.args(["--net", "setpriv", "--reuid", "65534", "--regid", "65534"]);
    command.arg("--clear-groups").arg(&program);
    command.args(["netbench", "run", "127.0.0.1", "--test", "icmp"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("needs CAP_NET_RAW"), "{said}");
    assert!(said.contains("net.ipv4.ping_group_range="), "{said}");
}
