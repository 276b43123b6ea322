//! Programs in the evaluator's place whose replies do not follow the protocol.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use onnx_protocol::{
    Column, Evaluator, LoadError, Model, PROGRAM, Reply, Request, ScoreError, Search, VERSION,
};
use serde::Serialize;

/// A script cannot be started while another test's child has it open for writing.
static SCRIPT_LOCK: Mutex<()> = Mutex::new(());

const HELLO_REQUEST: Request = Request::Hello { protocol: VERSION };
const HELLO_REPLY: Reply = Reply::Hello { protocol: VERSION };
const LOADED_REPLY: Reply = Reply::Loaded { operators: 3 };

/// The frame of a message.
fn frame(message: &impl Serialize) -> Vec<u8> {
    let message = serde_json::to_vec(message).unwrap();
    let length = u32::try_from(message.len()).unwrap();
    [&length.to_le_bytes()[..], &message].concat()
}

/// A line of a script that sends these bytes.
fn send(bytes: &[u8]) -> String {
    let mut octal = String::new();
    for byte in bytes {
        write!(octal, "\\{byte:03o}").unwrap();
    }
    format!("printf '{octal}' >&0\n")
}

fn send_frames(replies: &[Reply]) -> String {
    send(&replies.iter().flat_map(frame).collect::<Vec<u8>>())
}

/// A line of a script that ends it once it has these requests and the beginning of the next: a program that ends
/// sooner would break off the request before.
fn end_after(requests: &[Request]) -> String {
    let length: usize = requests.iter().map(|request| frame(request).len()).sum();
    format!("head -c {} >/dev/null\nexit 7", length + 1)
}

fn model() -> Model {
    let column = Column {
        id: "flow.v1/packets".to_owned(),
        is_integer: true,
        replaces_null: true,
    };
    let classes = vec!["a".to_owned(), "b".to_owned()];
    Model::new(Path::new("x.onnx"), vec![column], false, classes, 0.5)
}

/// Loads a model with a script in the evaluator's place.
fn with<T>(script: &str, test: impl FnOnce(Result<Evaluator, LoadError>) -> T) -> T {
    let _guard = SCRIPT_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join(PROGRAM);
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    test(Evaluator::load(&Search::in_folder_of(&program), model()))
}

fn refusal(script: &str) -> LoadError {
    with(script, |loaded| loaded.unwrap_err())
}

/// Reads requests until the socket is closed, so that it is the replies that end the session.
const WAIT: &str = "exec cat >/dev/null";
const OVERSIZED_FRAME: &[u8] = b"\xff\xff\xff\xff";
const TRUNCATED_FRAME: &[u8] = b"\x09\0\0\0{";

#[test]
fn other_programs_are_missing_evaluators() {
    let other = Reply::Hello {
        protocol: VERSION + 1,
    };
    for (script, why) in [
        (
            send_frames(&[other]) + WAIT,
            "speaks version 2 of the protocol, and version 1 is needed",
        ),
        (
            send_frames(&[LOADED_REPLY]) + WAIT,
            "does not speak the protocol",
        ),
        (
            send(OVERSIZED_FRAME) + WAIT,
            "4294967295 bytes is longer than",
        ),
        (send(b"\x02\0\0\0{}") + WAIT, "no message of this protocol"),
        (
            send(TRUNCATED_FRAME) + &end_after(&[]),
            "ended before it answered (exit status: 7)",
        ),
        (
            "kill -9 $$".to_owned(),
            "ended before it answered (signal: 9 (SIGKILL))",
        ),
    ] {
        let error = refusal(&script);
        let LoadError::Missing(missing) = error else {
            panic!("{error}");
        };
        assert!(missing.what.contains(why), "{missing:?}");
        assert!(missing.remedy.contains("beside lowroad"), "{missing:?}");
    }
}

#[test]
fn broken_replies_to_a_model_refuse_it() {
    let hello = send_frames(&[HELLO_REPLY]);
    for (rest, why) in [
        (send(OVERSIZED_FRAME) + WAIT, "is longer than"),
        (
            send(TRUNCATED_FRAME) + &end_after(&[HELLO_REQUEST]),
            "ended early (exit status: 7)",
        ),
        (
            send_frames(&[Reply::Scored]) + WAIT,
            "does not follow the protocol",
        ),
    ] {
        let error = refusal(&(hello.clone() + &rest));
        assert!(matches!(error, LoadError::Invalid(_)), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    let unreadable = Reply::Unreadable { errno: 2 };
    let error = refusal(&(send_frames(&[HELLO_REPLY, unreadable]) + WAIT));
    assert!(matches!(error, LoadError::Unreadable(_)), "{error}");
    assert!(error.to_string().contains("No such file"), "{error}");
}

#[test]
fn broken_replies_to_a_batch_are_kept_as_an_error() {
    // Behind the place of the one probability in the memory file, a class that is not there.
    let class = "printf '\\0\\0\\0\\0\\0\\0\\0\\0\\2\\0\\0\\0'\n";
    let loaded = send_frames(&[HELLO_REPLY, LOADED_REPLY]);
    let scored = send_frames(&[Reply::Scored]) + WAIT;
    for (before, reply, why) in [
        ("", send(OVERSIZED_FRAME) + WAIT, "is longer than"),
        (
            "",
            send(TRUNCATED_FRAME) + &end_after(&[HELLO_REQUEST, Request::Load(model())]),
            "ended early (exit status: 7)",
        ),
        (
            "",
            send_frames(&[HELLO_REPLY]) + WAIT,
            "does not follow the protocol",
        ),
        ("", scored.clone(), "failed to fill whole buffer"),
        (class, scored, "does not follow the protocol"),
    ] {
        with(&(before.to_owned() + &loaded + &reply), |loaded| {
            let mut evaluator = loaded.unwrap();
            assert_eq!(evaluator.operators(), 3);
            let first = evaluator.score(&[vec![1.0]]).unwrap_err();
            assert!(matches!(first, ScoreError::Ended(_)), "{first:?}");
            assert!(first.to_string().contains(why), "{first}");
            assert_eq!(evaluator.score(&[vec![1.0]]), Err(first));
        });
    }
}

#[test]
fn a_program_that_is_not_one_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join(PROGRAM);
    fs::write(&program, "no program").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let error = Evaluator::load(&Search::in_folder_of(&program), model()).unwrap_err();
    assert!(error.to_string().contains("does not start"), "{error}");
}
