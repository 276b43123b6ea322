//! Programs at work on this machine: how they get ready, how they fail, and what is left of them.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;

use control::config::Document;
use nix::sys::signal::kill;
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};

use super::*;
use crate::outcome::Outcome;

const RULES: ProgramRules<'static> = ProgramRules {
    job: "relay",
    terms: ProgramTerms {
        placeholders: &[
            FOLDER,
            HERE,
            Placeholder::new("port", "a port"),
            Placeholder::new("capture", "a file"),
        ],
        ending: &["capture"],
        counts_packets: false,
        metrics: None,
    },
    arms: &["recv"],
};

fn read(text: &str) -> Result<ProgramArm, String> {
    let document = Document::new("mine.toml", text);
    let arm = ProgramArm::read(&document, Some("mine"), &RULES);
    arm.map_err(|error| error.to_string())
}

fn start(text: &str, port: u16, folder: &Path) -> anyhow::Result<ProgramProcess> {
    let arm = read(text).unwrap();
    let values = Values::from([("port", vec![port.to_string()])]);
    ProgramProcess::start(&arm, Place::Machine, values, folder)
}

/// Whether a process still runs; it may be another's by now, which a test does not live long enough for.
fn is_alive(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let is_zombie = status.contains(") Z ");
    kill(Pid::from_raw(pid.cast_signed()), None).is_ok() && !is_zombie
}

const COMMAND: &str = "command = [\"relay\", \"{port}\"]\n";
const READY: &str = "ready = { line = \"up\" }\n";

