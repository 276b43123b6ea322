//! No output shows a secret: not with the most verbose log, and not where something is wrong with the secret.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::relay_server::lowroad;

const SECRET: &str = "hunter2-correct-horse";

/// What a command prints that fails.
fn failure(arguments: &[&str]) -> String {
    let output = lowroad().args(arguments).arg("-vvv").output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(!output.status.success(), "{arguments:?}: {said}");
    assert!(said.contains("error"), "{arguments:?}: {said}");
    said
}

fn assert_hidden(arguments: &[&str]) {
    let said = failure(arguments);
    assert!(!said.contains("hunter2"), "{arguments:?}: {said}");
}

/// A file that only its owner can open.
fn secret_file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn addresses_are_shown_without_their_logins() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture.pcap");
    fs::write(&capture, loadgen::mix::write(Vec::new(), 100, 3).unwrap()).unwrap();
    let capture = capture.to_str().unwrap();
    for address in [
        "nats://me:SECRET@127.0.0.1:1/flows",
        "nats://me:SECRET@127.0.0.1:1/a b",
        "nats://me:SECRET@127.0.0.1:1",
        "nats://SECRET@127.0.0.1:1/",
        "kafka://me:SECRET@127.0.0.1:1/topic",
    ] {
        let address = address.replace("SECRET", SECRET);
        assert_hidden(&["features", "pcap", capture, "-o", &address]);
    }
    let log = folder.path().join("log");
    let log = log.to_str().unwrap();
    for address in [
        "nats://me:SECRET@127.0.0.1:1/a b",
        "tls://SECRET@127.0.0.1:1",
    ] {
        let address = address.replace("SECRET", SECRET);
        assert_hidden(&["replicate", "receive", &address, "--to", log]);
        assert_hidden(&["replicate", "publish", log, "--to", &address]);
    }
}

#[test]
fn broken_secrets_are_not_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name, text: &str| secret_file(folder.path(), name, text);
    let junk = file("junk", &format!("{SECRET}\n"));
    let short = file("short", "hunter2\n");
    let empty = file("empty", "\nhunter2\n");
    let log = folder.path().join("log");
    let log = log.to_str().unwrap();
    let nats = "nats://127.0.0.1:1/APP";
    for option in ["--creds", "--key-file"] {
        assert_hidden(&["replicate", "receive", nats, "--to", log, option, &junk]);
    }
    let tls = ["--cert", &junk, "--key", &junk, "--server-ca", &junk];
    assert_hidden(
        &[
            &["replicate", "receive", "tcp://localhost:1", "--to", log],
            &tls[..],
        ]
        .concat(),
    );
    assert_hidden(&[
        "netbench",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--token-file",
        &short,
    ]);
    let capture = folder.path().join("capture.pcap");
    fs::write(&capture, loadgen::mix::write(Vec::new(), 100, 3).unwrap()).unwrap();
    let features = [
        "features",
        "pcap",
        capture.to_str().unwrap(),
        "-o",
        "nats://127.0.0.1:1/flows",
    ];
    for login in [&junk, &empty] {
        assert_hidden(&[&features[..], &["--nats-login", login]].concat());
    }
    fs::set_permissions(&junk, fs::Permissions::from_mode(0o640)).unwrap();
    let said = failure(&[&features[..], &["--nats-login", &junk]].concat());
    assert!(
        said.contains("chmod 600") && !said.contains("hunter2"),
        "{said}"
    );
}

#[test]
fn netbench_logs_no_token() {
    let folder = tempfile::tempdir().unwrap();
    let right = secret_file(folder.path(), "right", SECRET);
    let wrong = secret_file(folder.path(), "wrong", "hunter2-wrong-horse");
    let mut server = lowroad();
    server.args([
        "netbench",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--token-file",
        &right,
        "-vvv",
    ]);
    let mut server = server
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(server.stdout.take().unwrap());
    let mut ready = String::new();
    output.read_line(&mut ready).unwrap();
    let address = ready.trim().rsplit(' ').next().unwrap();
    let arguments = fs::read(format!("/proc/{}/cmdline", server.id())).unwrap();
    let run = |token: &str| -> Command {
        let mut client = lowroad();
        client.args(["netbench", "run", address, "--token-file", token, "-vvv"]);
        client.args(["--test", "tcp_rr", "--duration", "50ms", "--json"]);
        client
    };
    let taken = run(&right).output().unwrap();
    let refused = run(&wrong).output().unwrap();
    server.kill().unwrap();
    let mut said = Vec::new();
    output.read_to_end(&mut said).unwrap();
    server
        .stderr
        .take()
        .unwrap()
        .read_to_end(&mut said)
        .unwrap();
    server.wait().unwrap();
    assert!(taken.status.success() && !refused.status.success());
    for text in [
        arguments,
        said,
        taken.stdout,
        taken.stderr,
        refused.stdout,
        refused.stderr,
    ] {
        let text = String::from_utf8_lossy(&text);
        assert!(!text.contains("hunter2"), "{text}");
    }
}
