//! The real binary: what it prints, and the exit codes scripts rely on.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn lowroad(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lowroad"))
        .args(arguments)
        .output()
        .expect("lowroad starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[test]
fn alone_it_shows_three_groups_with_an_example_each() {
    let output = lowroad(&[]);
    assert_eq!(output.status.code(), Some(0));
    let text = stdout(&output);
    let groups = text
        .lines()
        .filter(|line| line.starts_with("lowroad ") && line.contains("  "));
    assert_eq!(groups.count(), 3, "{text}");
    assert_eq!(text.matches("    sudo lowroad ").count(), 3, "{text}");
}

#[test]
fn examples_of_replicate_run_as_root() {
    let text = stdout(&lowroad(&["replicate", "--help"]));
    let examples: Vec<_> = text
        .lines()
        .filter(|line| line.contains("lowroad replicate "))
        .collect();
    // A log can be read by its owner alone, and a capture is root's.
    let of_log = |line: &&&str| line.contains("/var/lib/lowroad/");
    assert!(examples.iter().filter(of_log).count() > 5, "{text}");
    for example in examples.iter().filter(of_log) {
        assert!(example.starts_with("  sudo lowroad "), "{example}");
    }
}

#[test]
fn bad_arguments_exit_2() {
    for arguments in [
        &["fly"][..],
        &["doctor", "--yaml"],
        &["man"],
        &["completions", "ed"],
    ] {
        let output = lowroad(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn doctor_names_every_datapath_and_a_remedy_for_what_is_missing() {
    let output = lowroad(&["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let diagnosis: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let checks = diagnosis["checks"].as_array().expect("checks");
    for datapath in relay::datapaths() {
        assert!(
            checks.iter().any(|check| check["name"] == datapath.name()),
            "{} is not listed",
            datapath.name()
        );
    }
    for datapath in router::config::Datapath::ALL {
        let of = |check: &Value| check["group"] == "router" && check["name"] == datapath.name();
        assert!(checks.iter().any(of), "{} is not listed", datapath.name());
    }
    for check in checks {
        let text = |field: &str| check[field].as_str().unwrap_or_default().to_owned();
        if check["available"] == false {
            assert!(
                !text("what").is_empty() && !text("remedy").is_empty(),
                "{check}"
            );
        }
    }
    let table = stdout(&lowroad(&["doctor"]));
    assert!(
        checks
            .iter()
            .all(|check| { table.contains(check["name"].as_str().unwrap_or("?")) })
    );
}

#[test]
fn comparison_is_done_by_the_program_beside_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("lowroad");
    // By a child: what another test starts meanwhile would have our copy open for writing.
    let copied = Command::new("cp")
        .args([Path::new(env!("CARGO_BIN_EXE_lowroad")), &copy])
        .status();
    assert!(copied.expect("cp starts").success());
    let run = || {
        Command::new(&copy)
            .args(["compare", "relay-delay", "--quick"])
            .env("PATH", folder.path())
            .output()
            .expect("lowroad starts")
    };

    let alone = run();
    assert_eq!(alone.status.code(), Some(1));
    let error = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert!(
        error.contains("lowroad-compare") && error.lines().count() == 1,
        "{error}"
    );

    let program = folder.path().join("lowroad-compare");
    fs::write(&program, "#!/bin/sh\necho \"$@\"\nexit 3\n").expect("a program");
    fs::set_permissions(
        &program,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .expect("an executable");
    let beside = run();
    assert_eq!(beside.status.code(), Some(3));
    assert_eq!(stdout(&beside), "compare relay-delay --quick\n");
}

#[test]
fn completions_and_man_pages_know_every_command() {
    let script = stdout(&lowroad(&["completions", "bash"]));
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_str().expect("a path");
    assert_eq!(lowroad(&["man", "--out", out]).status.code(), Some(0));
    for (command, option) in OPTIONS {
        let words = script.split_ascii_whitespace();
        assert!(
            words.into_iter().any(|word| word == *option),
            "{command} {option}"
        );
        let page = fs::read_to_string(folder.path().join(format!("lowroad-{command}.1")))
            .expect("a page of its own");
        // Hyphens are escaped on man pages.
        assert!(page.replace('\\', "").contains(option), "{command}: {page}");
    }
}

#[test]
fn completions_know_datapaths_and_schemas() {
    let script = stdout(&lowroad(&["completions", "bash"]));
    let relay = relay::datapaths();
    let relay: Vec<&str> = relay.iter().map(|datapath| datapath.name()).collect();
    let features = features::live::datapaths();
    let features: Vec<&str> = features.iter().map(|datapath| datapath.name()).collect();
    let schemas = features::schema::SCHEMAS.iter();
    let schemas: Vec<&str> = schemas.map(|schema| schema.name).collect();
    for names in [relay, features, schemas] {
        let words = format!("compgen -W \"{}\"", names.join(" "));
        assert!(script.contains(&words), "{words}");
    }
}

/// An option of every command that has some, those of lowroad-compare among them.
const OPTIONS: &[(&str, &str)] = &[
    ("doctor", "--json"),
    ("compare", "--resume"),
    ("report", "--parquet"),
    ("selftest", "--only"),
    ("demo", "--seed"),
    ("clean", "--verbose"),
];

#[test]
fn help_shows_the_options_of_every_command() {
    for (command, option) in OPTIONS {
        for words in [["help", command], [command, "--help"]] {
            let output = lowroad(&words);
            assert_eq!(output.status.code(), Some(0), "{words:?}");
            let text = stdout(&output);
            assert!(text.contains(option), "{words:?}: {text}");
        }
    }
}

#[test]
fn what_is_logged_into_a_file_has_no_colours() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("relay.toml");
    let control = folder.path().join("relay.sock");
    let free = std::net::UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let listen = free.expect("a free port");
    // This datapath says, at -v, what it costs.
    let text = format!(
        "[relay]\ncontrol = {control:?}\n[[stream]]\nname = \"a\"\nlisten = \"{listen}\"\n\
         datapath = \"busy\"\nsource = \"any\"\n"
    );
    fs::write(&config, text).expect("a file");
    let errors = folder.path().join("errors");
    let mut relay = Command::new(env!("CARGO_BIN_EXE_lowroad"))
        .args(["-v", "relay", "serve", "--config"])
        .arg(&config)
        .stdout(std::process::Stdio::piped())
        .stderr(fs::File::create(&errors).expect("a file"))
        .spawn()
        .expect("lowroad starts");
    let mut ready = String::new();
    let output = relay.stdout.take().expect("a pipe");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut ready).expect("text");
    assert!(ready.starts_with("ready"), "{ready}");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(relay.id()).expect("a pid"));
    nix::sys::signal::kill(pid, nix::sys::signal::SIGTERM).expect("it runs");
    relay.wait().expect("an end");
    let said = fs::read_to_string(&errors).expect("text");
    assert!(
        said.contains("busy") && !said.contains('\u{1b}'),
        "{said:?}"
    );
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let program = env!("CARGO_BIN_EXE_lowroad");
    let output = Command::new("sh")
        .args(["-c", &format!("{program} completions bash | head -n 1")])
        .output()
        .expect("a shell");
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
