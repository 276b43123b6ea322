//! The agent is one small file that needs nothing, and either end may be it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;
use sys::require::{Class, skip};

use crate::netbench::with_flows;

/// The limit of the agent's size in a scratch image or an initramfs, in bytes.
const MAX_SIZE: u64 = 1_000_000;

/// The agent that `cargo xtask agent` builds, beside this build's own folder.
fn agent() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_BIN_EXE_lowroad"));
    let target = own.parent().unwrap().parent().unwrap();
    let triple = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let agent = target.join(triple).join("agent/netbench-agent");
    if agent.is_file() {
        return Some(agent);
    }
    skip(Class::Core, "the agent is not built: cargo xtask agent");
    None
}

/// A server on the loopback; killed when dropped.
struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    at: String,
}

impl Server {
    fn start(mut command: Command) -> Self {
        command.args(["--listen", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let at = ready["ready"]["listen"].as_str().unwrap().to_owned();
        Self { child, output, at }
    }

    /// Its last line after SIGTERM.
    fn end(mut self) -> Value {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        let last = self.output.by_ref().lines().last().unwrap().unwrap();
        assert!(self.child.wait().unwrap().success());
        serde_json::from_str(&last).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn command(program: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(words);
    command
}

fn objects(output: &Output) -> Vec<Value> {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = std::str::from_utf8(&output.stdout).unwrap();
    let objects = text.lines().map(serde_json::from_str);
    objects.collect::<Result<_, _>>().unwrap()
}

#[test]
fn it_is_small_and_needs_no_library() {
    let Some(agent) = agent() else {
        return;
    };
    let file = std::fs::read(&agent).unwrap();
    assert!(file.len() as u64 <= MAX_SIZE, "{} bytes", file.len());
    // A program header of type PT_INTERP would name the loader of a dynamic program.
    let half = |at: usize| u16::from_le_bytes([file[at], file[at + 1]]);
    let offset = u64::from_le_bytes(file[32..40].try_into().unwrap());
    let (offset, size, count) = (usize::try_from(offset).unwrap(), half(54), half(56));
    let headers = (0..count).map(|number| offset + usize::from(number) * usize::from(size));
    let kinds: Vec<u16> = headers.map(half).collect();
    assert!(kinds.contains(&1), "it has segments to load: {kinds:?}");
    assert!(!kinds.contains(&3), "it has an interpreter: {kinds:?}");
}

#[test]
fn either_end_may_be_the_agent() {
    let Some(agent) = agent() else {
        return;
    };
    let lowroad = Path::new(env!("CARGO_BIN_EXE_lowroad"));
    let tests = with_flows();
    // Longer than either end is away where others have the CPUs: its window would be empty.
    let asked = ["--test", &tests, "--duration", "1s", "--histogram"];
    let ours: [(Command, Command); 2] = [
        (
            command(&agent, &["serve"]),
            command(lowroad, &["netbench", "run", "--json"]),
        ),
        (
            command(lowroad, &["netbench", "serve", "--json"]),
            command(&agent, &["run"]),
        ),
    ];
    let mut keys = Vec::new();
    for (server, mut client) in ours {
        let server = Server::start(server);
        let output = client.args(asked).arg(&server.at).output().unwrap();
        let all = objects(&output);
        let names: Vec<_> = all.iter().map(|it| it["test"].as_str().unwrap()).collect();
        assert_eq!(names.join(","), tests);
        for object in &all {
            assert_eq!(object["ended_early"], Value::Null, "{object}");
            assert!(object["near"]["bytes"].as_u64() > Some(0), "{object}");
            assert!(object["far"]["messages"].as_u64() > Some(0), "{object}");
        }
        assert_eq!(server.end()["ended"]["tests"], all.len());
        let said = all.iter().map(|object| {
            let names = object.as_object().unwrap().keys().cloned();
            names.collect::<Vec<_>>()
        });
        keys.push(said.collect::<Vec<_>>());
    }
    assert_eq!(keys[0], keys[1], "both say the same things");
}

#[test]
fn unknown_arguments_are_refused_in_one_line() {
    let Some(agent) = agent() else {
        return;
    };
    for (words, said) in [
        (&["run"][..], "missing"),
        (&["run", "127.0.0.1", "--test", "tcp"], "tcp"),
        (&["run", "127.0.0.1", "--duration", "5"], "duration"),
        (&["run", "127.0.0.1", "--duration", "0s"], "lasts from"),
        (&["run", "127.0.0.1", "--fast"], "--fast"),
        (&["serve", "--listen", "0.0.0.0:0"], "--token-file"),
        (&["serve", "--max-mbps", "0"], "above 0"),
        (&["dance"], "no verb dance"),
    ] {
        let output = command(&agent, words).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {errors}");
        let first = errors.lines().next().unwrap_or_default();
        assert!(
            first.starts_with("error: ") && first.contains(said),
            "{words:?}: {first}"
        );
    }
}
