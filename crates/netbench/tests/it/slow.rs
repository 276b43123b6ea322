//! What takes long, or would take for ever: transactions that stand still, and messages in small pieces.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::thread;
use std::time::Duration;

use netbench::client::Session;
use netbench::{End, MAX_MESSAGE, Outcome, Spec, Test};
use serde_json::json;

use crate::wire::{drip, greeting, receive, send};

/// A server for one test, which does this with each of its connections. They are numbered as they come.
fn server(flow: fn(usize, TcpStream)) -> String {
    let control = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = control.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let (mut client, _) = control.accept().unwrap();
        client.write_all(&greeting()).unwrap();
        client.read_exact(&mut [0; 8]).unwrap();
        let challenge = json!({ "bytes": vec![0; 32], "token": false });
        send(&client, &json!({ "Challenge": challenge }));
        receive(&mut client);
        let admitted = json!({ "answer": null, "path_mtu": null, "max_duration_us": 60_000_000 });
        send(&client, &json!({ "Admitted": admitted }));
        receive(&mut client);
        let data = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = data.local_addr().unwrap().port();
        thread::spawn(move || accept(&data, flow));
        let ready = json!({ "ports": [port], "cookie": vec![0; 16] });
        send(&client, &json!({ "Ready": ready }));
        // The window is opened, and closed.
        receive(&mut client);
        receive(&mut client);
        let ended = json!({ "end": End::default(), "fault": null });
        send(&client, &json!({ "Ended": ended }));
        // Until the client has heard it.
        let _end = client.read(&mut [0]);
    });
    address
}

fn accept(data: &TcpListener, flow: fn(usize, TcpStream)) {
    for (number, stream) in data.incoming().enumerate() {
        let mut stream = stream.unwrap();
        thread::spawn(move || {
            let mut cookie = [0; 16];
            stream.read_exact(&mut cookie).unwrap();
            stream.write_all(&cookie).unwrap();
            flow(number, stream);
        });
    }
}

fn measured(at: &str, spec: &Spec) -> Outcome {
    let mut session = Session::open(at, None).unwrap();
    let outcome = session.measure(spec, &mut |_| ControlFlow::Continue(()));
    outcome.unwrap()
}

/// One request that has no answer yet after all this time, of which parts passed.
fn assert_unanswered(outcome: &Outcome) {
    assert_eq!((outcome.near.messages, outcome.unfinished), (0, 1));
    let why = outcome.ended_early.as_deref();
    assert_eq!(why, Some("none of 1 requests was answered"), "{outcome:?}");
}

/// Longer than a test goes on in which nothing moves.
fn long() -> Spec {
    Spec {
        warmup_us: 0,
        ..Spec::new(Test::TcpRr, Duration::from_secs(11))
    }
}

#[test]
fn stalled_transaction_is_unfinished() {
    let at = server(|number, mut stream| {
        let mut request = [0];
        while stream.read_exact(&mut request).is_ok() {
            // Of two flows one has no answer to its first.
            if number == 0 && stream.write_all(&request).is_err() {
                break;
            }
        }
    });
    let spec = Spec {
        flows: 2,
        warmup_us: 0,
        ..Spec::new(Test::TcpRr, Duration::from_secs(1))
    };
    let outcome = measured(&at, &spec);
    assert_eq!((outcome.unfinished, outcome.lost), (1, 0));
    assert_eq!(outcome.ended_early, None);
    // It was waited for after the window, too, and has no time.
    assert!(outcome.bounds.max() >= 3_000_000_000, "{outcome:?}");
    let latency = outcome.latency.as_ref().unwrap();
    assert!(latency.max() < 3_000_000_000, "{outcome:?}");
    let done = latency.count();
    let rate = done as f64 / (outcome.near.window_ns as f64 / 1e9);
    assert!(done > 0 && (outcome.transactions_per_s().unwrap() - rate).abs() < 1e-3);
    let said = netbench::json::outcome(&outcome, false);
    assert_eq!(said["unfinished"], 1);
    assert_eq!(said["latency_us"]["count"], done);
    assert!(said["latency_at_least_us"]["p50"].is_number());
}

#[test]
fn pieces_of_response_are_progress() {
    let at = server(|_, mut stream| {
        stream.read_exact(&mut [0]).unwrap();
        drip(stream);
    });
    let spec = Spec {
        response: MAX_MESSAGE,
        ..long()
    };
    let outcome = measured(&at, &spec);
    assert_unanswered(&outcome);
}

#[test]
fn pieces_of_request_are_progress() {
    let at = server(|_, mut stream| {
        let mut room = vec![0; 64 << 10];
        while stream.read(&mut room).is_ok_and(|read| read > 0) {
            thread::sleep(Duration::from_millis(100));
        }
    });
    let spec = Spec {
        request: MAX_MESSAGE,
        ..long()
    };
    let outcome = measured(&at, &spec);
    assert_unanswered(&outcome);
}

#[test]
fn rate_below_one_in_ten_seconds_has_a_result() {
    let at = server(|_, mut stream| {
        let mut request = [0];
        while stream.read_exact(&mut request).is_ok() && stream.write_all(&request).is_ok() {}
    });
    // The first is due before the window, the second in it, and between the two nothing moves.
    let spec = Spec {
        rate: Some(0.09),
        warmup_us: 0,
        ..Spec::new(Test::TcpRr, Duration::from_secs(12))
    };
    let outcome = measured(&at, &spec);
    assert_eq!(outcome.ended_early, None, "{outcome:?}");
    assert!(outcome.latency.as_ref().unwrap().count() > 0, "{outcome:?}");
}

#[test]
fn slow_server_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let begun = [&greeting()[..], &60_000_u32.to_le_bytes()].concat();
        stream.write_all(&begun).unwrap();
        drip(stream);
    });
    let why = Session::open(&at, None).unwrap_err().to_string();
    assert!(why.contains("timed out"), "{why}");
}
