//! The real binary's HTTP interface: off without a token file, and to nobody without the token.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::relay_server::{Relay, STREAM, command, errors};

const TOKEN: &str = "correct-horse-battery-staple";
const ADDRESS: &str = "127.0.0.1:8640";

/// The setting, which continues the section `[relay]`.
fn http(folder: &Path) -> String {
    let token = folder.join("token");
    format!("http = {{ listen = \"{ADDRESS}\", token_file = {token:?} }}\n{STREAM}")
}

pub(crate) fn with_token(mode: u32) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    fs::write(&path, format!("{TOKEN}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    let streams = http(folder.path());
    (folder, streams)
}

/// A request as a client with the token sends it, headers replaced by `changes` or, where those are
/// empty, left out; the status and the body.
pub(crate) fn ask(
    relay: &Relay,
    line: &str,
    changes: &[(&str, &str)],
    body: &str,
) -> (u16, String) {
    let token = format!("Bearer {TOKEN}");
    let length = body.len().to_string();
    let mut text = format!("{line} HTTP/1.1\r\nConnection: close\r\n");
    for (name, usual) in [
        ("Host", ADDRESS),
        ("Authorization", &token),
        ("Content-Type", "application/json"),
        ("Content-Length", &length),
    ] {
        let changed = changes.iter().find(|(changed, _)| *changed == name);
        let value = changed.map_or(usual, |(_, value)| value);
        if !value.is_empty() {
            text += &format!("{name}: {value}\r\n");
        }
    }
    let answer = relay.home.run(|| {
        let mut stream = TcpStream::connect(ADDRESS).unwrap();
        stream
            .write_all(format!("{text}\r\n{body}").as_bytes())
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

fn result(body: &str) -> Value {
    serde_json::from_str::<Value>(body).unwrap()["result"].take()
}

#[test]
fn without_a_token_file_it_is_off_and_says_so() {
    if !sys::require::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let streams = http(folder.path());
    let relay = Relay::serve_in(folder, "http-off", &streams);
    assert!(!relay.ready.contains("http"), "{}", relay.ready);
    let refused = relay.home.run(|| TcpStream::connect(ADDRESS)).is_err();
    assert!(refused, "something listens on {ADDRESS}");
    relay.relays(1);
    let said = relay.end();
    assert!(
        said.contains("HTTP is off: there is no token file"),
        "{said}"
    );
}

#[test]
fn a_token_that_others_can_read_is_refused() {
    let (folder, streams) = with_token(0o644);
    let output = command(folder.path(), "relay", &streams).output().unwrap();
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("token: others can open the file; chmod 600 it"),
        "{said}"
    );
}

#[test]
fn the_token_opens_methods_and_metrics() {
    if !sys::require::root() {
        return;
    }
    let (folder, streams) = with_token(0o600);
    let relay = Relay::serve_in(folder, "http-on", &streams);
    assert!(
        relay.ready.contains(&format!("http {ADDRESS}")),
        "{}",
        relay.ready
    );

    let (status, body) = ask(&relay, "POST /v1/stream.list", &[], "");
    assert_eq!((status, &result(&body)[0]["name"]), (200, &json!("good")));
    let more = r#"{"stream": "good", "subscriber": {"name": "b", "to": "127.0.0.1:6001"}}"#;
    assert_eq!(ask(&relay, "POST /v1/subscriber.add", &[], more).0, 200);
    let listed = relay.ask(&["subscriber", "list", "good"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert_eq!(listed, "a  127.0.0.1:6000\nb  127.0.0.1:6001\n");

    let (status, metrics) = ask(&relay, "GET /metrics", &[], "");
    assert_eq!(status, 200);
    assert!(metrics.contains("{stream=\"good\"}"), "{metrics}");
    let told = relay.ask(&["metrics"]);
    assert_eq!(String::from_utf8(told.stdout).unwrap(), metrics);
    strangers_are_turned_away(&relay);
}

fn strangers_are_turned_away(relay: &Relay) {
    let list = "POST /v1/stream.list";
    for (line, changes, expected) in [
        (list, &[("Authorization", "")][..], 401),
        ("GET /metrics", &[("Authorization", "")], 401),
        (
            list,
            &[("Authorization", "Bearer correct-horse-battery-stable")],
            401,
        ),
        (list, &[("Host", "rebound.example:8640")], 421),
        (list, &[("Host", "127.0.0.1:80")], 421),
        (list, &[("Host", "localhost:8640")], 200),
        (list, &[("Content-Type", "text/plain")], 415),
        (list, &[("Content-Type", "")], 415),
        ("GET /v1/stream.list", &[], 405),
        ("POST /v1/fly", &[], 404),
    ] {
        let (status, body) = ask(relay, line, changes, "{}");
        assert_eq!(status, expected, "{line} {changes:?}: {body}");
        assert!(
            expected == 200 || !body.contains("127.0.0.1:6000"),
            "{body}"
        );
    }
    let (status, body) = ask(relay, "POST /v1/stream.remove", &[], "good");
    assert_eq!(status, 400, "{body}");
}
