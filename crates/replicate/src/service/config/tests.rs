use std::fs;
use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::service::Kind;
use crate::ship::tcp::{KeyFiles, make};

/// A folder with two trees and certificates, to load configurations in.
struct Rig(tempfile::TempDir);

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["app", "other", "log"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let made = KeyFiles {
            server: vec!["localhost".to_owned()],
            clients: vec!["edge".to_owned()],
            years: 1,
        };
        make(&folder.path().join("keys"), &made).unwrap();
        Self(folder)
    }

    fn read(&self, text: &str) -> Result<Config, String> {
        let document = Document::new("r.toml", text);
        check(&document, self.0.path()).map_err(|error| error.to_string())
    }

    /// The error, without the name of the folder.
    fn complaint(&self, text: &str) -> String {
        let folder = format!("{}/", self.0.path().display());
        self.read(text).unwrap_err().replace(&folder, "")
    }
}

const CAPTURE: &str = "[[capture]]\ntree = \"app\"\nlog = \"log\"\n";
const SERVE: &str = "[[serve]]\nlog = \"log\"\nlisten = \"127.0.0.1:7400\"\n\
                     cert = \"keys/server.pem\"\nkey = \"keys/server.key\"\nclients_ca = \"keys/ca.pem\"\n";
const RECEIVE: &str = "[[receive]]\nfrom = \"tcp://localhost:7400\"\nlog = \"copy\"\n\
                       cert = \"keys/edge.pem\"\nkey = \"keys/edge.key\"\nserver_ca = \"keys/ca.pem\"\n";
const APPLY: &str = "[[apply]]\nlog = \"copy\"\nto = \"replica\"\n";
const PUBLISH: &str = "[[publish]]\nlog = \"log\"\nto = \"nats://a:4222,b:4222/APP\"\n";

#[test]
fn a_whole_file_is_taken() {
    let rig = Rig::new();
    let config = rig
        .read(&format!(
            "[replicate]\ncontrol = \"/run/r.sock\"\n\
             http = {{ listen = \"127.0.0.1:9\", token_file = \"token\" }}\n\
             {CAPTURE}journal = true\nfresh = true\npin = \"pins\"\nring = \"1MiB\"\nname = \"app\"\ncheck = \"24h\"\n\
             rate_limit = \"50MiB\"\nkeep = \"10GiB\"\n\
             include = [\"data\", \"*.db\"]\nexclude = [\"*.tmp\"]\n\
             {SERVE}replicas = 3\nsynced = true\n\
             {PUBLISH}replicas = 1\nsynced = true\nmax_bytes = 9\nallow_loss = true\ndomain = \"hub\"\n\
             {RECEIVE}fresh = true\nkeep = \"1MiB\"\n\
             {APPLY}fresh = true\nrepair = true\nin_place = 1\nmax_bytes = 2\nmax_files = 3\nallow_delete = true\nprivileged = true\n\
             check = \"1h\"\n"
        ))
        .unwrap();
    let http = config.http.as_ref().unwrap();
    assert_eq!(http.token_file, rig.0.path().join("token"));
    let names: Vec<_> = config.parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(
        names,
        ["app", "serve-1", "publish-1", "receive-1", "apply-1"]
    );
    let kinds: Vec<_> = config.parts.iter().map(Part::kind).collect();
    use Kind::{Apply, Capture, Publish, Receive, Serve};
    assert_eq!(kinds, [Capture, Serve, Publish, Receive, Apply]);
    let Job::Capture(capture) = &config.parts[0].job else {
        panic!("{config:?}");
    };
    assert_eq!(capture.check, Some(Duration::from_secs(24 * 3600)));
    assert_eq!(capture.ring_bytes, 1 << 20);
    assert_eq!(capture.rate_limit, NonZeroU64::new(50 << 20));
    assert_eq!(capture.keep, Some(10 << 30));
    let names = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
    assert_eq!(capture.patterns.include, names(&["*.db", "data"]));
    assert_eq!(capture.patterns.exclude, names(&["*.tmp"]));
    assert_eq!(capture.pin, Some(rig.0.path().join("pins")));
    let synced = match [&config.parts[1].job, &config.parts[2].job] {
        [Job::Serve(serve), Job::Publish(publish)] => [serve.synced, publish.synced],
        _ => panic!("{config:?}"),
    };
    assert_eq!(synced, [true; 2]);
    let Job::Apply(apply) = &config.parts[4].job else {
        panic!("{config:?}");
    };
    assert_eq!(apply.to, rig.0.path().join("replica"));
    let limits = (
        apply.options.in_place,
        apply.options.max_bytes,
        apply.options.max_files,
    );
    assert_eq!(limits, (Some(1), Some(2), Some(3)));
    assert_eq!(apply.check, Some(Duration::from_secs(3600)));
    let least = rig.read(CAPTURE).unwrap();
    assert_eq!(least.control, Path::new(CONTROL));
}

