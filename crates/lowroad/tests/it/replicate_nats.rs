//! The real binary ships a log over a NATS server, and the publisher is killed in the middle.

use std::path::Path;

use replicate::log::{Durability, Error, Options, Writer};
use replicate::record::{Change, Entry, File, Origin};
use test_support::nats_server::{Server, wait_until};

use crate::replicate_command::{Program, lowroad, on_ext4, records};

/// The exit code, and what is said on standard error.
fn refused(arguments: &[&str], folder: &Path) -> (Option<i32>, String) {
    let output = lowroad(&[&["replicate"][..], arguments].concat(), folder);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

const ROOT: File = File {
    inode: 2,
    generation: 7,
};

/// Appends records up to this number, an epoch last.
fn write(folder: &Path, until: u64) {
    let options = Options {
        durability: Durability::OnRequest,
        ..Options::default()
    };
    let mut writer = open(folder, options);
    while writer.number() < until {
        let number = writer.number() + 1;
        let entry = match number {
            1 => Entry::Start { root: ROOT },
            number if number % 10 == 0 => Entry::Epoch { number },
            number => Entry::Change(Change::Data {
                file: ROOT,
                offset: number,
                bytes: vec![7; 2000],
                origin: Origin::Exact,
            }),
        };
        writer.append(number, entry).unwrap();
    }
    writer.sync().unwrap();
}

/// A program that another test starts at this moment has the lock as well, until it runs.
fn open(folder: &Path, options: Options) -> Writer {
    let mut opened = None;
    wait_until("the log is free", || {
        opened = match Writer::open(folder, options) {
            Err(Error::Busy(_)) => None,
            opened => Some(opened.unwrap()),
        };
        opened.is_some()
    });
    opened.unwrap()
}

#[test]
fn a_publisher_that_is_killed_goes_on_where_the_stream_ends() {
    let Some(server) = Server::start("") else {
        return;
    };
    let url = server.url("APP");
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let (log, copy) = (here.join("log"), here.join("copy"));
    write(&log, 100);
    let publish = ["publish", "log", "--to", &url, "--replicas", "1"];
    let mut edge = Program::start(&["receive", &url, "--to", "copy"], here);
    let mut last = 0;
    for round in 1..=5 {
        // Killed while it publishes: many megabytes of them are waiting.
        write(&log, 100 + round * 2000);
        let mut publisher = Program::start(&publish, here);
        wait_until("something more is there", || {
            let count = records(&copy).len();
            count > last
        });
        last = records(&copy).len();
        publisher.child.kill().unwrap();
        publisher.child.wait().unwrap();
    }
    let mut publisher = Program::start(&publish, here);
    assert_eq!(publisher.says("ready")["record"], 10_100);
    let (code, said) = refused(&publish, here);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("stop that one first"), "{said}");
    edge.says("ready");
    wait_until("all is there", || records(&copy).len() == 10_100);
    assert_eq!(edge.end()["number"], 10_100);
    let late = Program::start(&["receive", &url, "--to", "late"], here);
    wait_until("all is there", || {
        records(&here.join("late")).len() == 10_100
    });
    assert_eq!(late.end()["repeated"], 0);
    assert_eq!(publisher.end()["in_flight"], 0);
    let source = records(&log);
    assert!(records(&copy) == source);
    assert!(records(&here.join("late")) == source);

    // One of another log cannot use the stream.
    write(&here.join("other"), 10);
    let other = ["publish", "other", "--to", &url, "--replicas", "1"];
    let (code, said) = refused(&other, here);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("has another log"), "{said}");
    // Nor can a copy of another one go on with it, unless it is told to begin afresh.
    let (code, said) = refused(&["receive", &url, "--to", "other"], here);
    assert_eq!(code, Some(2), "{said}");
    let fresh = Program::start(&["receive", &url, "--to", "other", "--fresh"], here);
    wait_until("all is there", || {
        let again = records(&here.join("other"));
        again.len() == 10_100
    });
    assert_eq!(fresh.end()["number"], 10_100);
    assert!(records(&here.join("other")) == source);
}

/// A source, and an edge behind a stream whose messages are signed.
const RUN: &str = r#"
"$1" replicate keys keys --sign
cat >source.toml <<END
[replicate]
control = "source.sock"
[[capture]]
name = "app"
tree = "disk/app"
log = "log"
[[publish]]
log = "log"
to = "$STREAM"
key_file = "keys/sign.key"
replicas = 1
END
cat >edge.toml <<END
[replicate]
control = "edge.sock"
[[receive]]
from = "$STREAM"
log = "copy"
key_file = "keys/sign.key"
[[apply]]
log = "copy"
to = "replica"
END
"$1" replicate run --config source.toml >source.said &
source=$!
ready source.said
"$1" replicate run --config edge.toml >edge.said &
edge=$!
ready edge.said
for number in $(seq 20); do
    echo $number >disk/app/file
    mkdir disk/app/$number
    mv disk/app/file disk/app/$number
done
until diff -rq disk/app replica/tree >/dev/null 2>&1; do
    kill -0 $source
    kill -0 $edge
    sleep 0.05
done
"$1" replicate status --control source.sock | grep -q '^publish-1 .*running'
"$1" replicate status --control edge.sock | grep -q '^receive-1 .*running'
kill -TERM $source
wait $source
kill -TERM $edge
wait $edge
started=
same disk/app replica/tree
"#;

#[test]
fn a_source_and_an_edge_run_with_a_stream_between_them() {
    let Some(server) = Server::start("") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let script = format!("STREAM={}\n{RUN}", server.url("RUN"));
    on_ext4(&script, folder.path());
}

#[test]
fn what_cannot_be_an_address_is_said() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("log"), 10);
    for to in [
        "nats://127.0.0.1:4222",
        "http://127.0.0.1/S",
        "nats://h/a.b",
    ] {
        let (code, said) = refused(&["publish", "log", "--to", to], folder.path());
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("nats://HOST:PORT/NAME"), "{said}");
    }
    let missing = ["publish", "nowhere", "--to", "nats://127.0.0.1:1/S"];
    let (code, said) = refused(&missing, folder.path());
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("nowhere"), "{said}");
}
