//! The real binary ships a log to replicas over TCP, and both ends may be killed at any moment.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use replicate::log::{Durability, Options, Reader, Writer};
use replicate::record::{Change, Entry, File, Origin, Record};
use serde_json::Value;
use sys::require::{Class, skip};

const LOWROAD: &str = env!("CARGO_BIN_EXE_lowroad");
/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn lowroad(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(LOWROAD);
    command
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

/// A program, which is killed when the test ends.
struct Program {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Program {
    fn start(arguments: &[&str], folder: &Path) -> Self {
        let mut child = Command::new(LOWROAD)
            .args(["replicate", "--json"])
            .args(arguments)
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    fn serve(listen: &str, folder: &Path) -> Self {
        let keys = [
            "--cert",
            "keys/server.pem",
            "--key",
            "keys/server.key",
            "--clients-ca",
            "keys/ca.pem",
        ];
        let serve = ["serve", "log", "--listen", listen];
        Self::start(&[&serve[..], &keys].concat(), folder)
    }

    fn receive(from: &str, to: &str, folder: &Path) -> Self {
        let keys = [
            "--cert",
            "keys/edge-1.pem",
            "--key",
            "keys/edge-1.key",
            "--server-ca",
            "keys/ca.pem",
        ];
        let receive = ["receive", from, "--to", to];
        Self::start(&[&receive[..], &keys].concat(), folder)
    }

    /// The next line that has this member, and what it is.
    fn says(&mut self, member: &str) -> Value {
        loop {
            let mut line = String::new();
            let count = self.said.read_line(&mut line).unwrap();
            assert_ne!(count, 0, "it ends without {member}");
            let value: Value = serde_json::from_str(&line).unwrap();
            if let Some(found) = value.get(member) {
                return found.clone();
            }
        }
    }

    fn end(mut self) -> Value {
        let pid = i32::try_from(self.child.id()).unwrap();
        kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
        let ended = self.says("ended");
        assert!(self.child.wait().unwrap().success());
        ended
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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

fn read(folder: &Path) -> Vec<Record> {
    let Ok(mut reader) = Reader::open(folder) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    while let Some(located) = reader.read().unwrap() {
        all.push(located.record);
    }
    all
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
        assert!(since.elapsed() < PATIENCE, "never: {what}");
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
    let mut server = Program::serve("127.0.0.1:0", at);
    let listen = server.says("ready")["listen"].as_str().unwrap().to_owned();
    let from = format!("tcp://{listen}");
    let mut receivers = ["one", "two"].map(|to| Program::receive(&from, to, at));
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
            server = Program::serve(&listen, at);
            server.says("ready");
        } else {
            receivers[0].child.kill().unwrap();
            receivers[0].child.wait().unwrap();
            receivers[0] = Program::receive(&from, "one", at);
        }
    }
    let source = read(&at.join("log"));
    assert_eq!(source.len() as u64, STEPS * STEP);
    for copy in ["one", "two"] {
        until(copy, || read(&at.join(copy)).len() == source.len());
        assert!(read(&at.join(copy)) == source, "{copy} is not the log");
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

/// In a mount namespace of its own, so that nothing stays mounted. Its argument is the program.
const CAPTURED: &str = r#"
truncate -s 64M image
mkfs.ext4 -q image
mkdir disk
mount -o loop image disk
mkdir disk/app
echo before >disk/app/before
"$1" replicate keys keys --server 127.0.0.1 --client edge-1 >made
started=
trap 'kill $started 2>/dev/null || true' EXIT
ready() {
    until grep -q ready "$1"; do
        kill -0 $2
        sleep 0.01
    done
}
"$1" replicate --json capture --tree disk/app --to log >said &
capture=$!
started="$capture"
ready said $capture
"$1" replicate --json serve log --listen 127.0.0.1:0 --cert keys/server.pem --key keys/server.key \
    --clients-ca keys/ca.pem >served &
serve=$!
started="$started $serve"
ready served $serve
port=$(grep -o '127.0.0.1:[0-9]*' served | head -n 1)
"$1" replicate --json receive tcp://$port --to copy --cert keys/edge-1.pem --key keys/edge-1.key \
    --server-ca keys/ca.pem >received &
receive=$!
started="$started $receive"
ready received $receive
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
list() {
    (cd "$1" && find . -printf '%P %y %m %U:%G %n %T@ %l\n' | sort)
}
list disk/app >source.tree
list out >out.tree
diff source.tree out.tree
diff -r --no-dereference disk/app out
"#;

#[test]
fn a_tree_is_captured_here_and_restored_there() {
    if !sys::require::root() {
        return;
    }
    let mkfs = ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"];
    if !mkfs.iter().any(|path| Path::new(path).exists()) {
        skip(Class::Core, "no mkfs.ext4: apt install e2fsprogs");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shipped = Command::new("unshare");
    shipped.args([
        "--mount",
        "--propagation",
        "private",
        "bash",
        "-euc",
        CAPTURED,
        "test",
    ]);
    let shipped = shipped
        .arg(LOWROAD)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .current_dir(folder.path())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, errors) = (text(&shipped.stdout), text(&shipped.stderr));
    assert!(shipped.status.success(), "{out}{errors}");
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
        (serve("none", "keys/server.pem"), "none: No such file"),
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
        let refused = lowroad(&asked, at);
        let text = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{asked:?}: {text}");
        assert!(
            text.contains(said) && text.lines().count() == 1,
            "{asked:?}: {text}"
        );
    }
    let again = lowroad(&["replicate", "keys", "keys", "--client", "edge-1"], at);
    let text = String::from_utf8(again.stderr).unwrap();
    assert_eq!(again.status.code(), Some(1), "{text}");
    assert!(text.contains("keys/edge-1.key: File exists"), "{text}");
}