#[test]
fn each_complaint_says_what_and_where() {
    let rig = Rig::new();
    let twice = CAPTURE.replace("app", "other");
    for (text, complaint) in [
        (String::new(), "r.toml:1: nothing to do: list a [[capture]]"),
        (
            CAPTURE.replace("tree", "trees"),
            "r.toml:2: unknown key \"trees\"; did you mean \"tree\"?",
        ),
        (
            format!("{CAPTURE}allow = [\"mmpa\"]\n"),
            "r.toml:4: unknown value \"mmpa\"; did you mean \"mmap\"?",
        ),
        (
            format!("{CAPTURE}allow = [\"mmap\"]\ncheck = \"1h\"\n"),
            "r.toml:1: check: not with allow",
        ),
        (
            format!("{CAPTURE}include = [\"a\"]\nexclude = [\n\"b\",\n\"!c\"]\n"),
            "r.toml:7: pattern \"!c\": ! is not known here",
        ),
        (
            format!("{RECEIVE}{APPLY}check = \"1ms\"\n"),
            "r.toml:7: check: a round takes 1s at least",
        ),
        (
            CAPTURE.replace("app", "none"),
            "r.toml:2: tree none: there is no such directory",
        ),
        (
            SERVE.replace("\"log\"", "\"none\""),
            "r.toml:2: log none: there is no such folder",
        ),
        (
            SERVE.replace("server.pem", "none.pem"),
            "r.toml:1: keys/none.pem: no certificate in PEM",
        ),
        (
            RECEIVE.replace("server_ca", "name"),
            "r.toml:1: tcp://localhost:7400 needs cert, key and server_ca",
        ),
        (
            RECEIVE.replace("tcp", "http"),
            "r.toml:1: http://localhost:7400 is neither tcp://",
        ),
        (
            format!("{PUBLISH}replicas = 6\n"),
            "r.toml:4: replicas 6: 1 to 5",
        ),
        (
            format!("{PUBLISH}cert = \"keys/edge.pem\"\n"),
            "r.toml:1: cert and key go together",
        ),
        (
            format!("{CAPTURE}{twice}"),
            "r.toml:6: log log: \"capture-1\" writes it already",
        ),
        (
            format!("{PUBLISH}[[publish]]\nlog = \"other\"\nto = \"nats://b:4222/APP\"\n"),
            "r.toml:6: nats://b:4222/APP: \"publish-1\" writes it already",
        ),
        (
            format!("{CAPTURE}name = \"a\"\n{SERVE}name = \"a\"\n"),
            "r.toml:11: name \"a\": another part has it",
        ),
        (
            format!(
                "[replicate]\nhttp = {{ listen = \"192.0.2.1:9\", token_file = \"/t\" }}\n{CAPTURE}"
            ),
            "r.toml:2: http: 192.0.2.1:9 is not a loopback address",
        ),
    ] {
        let said = rig.complaint(&text);
        assert!(said.starts_with(complaint), "{text}{said}");
    }
}

