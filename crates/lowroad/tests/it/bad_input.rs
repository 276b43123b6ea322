//! The real binary and what it must not be brought down by: garbage, strangers, lost interfaces.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use netdev::Netlink;

use crate::relay_server::{Relay, STREAM, command, errors, lowroad};

/// A stream whose subscriber is behind a device that goes away.
const FAR: &str = "[[stream]]\nname = \"far\"\nlisten = \"127.0.0.1:5005\"\n\
    datapath = \"recv\"\nsource = \"any\"\n\
    [[stream.subscriber]]\nname = \"b\"\nto = \"192.0.2.2:6000\"\n";

#[test]
fn garbage_is_one_clear_line_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("relay.toml");
    for (garbage, line, what) in [
        ("\u{0}\u{1}\u{2}".to_owned(), 1, ""),
        ("[[stream]\n".to_owned(), 1, ""),
        (STREAM.replace("127.0.0.1:5004", "nowhere"), 3, "address"),
        (
            STREAM.replace("recv", "teleport"),
            4,
            "no datapath \"teleport\"",
        ),
        (STREAM.replace("source", "sauce"), 5, "sauce"),
        (format!("{STREAM}{STREAM}"), 11, "taken"),
        (
            STREAM.replace("127.0.0.1:6000", "127.0.0.1:5004"),
            7,
            "loop",
        ),
        ("a = [".repeat(5000), 1, ""),
    ] {
        fs::write(&path, &garbage).unwrap();
        let output = lowroad()
            .args(["relay", "serve", "--config"])
            .arg(&path)
            .output()
            .unwrap();
        let said = errors(&output);
        let shown: String = garbage.chars().take(80).collect();
        assert_eq!(output.status.code(), Some(2), "{shown}: {said}");
        let place = format!("{}:{line}: ", path.display());
        assert!(
            said.contains(&place) && said.contains(what),
            "{shown}: {said}"
        );
        assert_eq!(said.lines().count(), 1, "{shown}: {said}");
    }
    let nowhere = format!("[relay]\ncontrol = \"/dev/null/x\"\n{STREAM}");
    fs::write(&path, nowhere).unwrap();
    let output = lowroad()
        .args(["relay", "serve", "--config"])
        .arg(&path)
        .output()
        .unwrap();
    let said = errors(&output);
    assert_eq!(said.matches("os error").count(), 1, "{said}");
    let missing = lowroad()
        .args(["relay", "serve", "--config", "/nonexistent.toml"])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(2));
}

#[test]
fn without_rights_it_says_how_to_get_them() {
    if !sys::require::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (program, config) = (folder.path().join("lowroad"), folder.path().join("r.toml"));
    fs::copy(env!("CARGO_BIN_EXE_lowroad"), &program).unwrap();
    fs::write(&config, STREAM.replace("recv", "xdp")).unwrap();
    for path in [folder.path(), &program, &config] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(path, mode).unwrap();
    }
    let output = Command::new(&program)
        .args(["relay", "serve", "--config"])
        .arg(&config)
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("sudo"), "{said}");
}

#[test]
fn a_serving_relay_takes_everything_and_keeps_relaying() {
    if !sys::require::root() {
        return;
    }
    let relay = Relay::serve("bad", &format!("{STREAM}{FAR}"));
    relay.relays(1);
    strangers_are_told(&relay);
    a_taken_port_is_named(&relay);
    an_endless_request_is_refused(&relay);
    half_open_clients_do_no_harm(&relay);
    a_lost_interface_is_explained(&relay);
    relay.relays(9);
}

fn strangers_are_told(relay: &Relay) {
    for words in [
        &["stream", "remove", "nobody"][..],
        &["subscriber", "add", "nobody", "x", "192.0.2.9:1"],
        &["subscriber", "remove", "nobody", "x"],
        &["subscriber", "list", "nobody"],
        &["switch", "nobody", "--datapath", "mmsg"],
        &["explain", "nobody"],
    ] {
        let output = relay.ask(words);
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains("no stream \"nobody\""), "{words:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
    }
    let output = relay.ask(&["subscriber", "remove", "good", "nobody"]);
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    relay.relays(2);
}

fn a_taken_port_is_named(relay: &Relay) {
    let mut second = command(relay.folder.path(), "second", STREAM);
    let output = relay.home.run(|| second.output().unwrap());
    let said = errors(&output);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("127.0.0.1:5004 is in use"), "{said}");
    relay.relays(3);
}

fn an_endless_request_is_refused(relay: &Relay) {
    let mut client = UnixStream::connect(relay.socket()).unwrap();
    let mut body = b"{\"method\":\"".to_vec();
    body.resize(10 << 20, b'x');
    body.push(b'\n');
    // The relay may hang up before it has read everything.
    let _written = client.write_all(&body);
    let mut answer = [0; 512];
    let length = client.read(&mut answer).unwrap_or(0);
    let answer = String::from_utf8_lossy(&answer[..length]);
    assert!(answer.contains("too-large"), "{answer}");
    assert!(relay.ask(&["counters"]).status.success());
    relay.relays(4);
}

fn half_open_clients_do_no_harm(relay: &Relay) {
    let connect = |_| {
        let mut client = UnixStream::connect(relay.socket()).unwrap();
        client.write_all(b"{\"method\":").unwrap();
        client
    };
    let clients: Vec<_> = (0..200).map(connect).collect();
    relay.relays(5);
    drop(clients);
    assert!(relay.ask(&["counters"]).status.success());
}

fn a_lost_interface_is_explained(relay: &Relay) {
    let remove = || {
        let mut netlink = Netlink::new().unwrap();
        let index = netlink.link_by_name("near").unwrap().index;
        netlink.delete_link(index).unwrap();
    };
    relay.home.run(remove);
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let output = relay.ask(&["explain", "far"]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if said.contains("no route to 192.0.2.2") || said.contains("down or gone") {
            break;
        }
        assert!(Instant::now() < deadline, "{said}");
        std::thread::sleep(Duration::from_millis(20));
    }
    relay.relays(6);
}
