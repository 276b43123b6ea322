//! The real binary ships a log to replicas over TCP, and both ends may be killed at any moment.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use replicate::log::{Durability, Options, Writer};
use replicate::record::{Change, Entry, File, Origin};

use crate::replicate_command::{Program, lowroad, on_ext4, records, refused};

/// Longer than anything takes.
const TIMEOUT: Duration = Duration::from_secs(60);

fn serve(listen: &str, folder: &Path) -> Program {
    let keys = [
        "--cert",
        "keys/server.pem",
        "--key",
        "keys/server.key",
        "--clients-ca",
        "keys/ca.pem",
    ];
    let serve = ["serve", "log", "--listen", listen];
    Program::start(&[&serve[..], &keys].concat(), folder)
}

fn receive(from: &str, to: &str, folder: &Path) -> Program {
    let keys = [
        "--cert",
        "keys/edge-1.pem",
        "--key",
        "keys/edge-1.key",
        "--server-ca",
        "keys/ca.pem",
    ];
    let receive = ["receive", from, "--to", to];
    Program::start(&[&receive[..], &keys].concat(), folder)
}

fn keys(folder: &Path) {
    let made = lowroad(
        &[
            "replicate",
            "keys",
            "keys",
            "--server",
            "127.0.0.1",
            "--client",
            "edge-1",
            "--sign",
        ],
        folder,
    );
    assert!(made.status.success());
    assert_eq!(String::from_utf8(made.stdout).unwrap().lines().count(), 7);
}

fn entry(number: u64) -> Entry {
    let file = File {
        inode: 2,
        generation: 7,
    };
    match number {
        1 => Entry::Start { root: file },
        number if number.is_multiple_of(10) => Entry::Epoch { number },
        number => Entry::Change(Change::Data {
            file,
            offset: number,
            bytes: vec![7; usize::try_from(number % 5_000).unwrap()],
            origin: Origin::Exact,
        }),
    }
}

fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let since = Instant::now();
    while !reached() {
        assert!(since.elapsed() < TIMEOUT, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn both_ends_may_be_killed_at_any_moment() {
    const STEPS: u64 = 12;
    const STEP: u64 = 300;
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    keys(at);
    let options = Options {
        durability: Durability::OnRequest,
        segment: 1 << 20,
    };
    let mut writer = Writer::open(&at.join("log"), options).unwrap();
    let mut server = serve("127.0.0.1:0", at);
    let listen = server.says("ready")["listen"].as_str().unwrap().to_owned();
    let from = format!("tcp://{listen}");
    let mut receivers = ["one", "two"].map(|to| receive(&from, to, at));
    let mut random = fastrand::Rng::with_seed(7);
    for step in 0..STEPS {
        for number in step * STEP + 1..=(step + 1) * STEP {
            assert_eq!(writer.append(number, entry(number)).unwrap(), number);
        }
        writer.flush().unwrap();
        // Any moment is one of those that are meant.
        thread::sleep(Duration::from_millis(random.u64(..80)));
        if random.bool() {
            server.child.kill().unwrap();
            server.child.wait().unwrap();
            server = serve(&listen, at);
            server.says("ready");
        } else {
            receivers[0].child.kill().unwrap();
            receivers[0].child.wait().unwrap();
            receivers[0] = receive(&from, "one", at);
        }
    }
    let source = records(&at.join("log"));
    assert_eq!(source.len() as u64, STEPS * STEP);
    for copy in ["one", "two"] {
        until(copy, || records(&at.join(copy)).len() == source.len());
        assert!(records(&at.join(copy)) == source, "{copy} is not the log");
    }
    until("both are known to have all", || {
        let status = server.says("status");
        let replicas = status["replicas"].as_array().unwrap();
        let done = replicas.iter().filter(|it| it["lag_records"] == 0);
        done.filter(|it| it["name"] == "edge-1").count() == 2
    });
    for receiver in receivers {
        let ended = receiver.end();
        assert_eq!(ended["number"], STEPS * STEP, "{ended}");
        assert_eq!(ended["repeated"], 0, "{ended}");
    }
    let ended = server.end();
    assert_eq!(ended["number"], STEPS * STEP, "{ended}");
}

/// Captures a tree, serves and receives its log, and restores and applies the copy.
const SHIP_SCRIPT: &str = r#"
"$1" replicate keys keys --server 127.0.0.1 --client edge-1 >made
"$1" replicate --json capture --tree disk/app --to log >said &
capture=$!
ready said
"$1" replicate --json serve log --listen 127.0.0.1:0 --cert keys/server.pem --key keys/server.key \
    --clients-ca keys/ca.pem >served &
serve=$!
ready served
port=$(grep -o '127.0.0.1:[0-9]*' served | head -n 1)
"$1" replicate --json receive tcp://$port --to copy --cert keys/edge-1.pem --key keys/edge-1.key \
    --server-ca keys/ca.pem >received &
receive=$!
ready received
cd disk/app
echo one >one
mkdir -p deep/er
head -c 3000000 /dev/urandom >deep/er/bytes
mv deep moved
chmod 640 moved/er/bytes
rm before
cd ../..
kill -INT $capture
wait $capture
last=$("$1" replicate --json log log | tail -n 1)
until [ "$("$1" replicate --json log copy | tail -n 1)" = "$last" ]; do
    kill -0 $receive
    sleep 0.05
done
kill -INT $receive
wait $receive
kill -TERM $serve
wait $serve
started=
"$1" replicate log log >log.list
"$1" replicate log copy >copy.list
cmp log.list copy.list
"$1" replicate restore copy --out out
same disk/app out
"$1" replicate apply copy --to replica
same disk/app replica/tree
"#;

#[test]
fn a_tree_is_captured_here_and_restored_there() {
    let folder = tempfile::tempdir().unwrap();
    on_ext4(SHIP_SCRIPT, folder.path());
}

#[test]
fn what_cannot_be_shipped_is_said_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    keys(at);
    fs::create_dir(at.join("empty")).unwrap();
    let own = ["--cert", "keys/edge-1.pem", "--key", "keys/edge-1.key"];
    let from = |url: &'static str| ["replicate", "receive", url, "--to", "copy"];
    let receive = |url| [&from(url)[..], &own, &["--server-ca", "keys/ca.pem"]].concat();
    let serve = |log, certificate| {
        let key = ["--key", "keys/server.key", "--clients-ca", "keys/ca.pem"];
        let listen = ["--listen", "127.0.0.1:0", "--cert", certificate];
        [&["replicate", "serve", log][..], &listen, &key].concat()
    };
    for (asked, said) in [
        (
            receive("http://127.0.0.1:1"),
            "http://127.0.0.1:1 is neither",
        ),
        (
            receive("tcp://127.0.0.1"),
            "tcp://127.0.0.1 is no tcp://HOST:PORT",
        ),
        (receive("tcp://:1"), "tcp://:1 is no tcp://HOST:PORT"),
        (
            from("tcp://127.0.0.1:1").to_vec(),
            "needs --cert, --key and --server-ca",
        ),
        (
            serve("none", "keys/server.pem"),
            "none: there is no log yet",
        ),
        (
            serve("empty", "keys/none.pem"),
            "keys/none.pem: no certificate",
        ),
        (
            serve("empty", "keys/server.key"),
            "keys/server.key: no certificate",
        ),
        (
            vec!["replicate", "keys", "keys", "--client", "../edge"],
            "../edge: no name for a certificate",
        ),
    ] {
        let text = refused(&asked, 2, at);
        assert!(text.contains(said), "{asked:?}: {text}");
    }
    let again = lowroad(&["replicate", "keys", "keys", "--client", "edge-1"], at);
    let text = String::from_utf8(again.stderr).unwrap();
    assert_eq!(again.status.code(), Some(2), "{text}");
    assert!(text.contains("keys/edge-1.key exists already"), "{text}");
}