#[test]
fn what_is_wrong_with_bounds_is_said_with_its_line() {
    let rig = Rig::new();
    for (text, complaint) in [
        (
            format!("{CAPTURE}bounded = \"1MiB\"\n"),
            "r.toml:4: bounded and cgroup go together",
        ),
        (
            format!("{CAPTURE}cgroup = \"none\"\n"),
            "r.toml:4: bounded and cgroup go together",
        ),
        (
            format!("{CAPTURE}bounded = \"1MiB\"\ncgroup = \"none\"\n"),
            "r.toml:1: cgroup none: there is none: start the application first",
        ),
        (
            format!("{CAPTURE}bounded = \"64Q\"\ncgroup = \"none\"\n"),
            "r.toml:4: bounded: \"64Q\" is not a size; write 64kB, 256MiB or 1GiB",
        ),
        (
            format!("{CAPTURE}bounded = \"64KiB\"\ncgroup = \"none\"\n"),
            "r.toml:1: bounded 65536 B: at least 256 KiB",
        ),
        (
            format!("{CAPTURE}ring = \"3MiB\"\n"),
            "r.toml:1: ring 3145728 B: a power of two, 64 KiB at least",
        ),
        (
            format!("{CAPTURE}keep = \"900KiB\"\n"),
            "r.toml:1: keep 921600 B: 1 MiB at least",
        ),
        (
            format!("{RECEIVE}keep = \"900KiB\"\n"),
            "r.toml:1: keep 921600 B: 1 MiB at least",
        ),
        (
            format!("{CAPTURE}ring = \"4GiB\"\n"),
            "r.toml:4: ring 4294967296 B: 2 GiB at most",
        ),
        (
            format!("{CAPTURE}rate_limit = \"0B\"\n"),
            "r.toml:4: rate_limit: \"0B\" is not a rate; write 50MiB/s, 100MB/s or 800mbps",
        ),
    ] {
        let said = rig.complaint(&text);
        assert!(said.starts_with(complaint), "{text}{said}");
    }
}

#[test]
fn loops_are_refused_where_they_close() {
    let rig = Rig::new();
    let back = |log: &str| RECEIVE.replace("copy", log);
    let by_stream = "[[receive]]\nfrom = \"nats://b:4222/APP\"\nlog = \"copy\"\n";
    let applied = |log: &str, to: &str| APPLY.replace("copy", log).replace("replica", to);
    for (text, complaint) in [
        (
            CAPTURE.replace("\"log\"", "\"app/log\""),
            "r.toml:3: log app/log is in tree app: writing it would be a change of the tree (loop)",
        ),
        (
            CAPTURE.replace("\"log\"", "\"other/../app/in/log\""),
            "r.toml:3: ",
        ),
        (
            format!("{CAPTURE}{}", applied("log", "app/replica")),
            "r.toml:6: tree app/replica changes tree app, which \"capture-1\" reads: \"capture-1\", \"apply-1\" \
             would go round for ever (loop)",
        ),
        // An apply beside the tree that also contains it.
        (format!("{CAPTURE}{}", applied("log", ".")), "r.toml:6: "),
        (
            format!("{SERVE}{}", back("log")),
            "r.toml:9: log log changes log log, which \"serve-1\" reads: \"serve-1\", \"receive-1\" would go",
        ),
        (
            format!("{}{by_stream}", PUBLISH.replace("\"log\"", "\"copy\"")),
            "r.toml:6: log copy changes log copy, which \"publish-1\" reads",
        ),
        // Two trees that are captured into each other.
        (
            format!(
                "{}{}",
                CAPTURE.replace("\"log\"", "\"other/log\""),
                CAPTURE
                    .replace("\"log\"", "\"app/log\"")
                    .replace("\"app\"", "\"other\"")
            ),
            "r.toml:6: log app/log changes tree app, which \"capture-1\" reads",
        ),
    ] {
        let said = rig.complaint(&text);
        assert!(said.starts_with(complaint), "{text}{said}");
    }
    // A copy of a log on the same machine, and a replica of the captured tree, form no loop.
    for text in [
        format!("{CAPTURE}{SERVE}{RECEIVE}{APPLY}"),
        format!("{CAPTURE}{PUBLISH}{by_stream}{}", applied("log", "replica")),
        format!("{SERVE}{}", back("log").replace("7400", "7401")),
        format!(
            "{CAPTURE}{}",
            CAPTURE
                .replace("\"log\"", "\"app/log\"")
                .replace("\"app\"", "\"other\"")
        ),
    ] {
        let read = rig.read(&text);
        assert!(read.is_ok(), "{text}{}", read.unwrap_err());
    }
}