/// Checks that the text is refused with this line and these words.
fn refused(text: &str, line: usize, what: &str) {
    let said = read(text).unwrap_err();
    assert!(
        said.starts_with(&format!("mine.toml:{line}: ")) && said.contains(what),
        "{text}\n{line}: {what}: {said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn mistake_in_a_command_is_one_line_with_its_place() {
    refused("", 1, "arm \"mine\" runs nothing: add setup or command");
    refused("command = []\n", 1, "an empty command");
    refused(COMMAND, 1, "ready is missing");
    let lime = format!("{COMMAND}ready = {{ lime = \"up\" }}\n");
    refused(&lime, 2, "did you mean \"line\"?");
    refused(&format!("setup = \"true\"\n{READY}"), 2, "there is none");
    refused(
        &format!("command = [\"relay\", \"{{prt}}\"]\n{READY}"),
        1,
        "relay has no placeholder {prt}; did you mean {port}? ({{prt}} is the text itself)",
    );
    refused(
        &format!("{COMMAND}ready = {{ line = \"{{xyzzy}}\" }}\n"),
        2,
        "no placeholder {xyzzy}; there are: {folder}, {here}, {port}, {capture}",
    );
    refused(
        &format!("command = [\"flows\", \"{{capture}}\"]\n{READY}"),
        2,
        "runs to its end: leave ready out",
    );
    let ending = "command = [\"flows\", \"{capture}\"]";
    assert!(read(ending).is_ok(), "it is never ready");
}

#[test]
fn mistake_in_another_key_is_one_line_with_its_place() {
    let start = format!("{COMMAND}{READY}");
    for (more, line, what) in [
        (
            "readdy = 3\n",
            3,
            "unknown key \"readdy\"; did you mean \"ready\"?",
        ),
        (
            "[files]\n\"a.conf\" = \"{prot}\"\n",
            4,
            "did you mean {port}?",
        ),
        ("files = { \"../x\" = \"\" }\n", 3, "a plain name"),
        ("timeout = \"0s\"\n", 3, "above 0"),
        ("timeout = \"1 hour\"\n", 3, "is not a duration"),
        (
            "needs = [{ install = \"x\" }]\n",
            3,
            "either program or file",
        ),
        (
            "job = \"router\"\n",
            3,
            "is of router, and the experiment is of relay",
        ),
        ("packets = \"wc -l {folder}/out\"\n", 3, "packets is for"),
        ("client = \"ask {port}\"\n", 3, "relay has no clients"),
    ] {
        refused(&format!("{start}{more}"), line, what);
    }
}

#[test]
fn job_decides_what_its_programs_state() {
    let document = Document::new("mine.toml", format!("{COMMAND}{READY}"));
    let said = |name: &str, terms: ProgramTerms| {
        let rules = ProgramRules { terms, ..RULES };
        let read = ProgramArm::read(&document, Some(name), &rules);
        read.unwrap_err().to_string()
    };
    assert!(said("mine", ProgramTerms::NONE).contains("no external programs"));
    assert!(said("a/b", RULES.terms).contains("letters, digits"));
    assert!(said("recv", RULES.terms).contains("of its own"));
    let counting = ProgramTerms {
        counts_packets: true,
        ..RULES.terms
    };
    assert!(said("mine", counting).contains("packets is missing"));
}

#[test]
fn machine_without_a_program_is_told_what_to_install() {
    let needs = "needs = [{ program = \"no-such-program\", install = \"apt-get install it\" }]\n";
    let arm = read(&format!("{needs}setup = \"true\"\n")).unwrap();
    let missing = arm.check().unwrap_err();
    assert_eq!(missing.what, "no-such-program is not installed");
    assert_eq!(missing.remedy, "apt-get install it");
    let file = "needs = [{ file = \"/nonexistent\", install = \"make it\" }]\nsetup = \"true\"\n";
    assert!(
        read(file)
            .unwrap()
            .check()
            .unwrap_err()
            .what
            .contains("/nonexistent")
    );
    let command = read("setup = [\"no-such-program\"]\n").unwrap();
    assert!(command.check().unwrap_err().what.contains("not installed"));
    let path = read("setup = [\"nowhere/relay\"]\n").unwrap();
    assert!(path.check().unwrap_err().what.contains("working directory"));
    assert!(
        read("setup = [\"sh\", \"-c\", \"true\"]\n")
            .unwrap()
            .check()
            .is_ok()
    );
}

#[test]
fn program_is_ready_when_it_shows_so() {
    let folder = tempfile::tempdir().unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = udp.local_addr().unwrap().port();
    let tcp_port = tcp.local_addr().unwrap().port();
    let sleep = "exec sleep 1000";
    let ports = [udp, tcp_port];
    for (text, port) in [
        (
            format!("command = \"echo now up; {sleep}\"\nready = {{ line = \"up\" }}\n"),
            1,
        ),
        (
            format!(
                "command = \"echo made > {{folder}}/made; {sleep}\"\nready = {{ file = \"{{folder}}/made\" }}\n"
            ),
            1,
        ),
        (
            format!("command = \"{sleep}\"\nready = {{ tcp = \"{{port}}\" }}\n"),
            ports[1],
        ),
    ] {
        let process = start(&text, port, folder.path()).unwrap();
        assert_eq!(process.pids().len(), 1, "{text}");
        process.stop().unwrap();
    }
    let address = "command = \"echo receives at 192.0.2.1:77 now; exec sleep 1000\"\nready = { address = \"receives at \" }\n";
    let process = start(address, 1, folder.path()).unwrap();
    assert_eq!(process.address().unwrap(), "192.0.2.1:77".parse().ok());
}

#[test]
fn bound_udp_port_shows_that_a_program_is_ready() {
    let folder = tempfile::tempdir().unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let text = "command = \"exec sleep 1000\"\nready = { udp = \"{port}\" }\ntimeout = \"200ms\"\n";
    start(text, port, folder.path()).unwrap();
    drop(socket);
    let late = start(text, port, folder.path()).unwrap_err().to_string();
    let wanted = format!("mine was not ready after 0.2 s: nothing is bound to UDP port {port}");
    assert!(late.starts_with(&wanted), "{late}");
    let word = "command = \"exec sleep 1000\"\nready = { udp = \"ssh\" }\n";
    let refused = start(word, port, folder.path()).unwrap_err().to_string();
    assert!(refused.contains("\"ssh\" is not a port"), "{refused}");
}

#[test]
fn failure_shows_the_end_of_the_output() {
    let folder = tempfile::tempdir().unwrap();
    for (text, words) in [
        (
            "command = \"echo one; echo broken >&2; exit 3\"\nready = { line = \"up\" }\n",
            "mine ended with exit status: 3 before it was ready; it printed: one | broken",
        ),
        (
            "command = \"exit 0\"\nready = { line = \"up\" }\n",
            "mine ended with exit status: 0 before it was ready; it printed nothing",
        ),
        (
            "setup = \"echo no rights; false; echo not reached\"\n",
            "mine setup ended with exit status: 1; it printed: no rights",
        ),
        (
            "setup = \"echo waiting; sleep 1000\"\ntimeout = \"200ms\"\n",
            "mine setup took more than 0.2 s; it printed: waiting",
        ),
        (
            "command = \"echo waiting; sleep 1000\"\nready = { line = \"up\" }\ntimeout = \"200ms\"\n",
            "mine was not ready after 0.2 s: no line with \"up\"; it printed: waiting",
        ),
    ] {
        let said = start(text, 1, folder.path()).unwrap_err().to_string();
        assert_eq!(said, words);
    }
    let text =
        "command = \"echo up; read line < {folder}/gone; exit 4\"\nready = { line = \"up\" }\n";
    // It ends no sooner than it is told to: after it was found ready.
    let gone = folder.path().join("gone");
    mkfifo(&gone, Mode::S_IRWXU).unwrap();
    let mut process = start(text, 1, folder.path()).unwrap();
    fs::write(gone, "\n").unwrap();
    let said = loop {
        match process.note(&mut Outcome::default()) {
            Ok(()) => std::thread::yield_now(),
            Err(error) => break error.to_string(),
        }
    };
    assert!(
        said.starts_with("mine ended during the trial with exit status: 4"),
        "{said}"
    );
}

#[test]
fn nothing_of_a_program_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let text = "setup = \"echo {port} > {folder}/setup\"\n\
                command = \"setsid sleep 1000 & sleep 1000 & cat {folder}/own.conf; echo up; exec sleep 1000\"\n\
                ready = { line = \"up\" }\n\
                teardown = \"mv {folder}/setup {folder}/teardown\"\n\
                files = { \"own.conf\" = \"listen {port}\" }\n";
    let mut process = start(text, 7, folder.path()).unwrap();
    let pids = process.pids();
    assert_eq!(pids.len(), 3, "{pids:?}");
    let mut outcome = Outcome::default();
    process.note(&mut outcome).unwrap();
    let output = outcome.environment["output"].as_str().unwrap();
    assert!(output.contains("listen 7"), "{output}");
    let program = outcome.environment["program"].as_str().unwrap();
    assert!(program.contains("echo 7 >"), "{program}");
    process.stop().unwrap();
    assert!(pids.iter().all(|&pid| !is_alive(pid)), "{pids:?}");
    let teardown = fs::read_to_string(folder.path().join("teardown")).unwrap();
    assert_eq!(teardown, "7\n");

    fs::remove_file(folder.path().join("teardown")).unwrap();
    let process = start(text, 7, folder.path()).unwrap();
    let pids = process.pids();
    drop(process);
    assert!(pids.iter().all(|&pid| !is_alive(pid)), "{pids:?}");
    assert!(folder.path().join("teardown").exists());
}

