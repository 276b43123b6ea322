//! The unix socket with real clients, good and bad.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use control::unix::Server;
use control::{Client, Error, Kind, Limits, Request, StartError};
use serde::Deserialize;
use serde_json::{Value, json};

fn answer(request: &Request) -> Result<Value, Error> {
    #[derive(Deserialize)]
    struct Add {
        a: u32,
        b: u32,
    }
    match request.method.as_str() {
        "add" => {
            let Add { a, b } = request.params()?;
            Ok(json!(a + b))
        }
        "panic" => panic!("a handler's mistake"),
        other => Err(Error::unknown_method(other)),
    }
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a writable temporary folder");
    let path = folder.path().join("relay.sock");
    (folder, path)
}

fn line_after(path: &Path, bytes: &[u8]) -> Value {
    let mut stream = BufReader::new(UnixStream::connect(path).expect("served"));
    stream
        .get_mut()
        .write_all(bytes)
        .expect("read by the server");
    let mut line = String::new();
    stream.read_line(&mut line).expect("an answer");
    serde_json::from_str(&line).expect("JSON")
}

#[test]
fn requests_are_answered_in_order_on_one_connection() {
    let (_folder, path) = place();
    let server = Server::start(&path, answer).unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o660
    );
    let mut client = Client::connect(server.path()).unwrap();
    for a in 0..100 {
        let sum = client.call("add", json!({ "a": a, "b": 1 })).unwrap();
        assert_eq!(sum, json!(a + 1));
    }
    let error = client.call("fly", json!({})).unwrap_err();
    assert_eq!(error, Error::unknown_method("fly"));
    let error = client.call("add", json!({ "a": 1 })).unwrap_err();
    assert_eq!(error.kind, Kind::BadRequest);
    assert_eq!(error.message, "add: missing field `b`");
    let error = client.call("panic", json!({})).unwrap_err();
    assert_eq!(error.kind, Kind::Failed);
    assert_eq!(client.call("add", json!({ "a": 1, "b": 1 })), Ok(json!(2)));
}

#[test]
fn many_clients_at_once_each_get_their_own_answers() {
    let (_folder, path) = place();
    let limits = Limits {
        clients: 4,
        eviction_delay: Duration::from_secs(60),
        ..Limits::default()
    };
    let _server = Server::with_limits(&path, limits, answer).unwrap();
    thread::scope(|scope| {
        for a in 0..32 {
            let path = &path;
            scope.spawn(move || {
                let mut client = Client::connect(path).unwrap();
                for b in 0..20 {
                    let sum = client.call("add", json!({ "a": a, "b": b })).unwrap();
                    assert_eq!(sum, json!(a + b));
                }
            });
        }
    });
}

#[test]
fn bad_requests_get_one_error() {
    let (_folder, path) = place();
    let _server = Server::start(&path, answer).unwrap();
    for garbage in [
        &b"hello\n"[..],
        b"\n",
        b"\xff\xfe\n",
        b"[]\n",
        b"{\"method\": 5}\n",
        b"{\"method\": \"add\", \"parms\": {}}\n",
    ] {
        assert_eq!(line_after(&path, garbage)["error"]["kind"], "bad-request");
    }
    let mut oversized = vec![b'x'; 10_000_000];
    oversized.extend_from_slice(b"\n{\"method\": \"add\", \"params\": {\"a\": 2, \"b\": 3}}\n");
    let mut stream = BufReader::new(UnixStream::connect(&path).unwrap());
    stream.get_mut().write_all(&oversized).unwrap();
    let mut lines = stream.lines().map(|line| line.unwrap());
    assert_eq!(
        lines.next().unwrap(),
        "{\"error\":{\"kind\":\"too-large\",\"message\":\"the request is longer than 1048576 bytes\"}}"
    );
    assert_eq!(lines.next().unwrap(), "{\"result\":5}");
}

#[test]
fn unfinished_request_times_out() {
    let (_folder, path) = place();
    let limits = Limits {
        arrival: Duration::from_millis(20),
        clients: 1,
        ..Limits::default()
    };
    let _server = Server::with_limits(&path, limits, answer).unwrap();
    let mut slow = UnixStream::connect(&path).unwrap();
    slow.write_all(b"{\"method\"").unwrap();
    let mut heard = String::new();
    slow.read_to_string(&mut heard).unwrap();
    assert!(
        heard.contains("no whole request arrived in time"),
        "{heard}"
    );
    let mut next = Client::connect(&path).unwrap();
    assert_eq!(next.call("add", json!({ "a": 1, "b": 1 })), Ok(json!(2)));
}

#[test]
fn idle_client_times_out() {
    let (_folder, path) = place();
    let limits = Limits {
        idle: Duration::from_millis(20),
        ..Limits::default()
    };
    let _server = Server::with_limits(&path, limits, answer).unwrap();
    let mut heard = String::new();
    let mut silent = UnixStream::connect(&path).unwrap();
    silent.read_to_string(&mut heard).unwrap();
    assert!(
        heard.contains("no whole request arrived in time"),
        "{heard}"
    );
}

/// More than there are places.
const CLIENTS: usize = 300;

#[test]
fn incomplete_requests_block_nobody() {
    let (_folder, path) = place();
    let (begun, working) = mpsc::channel();
    let (finish, finished) = mpsc::channel();
    let finished = Mutex::new(finished);
    // No client leaves because of a timeout.
    let limits = Limits {
        arrival: Duration::from_secs(600),
        ..Limits::default()
    };
    let _server = Server::with_limits(&path, limits, move |request: &Request| {
        if request.method == "work" {
            begun.send(()).map_err(Error::failed)?;
            finished.lock().unwrap().recv().map_err(Error::failed)?;
        }
        answer(request).or_else(|_| Ok(json!("worked")))
    })
    .unwrap();
    let mut worker = Client::connect(&path).unwrap();
    thread::scope(|scope| {
        let work = scope.spawn(|| worker.call("work", json!({})));
        working.recv().unwrap();
        let half = || {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(b"{\"method\"").unwrap();
            stream
        };
        let mut crowd: Vec<_> = (0..CLIENTS).map(|_| half()).collect();
        let mut client = Client::connect(&path).unwrap();
        assert_eq!(client.call("add", json!({ "a": 1, "b": 1 })), Ok(json!(2)));
        let mut heard = String::new();
        crowd[0].read_to_string(&mut heard).unwrap();
        assert!(heard.contains("too many clients at once"), "{heard}");
        finish.send(()).unwrap();
        assert_eq!(work.join().unwrap(), Ok(json!("worked")));
    });
}

#[test]
fn only_the_socket_of_a_dead_process_is_replaced() {
    let (_folder, path) = place();
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a closed listener leaves its file");
    let server = Server::start(&path, answer).unwrap();
    let error = Server::start(&path, answer).unwrap_err();
    assert!(matches!(error, StartError::InUse(_)), "{error}");
    assert!(Client::connect(&path).is_ok(), "the first still serves");

    drop(server);
    assert!(!path.exists());
    assert_eq!(Client::connect(&path).unwrap_err().kind, Kind::Unreachable);

    fs::write(&path, "notes").unwrap();
    let error = Server::start(&path, answer).unwrap_err();
    assert!(matches!(error, StartError::NotASocket(_)), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "notes");
}
