//! Servers that accept no connection, temporarily or in general.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use replicate::ship::nats::{Error, Publisher};
use replicate::ship::tcp::{KeyFiles, make};
use test_support::nats_server::wait_until;

use crate::common::start;
use crate::nats_peers::{STEP, options, single, write};

const PLAIN: &str = r#"{"headers":true,"max_payload":1048576}"#;
const TLS_INFO: &str = r#"{"headers":true,"max_payload":1048576,"tls_required":true}"#;

/// Starts a server that sends this information, and this answer to any request.
fn answering(info: &'static str, answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("nats://{}/APP", listener.local_addr().unwrap());
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            // A client that is gone has received its answer.
            let _ = client.write_all(format!("INFO {info}\r\n").as_bytes());
            let _ = client.read_exact(&mut [0]);
            let _ = client.write_all(format!("-ERR '{answer}'\r\n").as_bytes());
            // Closing with unread bytes would reset the connection and discard the answer.
            let _ = client.read_to_end(&mut Vec::new());
        }
    });
    url
}

#[test]
fn a_server_that_has_no_room_for_another_connection_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let (log, keys) = (folder.path().join("log"), folder.path().join("keys"));
    write(&log, [start()]);
    let made = KeyFiles {
        server: vec!["127.0.0.1".to_owned()],
        clients: vec!["edge".to_owned()],
        years: 1,
    };
    make(&keys, &made).unwrap();
    let busy = "maximum connections exceeded";
    let plain = options(&answering(PLAIN, busy), None);
    let mut encrypted = options(&answering(TLS_INFO, busy), None);
    encrypted.tls(Some(&keys.join("ca.pem")), None).unwrap();
    for (server, what) in [(plain, busy), (encrypted, "too many connections")] {
        let mut source = Publisher::new(&log, server, single()).unwrap();
        wait_until(what, || {
            let waiting = source.step(STEP).unwrap().waiting;
            waiting.is_some_and(|waiting| waiting.contains(what))
        });
    }
}

#[test]
fn a_server_that_takes_no_such_client_is_not() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), [start()]);
    for answer in [
        "Authorization Violation",
        "attempted to connect to route port",
    ] {
        let server = options(&answering(PLAIN, answer), None);
        let mut source = Publisher::new(folder.path(), server, single()).unwrap();
        let mut failed = None;
        wait_until(answer, || {
            failed = source.step(STEP).err();
            failed.is_some()
        });
        let error = failed.unwrap();
        let refused = matches!(error, Error::Nats(nats::Error::Refused { .. }));
        assert!(refused, "{error}");
    }
}