#[test]
fn teardown_runs_once_however_a_program_ends() {
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    const TEARDOWN: &str = "teardown = \"echo over >> {folder}/count\"\n";
    let runs = || {
        let text = fs::read_to_string(&count).unwrap_or_default();
        text.lines().count()
    };
    for start_of in [
        "setup = \"exit 1\"\n",
        "setup = \"true\"\ncommand = \"exit 1\"\nready = { line = \"up\" }\n",
        "command = \"sleep 1000\"\nready = { line = \"up\" }\ntimeout = \"100ms\"\n",
    ] {
        let before = runs();
        start(&format!("{start_of}{TEARDOWN}"), 1, folder.path()).unwrap_err();
        assert_eq!(runs(), before + 1, "{start_of}");
    }
    let text = format!("setup = \"true\"\n{TEARDOWN}");
    let before = runs();
    start(&text, 1, folder.path()).unwrap().stop().unwrap();
    assert_eq!(runs(), before + 1);
}

#[test]
fn standard_output_is_told_from_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let output = process::Output::default();
    let printed = process::Output::default();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "echo 7; echo warning >&2"]);
    command.current_dir(folder.path());
    output.connect(&mut command, Some(&printed)).unwrap();
    let mut child = testbed::Child::start(command).unwrap();
    let limit = std::time::Duration::from_secs(60);
    process::wait_end(&mut child, limit, ("mine", "client"), &output).unwrap();
    printed.settle();
    assert_eq!(printed.text(), "7\n");
    assert!(output.text().contains("7\n") && output.text().contains("warning\n"));
}

#[test]
fn failed_teardown_fails_the_trial() {
    let folder = tempfile::tempdir().unwrap();
    let text = "setup = \"true\"\nteardown = \"echo still mounted; exit 1\"\n";
    let process = start(text, 1, folder.path()).unwrap();
    let said = process.stop().unwrap_err().to_string();
    assert_eq!(
        said,
        "mine teardown ended with exit status: 1; it printed: still mounted"
    );
}

#[test]
fn long_output_is_kept_in_part() {
    let folder = tempfile::tempdir().unwrap();
    let text = "command = \"seq 100000; echo up; exec sleep 1000\"\nready = { line = \"up\" }\n";
    let mut process = start(text, 1, folder.path()).unwrap();
    let mut outcome = Outcome::default();
    process.note(&mut outcome).unwrap();
    let output = outcome.environment["output"].as_str().unwrap();
    assert!(
        output.len() <= 16 << 10 && output.ends_with("100000\nup\n"),
        "{}",
        output.len()
    );
}
