//! The control socket on damaged requests, from ten fixed seeds: one answer a line, and it serves
//! on.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use control::unix::Server;
use control::{Error, Request};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::Value;

const GOOD: &[u8] = br#"{"method": "echo", "params": {"a": [1, -2.5e3, "\u00e9", null, {}]}}"#;

fn ask(stream: &mut BufReader<UnixStream>, line: &[u8]) -> Value {
    stream.get_mut().write_all(&[line, b"\n"].concat()).unwrap();
    let mut answer = String::new();
    stream.read_line(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap()
}

#[test]
fn every_line_gets_one_answer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fuzz.sock");
    let echo = |request: &Request| -> Result<Value, Error> { Ok(request.params.clone()) };
    let _server = Server::start(&path, echo).unwrap();
    let change = (any::<Index>(), any::<u8>());
    let changes = prop::collection::vec(change, 1..8);
    for seed in 0..10 {
        let mut stream = BufReader::new(UnixStream::connect(&path).unwrap());
        let stream = std::cell::RefCell::new(&mut stream);
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
        let config = Config {
            failure_persistence: None,
            ..Config::with_cases(200 * sys::require::fuzz())
        };
        let result = TestRunner::new_with_rng(config, rng).run(&changes, |changes| {
            let mut line = GOOD.to_vec();
            for (at, byte) in changes {
                line[at.index(GOOD.len())] = if byte == b'\n' { b' ' } else { byte };
            }
            let mut stream = stream.borrow_mut();
            let answer = ask(&mut stream, &line);
            prop_assert!(answer["result"].is_object() || answer["error"]["kind"] == "bad-request");
            // Were an answer too many or too few on its way, this one would not be a match.
            let whole = ask(&mut stream, GOOD);
            prop_assert_eq!(&whole["result"]["a"][0], 1);
            Ok(())
        });
        assert!(result.is_ok(), "seed {seed}: {result:?}");
    }
}
