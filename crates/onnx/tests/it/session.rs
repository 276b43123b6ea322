//! What the evaluator does with requests that do not follow the protocol.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use onnx_protocol::frame::{self, MAX_MESSAGE};
use onnx_protocol::memory::Memory;
use onnx_protocol::{Column, Model, Reply, Request, VERSION};

use super::stored_models;

const HELLO: Request = Request::Hello { protocol: VERSION };

struct Session {
    child: Child,
    socket: UnixStream,
}

impl Session {
    fn start() -> Self {
        let (socket, theirs) = UnixStream::pair().unwrap();
        let memory = Memory::new().unwrap();
        let memory = memory.as_fd().try_clone_to_owned().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_lowroad-onnx"))
            .stdin(OwnedFd::from(theirs))
            .stdout(memory)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child, socket }
    }

    fn ask(&self, request: &Request) -> Reply {
        frame::write(&self.socket, request).unwrap();
        frame::read(&mut &self.socket).unwrap()
    }

    fn load(&self) -> Reply {
        self.ask(&Request::Load(model()))
    }

    /// Sends no more; the exit status and what was printed.
    fn end(self) -> (Option<i32>, String) {
        self.socket.shutdown(Shutdown::Write).unwrap();
        let output = self.child.wait_with_output().unwrap();
        let mut rest = Vec::new();
        let _reset = (&self.socket).read_to_end(&mut rest);
        assert!(rest.is_empty(), "{rest:?}");
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    }

    /// The evaluator ends with one line.
    fn assert_refused(self, why: &str) {
        let (status, said) = self.end();
        assert_eq!(status, Some(1), "{said}");
        assert!(
            said.starts_with("lowroad-onnx: ") && said.contains(why),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

fn model() -> Model {
    let column = |number: u32| Column {
        id: format!("flow.v1/{number}"),
        is_integer: false,
        replaces_null: true,
    };
    let classes = ["0", "1"].map(str::to_owned).to_vec();
    let file = stored_models::folder().join("plain-2.onnx");
    Model::new(&file, (0..6).map(column).collect(), true, classes, 0.5)
}

#[test]
fn broken_frames_end_a_session() {
    let too_long = u32::try_from(MAX_MESSAGE + 1).unwrap().to_le_bytes();
    for (bytes, why) in [
        (&b"\x05"[..], "a frame ends early"),
        (b"\x05\0\0\0{\"", "a frame ends early"),
        (&too_long, "is longer than"),
        (b"\xff\xff\xff\xff", "is longer than"),
        (b"\x02\0\0\0{}", "no message of this protocol"),
    ] {
        let first = Session::start();
        (&first.socket).write_all(bytes).unwrap();
        first.assert_refused(why);
        let later = Session::start();
        assert_eq!(later.ask(&HELLO), Reply::Hello { protocol: VERSION });
        (&later.socket).write_all(bytes).unwrap();
        later.assert_refused(why);
    }
}

#[test]
fn another_version_is_answered_and_refused() {
    let session = Session::start();
    let protocol = VERSION + 1;
    let reply = session.ask(&Request::Hello { protocol });
    assert_eq!(reply, Reply::Hello { protocol: VERSION });
    session.assert_refused("speaks version 2 of the protocol, and version 1 is needed");
}

#[test]
fn requests_out_of_turn_end_a_session() {
    let before = Session::start();
    frame::write(&before.socket, &Request::Load(model())).unwrap();
    before.assert_refused("out of turn");
    for requests in [
        &[Request::Score { rows: 1 }][..],
        &[HELLO],
        &[Request::Load(model()), Request::Load(model())],
    ] {
        let session = Session::start();
        session.ask(&HELLO);
        let (last, first) = requests.split_last().unwrap();
        for request in first {
            let reply = session.ask(request);
            assert!(matches!(reply, Reply::Loaded { .. }), "{reply:?}");
        }
        frame::write(&session.socket, last).unwrap();
        session.assert_refused("out of turn");
    }
}

#[test]
fn batches_that_are_not_there_end_a_session() {
    for (rows, why) in [(10, "fill"), (1 << 40, "larger"), (usize::MAX, "larger")] {
        let session = Session::start();
        session.ask(&HELLO);
        session.load();
        frame::write(&session.socket, &Request::Score { rows }).unwrap();
        session.assert_refused(why);
    }
}

#[test]
fn a_closed_socket_ends_a_session() {
    let session = Session::start();
    assert_eq!(session.end(), (Some(0), String::new()));
    let session = Session::start();
    session.ask(&HELLO);
    session.load();
    frame::write(&session.socket, &Request::Bye).unwrap();
    assert_eq!(session.end(), (Some(0), String::new()));
    let Session { mut child, socket } = Session::start();
    drop(socket);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn only_programs_start_a_session() {
    let run = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_lowroad-onnx"))
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let output = run(&[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("standard input is not a socket"), "{said}");
    assert_eq!(run(&["--unknown"]).status.code(), Some(2));
    let version = run(&["--version"]).stdout;
    assert!(version.starts_with(b"lowroad-onnx "), "{version:?}");
    assert!(run(&["--help"]).status.success());
}
