//! The real binary as a service: all that a file lists in one process, asked, told to end, and wrong.

use std::fs;

use serde_json::Value;
use test_support::exposition::Page;

use crate::openapi::Description;
use crate::replicate_command::{lowroad, on_ext4, refused};
use crate::scrape::{BOOK, series};

/// A source that captures and serves, and an edge that receives and applies.
const TWO: &str = r#"
"$1" replicate keys keys --server 127.0.0.1 --client edge >made
mkdir edge
cat >source.toml <<END
[replicate]
control = "source.sock"
http = { listen = "127.0.0.1:0", token_file = "$PWD/token" }
[[capture]]
name = "app"
tree = "disk/app"
log = "log"
[[serve]]
log = "log"
listen = "127.0.0.1:0"
cert = "keys/server.pem"
key = "keys/server.key"
clients_ca = "keys/ca.pem"
END
(umask 077; echo correct-horse-battery-staple >token)
status() {
    "$1" replicate status --control $2.sock
}
# until SIDE PATTERN: a part of it is so
until_is() {
    until status "$1" $2 | grep -q "$3"; do
        sleep 0.05
    done
}
"$1" replicate --json run --config source.toml >source.said &
source=$!
ready source.said
"$1" replicate --json status --control source.sock >status.json
port=$(grep -o '"listen": "127.0.0.1:[0-9]*' status.json | grep -o '[0-9]*$')
cat >edge.toml <<END
[replicate]
control = "edge.sock"
http = { listen = "127.0.0.1:0", token_file = "$PWD/token" }
[[receive]]
from = "tcp://127.0.0.1:$port"
log = "edge/log"
cert = "keys/edge.pem"
key = "keys/edge.key"
server_ca = "keys/ca.pem"
[[apply]]
log = "edge/log"
to = "edge/replica"
END
"$1" replicate --json run --config edge.toml >edge.said &
edge=$!
ready edge.said
until_is "$1" edge '^receive-1  running'
"#;

/// Kills the service, and stops it while it writes.
const RESTART_SCRIPT: &str = r#"
cd disk/app
mkdir -p deep/er
head -c 3000000 /dev/urandom >deep/er/bytes
mv deep moved
ln before other
cd ../..
until "$1" replicate log log | grep -q other; do
    sleep 0.05
done
# Of the capture, of the log that is served, and of its replica.
until test "$(grep -c '"lag_records": 0,' status.json)" = 3; do
    sleep 0.05
    "$1" replicate --json status --control source.sock >status.json
done
# scrape SAID ACCEPT: the answer of the service that has said this.
scrape() {
    port=$(grep -o '"http":"127.0.0.1:[0-9]*' $1 | grep -o '[0-9]*$')
    exec 3<>/dev/tcp/127.0.0.1/$port
    printf 'GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nAuthorization: Bearer %s\r\nAccept: %s\r\nConnection: close\r\n\r\n' \
        $port correct-horse-battery-staple "$2" >&3
    cat <&3
}
# An epoch without a change may just have been written.
: >metrics
until grep -q '^lowroad_replicate_lag_records{part="serve-1",kind="serve"} 0$' metrics; do
    scrape source.said '*/*' >metrics
done
scrape source.said application/openmetrics-text >openmetrics
kill -KILL $edge
wait $edge || true
echo meanwhile >disk/app/meanwhile
"$1" replicate --json run --config edge.toml >edge.said &
edge=$!
ready edge.said
until_is "$1" edge '^receive-1  running'
"$1" replicate --json status --control edge.sock >edge.json
scrape edge.said '*/*' >edge.metrics
for number in $(seq 200); do
    echo $number >>disk/app/numbers
    mkdir disk/app/$number
done
kill -TERM $source
wait $source
# What was written last was shipped before the end.
until_is "$1" edge '^receive-1  waiting'
kill -TERM $edge
wait $edge
started=
test ! -e source.sock
same disk/app edge/replica/tree
"$1" replicate verify edge/log --against disk/app --privileged | grep -q '^equal  epoch'
"#;

#[test]
fn a_source_and_an_edge_keep_all() {
    let folder = tempfile::tempdir().unwrap();
    if !on_ext4(&format!("{TWO}{RESTART_SCRIPT}"), folder.path()) {
        return;
    }
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let status: Value = serde_json::from_str(&read("status.json")).unwrap();
    let description = Description::read("replicate");
    if let Some(description) = &description {
        description.assert_result("status", &status);
    }
    let [capture, serve] = &status["parts"].as_array().unwrap()[..] else {
        panic!("{status:#}");
    };
    assert_eq!(
        (&capture["name"], &capture["kind"]),
        (&"app".into(), &"capture".into())
    );
    assert_eq!(
        (&capture["state"], &capture["failures"]),
        (&"running".into(), &0.into())
    );
    assert!(
        capture["counts"]["events"].as_u64().unwrap() > 10,
        "{capture:#}"
    );
    assert_eq!(capture["counts"]["dropped"], 0, "{capture:#}");
    assert_eq!(serve["counts"]["replicas"][0]["name"], "edge", "{serve:#}");
    assert_eq!(serve["lag_records"], 0, "{serve:#}");
    let edge: Value = serde_json::from_str(&read("edge.json")).unwrap();
    if let Some(description) = &description {
        description.assert_result("status", &edge);
    }
    assert_eq!(edge["parts"][1]["kind"], "apply", "{edge:#}");
    assert!(edge["parts"][1]["lag_ms"].is_u64(), "{edge:#}");
    assert_metrics(&read);
    for said in ["source.said", "edge.said"] {
        let said = read(said);
        let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        let parts = last["ended"]["parts"].as_array().unwrap();
        assert!(
            parts.iter().all(|part| part["state"] == "ended"),
            "{last:#}"
        );
    }
}

/// The pages of both sides keep the rules of both formats.
fn assert_metrics(read: &dyn Fn(&str) -> String) {
    let page = |name: &str| Page::of_answer(&read(name));
    let (source, edge) = (page("metrics"), page("edge.metrics"));
    source.assert_documented(BOOK);
    edge.assert_documented(BOOK);
    assert_eq!(series(&source), series(&page("openmetrics")));
    let (app, serve) = ([("part", "app"), ("kind", "capture")], ("part", "serve-1"));
    let state = |part: &[_], state| {
        let labels = [part, &[("state", state)]].concat();
        source.value("lowroad_replicate_part_state", &labels)
    };
    let is_serve = [serve, ("kind", "serve")];
    assert_eq!(
        (state(&app, "running"), state(&is_serve, "failed")),
        (1.0, 0.0)
    );
    for (name, labels, value) in [
        ("lowroad_replicate_dropped_events_total", app, 0.0),
        ("lowroad_replicate_files", app, 5.0),
        ("lowroad_replicate_lag_records", is_serve, 0.0),
        ("lowroad_replicate_lag_seconds", is_serve, 0.0),
        ("lowroad_replicate_replicas", is_serve, 1.0),
        (
            "lowroad_replicate_connections_total",
            [serve, ("end", "welcomed")],
            1.0,
        ),
        (
            "lowroad_replicate_replica_lag_records",
            [serve, ("replica", "edge")],
            0.0,
        ),
    ] {
        assert_eq!(source.value(name, &labels), value, "{name}");
    }
    let receive = [("part", "receive-1"), ("kind", "receive")];
    assert!(edge.value("lowroad_replicate_connects_total", &receive) > 0.0);
    let apply = [("part", "apply-1"), ("kind", "apply"), ("state", "failed")];
    assert_eq!(edge.value("lowroad_replicate_part_state", &apply), 0.0);
}

/// A capture goes on while its log cannot be served yet, and while a replica cannot be made at all.
const FAILING: &str = r#"
"$1" replicate keys keys --server 127.0.0.1 --client edge >made
mkdir occupied other-log
touch occupied/file
"$1" replicate --json serve other-log --listen 127.0.0.1:0 --cert keys/server.pem --key keys/server.key \
    --clients-ca keys/ca.pem >other.said &
other=$!
ready other.said
port=$(grep -o '127.0.0.1:[0-9]*' other.said | grep -o '[0-9]*$')
cat >run.toml <<END
[replicate]
control = "run.sock"
[[capture]]
tree = "disk/app"
log = "log"
[[serve]]
log = "log"
listen = "127.0.0.1:$port"
cert = "keys/server.pem"
key = "keys/server.key"
clients_ca = "keys/ca.pem"
[[apply]]
log = "log"
to = "occupied"
END
"$1" replicate run --config run.toml >run.said 2>run.failures &
run=$!
ready run.said
status() {
    "$1" replicate status --control run.sock
}
grep -q '^ready  parts 3  running 1  control run.sock$' run.said
status "$1" | grep -A 1 '^serve-1  retrying$' | grep -q "  listening on 127.0.0.1:$port: Address already in use"
status "$1" | grep -A 1 '^apply-1  failed$' | grep -q '  .*occupied is there already and no replica'
echo more >disk/app/more
until "$1" replicate log log | grep -q more; do
    kill -0 $run
    sleep 0.05
done
kill -TERM $other
wait $other
until status "$1" | grep -q '^serve-1  running'; do
    kill -0 $run
    sleep 0.05
done
code=0
kill -TERM $run
wait $run || code=$?
test $code = 1
started=
grep -q '^error: 1 of 3 parts did not work to the end: apply-1$' run.failures
# Each said so once.
test $(grep -c 'apply-1: ' run.failures) = 1
test $(grep -c 'serve-1: .*Address already in use.*; trying again' run.failures) = 1
"$1" replicate verify log --against disk/app --privileged | grep -q '^equal  epoch'
# Nobody is left to do anything.
cat >none.toml <<END
[replicate]
control = "none.sock"
[[apply]]
log = "log"
to = "occupied"
END
code=0
"$1" replicate run --config none.toml >none.said 2>none.failures || code=$?
test $code = 1
grep -q '^error: 1 of 1 parts did not work to the end: apply-1$' none.failures
# A tree that is not on a disk of which a capture can tell is this machine's failure, before anything begins.
mkdir memory
mount -t tmpfs none memory
sed 's,disk/app,memory,; s,^log = .*,log = "memory-log",' run.toml >memory.toml
code=0
"$1" replicate run --config memory.toml 2>memory.failures || code=$?
test $code = 3
grep -q 'allow mmap' memory.failures
test ! -e run.sock
"#;

/// A first copy says how far it is to who asks, and is ended with the service.
const COPYING: &str = r#"
mkdir disk/app/many
for number in $(seq 300); do
    head -c 3000 /dev/urandom >disk/app/many/$number
done
cat >run.toml <<END
[replicate]
control = "run.sock"
[[capture]]
tree = "disk/app"
log = "log"
rate_limit = "16KiB"
END
"$1" replicate run --config run.toml >run.said 2>run.failures &
run=$!
started=$run
asked() {
    "$1" replicate --json status --control run.sock 2>/dev/null >status.json &&
        test $(grep -o '"files": [0-9]*' status.json | grep -o '[0-9]*$' || echo 0) -gt 5
}
until asked "$1"; do
    kill -0 $run
    sleep 0.05
done
"$1" replicate status --control run.sock >status
kill -TERM $run
code=0
wait $run || code=$?
started=
test $code = 1
grep -q '^error: 1 of 1 parts did not work to the end: capture-1$' run.failures
grep -q 'capture-1: ended while it read the tree' run.failures
# As fast as it goes, it goes on.
sed -i /rate_limit/d run.toml
"$1" replicate --json run --config run.toml >run.said &
run=$!
ready run.said
kill -TERM $run
wait $run
started=
"$1" replicate verify log --against disk/app --privileged | grep -q '^equal  epoch'
"#;

#[test]
fn a_first_copy_tells_how_far_it_is() {
    let folder = tempfile::tempdir().unwrap();
    if !on_ext4(COPYING, folder.path()) {
        return;
    }
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let status: Value = serde_json::from_str(&read("status.json")).unwrap();
    let part = &status["parts"][0];
    assert_eq!(part["state"], "starting", "{part:#}");
    let counts = &part["counts"];
    assert_eq!(
        (&counts["epoch"], &counts["ready"]),
        (&0.into(), &false.into())
    );
    let count = |what: &str| counts[what].as_u64().unwrap();
    assert!(count("doubtful_files") > 0, "{counts:#}");
    assert!(
        (1..100_000).contains(&count("read_back_bytes")),
        "{counts:#}"
    );
    assert!(
        read("status").starts_with("capture-1  starting  "),
        "{}",
        read("status")
    );
}

#[test]
fn a_part_that_fails_leaves_the_others() {
    let folder = tempfile::tempdir().unwrap();
    on_ext4(FAILING, folder.path());
}

#[test]
fn a_wrong_file_is_one_line_that_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for name in ["app", "log"] {
        fs::create_dir(at.join(name)).unwrap();
    }
    let capture = "[[capture]]\ntree = \"app\"\nlog = \"log\"\n";
    for (text, said) in [
        ("[[capture]\n".to_owned(), "r.toml:1: "),
        (String::new(), "r.toml:1: nothing to do"),
        (
            capture.replace("log =", "lgo ="),
            "r.toml:3: unknown key \"lgo\"; did you mean \"log\"?",
        ),
        (
            capture.replace("app", "none"),
            "r.toml:2: tree none: there is no such directory",
        ),
        (
            capture.replace("\"log\"", "\"app/log\""),
            "r.toml:3: log app/log is in tree app: writing it would be a change of the tree (loop)",
        ),
        (
            format!("{capture}{capture}"),
            "r.toml:6: log log: \"capture-1\" writes it already",
        ),
        (
            format!("{capture}[[apply]]\nlog = \"log\"\nto = \"app\"\n"),
            "r.toml:6: tree app changes tree app, which \"capture-1\" reads",
        ),
    ] {
        fs::write(at.join("r.toml"), &text).unwrap();
        for check in [&["--check"][..], &[]] {
            let run = ["replicate", "run", "--config", "r.toml"];
            let line = refused(&[&run[..], check].concat(), 2, at);
            assert!(
                line.starts_with(&format!("error: {said}")),
                "{text}: {line}"
            );
        }
    }
    fs::write(at.join("r.toml"), capture).unwrap();
    let checked = lowroad(&["replicate", "run", "--config", "r.toml", "--check"], at);
    assert_eq!(checked.stdout, b"r.toml: correct\n");
    let line = refused(&["replicate", "status", "--control", "none.sock"], 1, at);
    assert!(
        line.contains("none.sock: nothing is running there"),
        "{line}"
    );
    let line = refused(&["replicate", "run", "--config", "none.toml"], 2, at);
    assert!(line.contains("none.toml: No such file"), "{line}");
}

/// What the guide says to do, in its order. A file's text follows its name.
fn guide() -> String {
    const PAGE: &str = include_str!("../../../../docs/src/replicate-run.md");
    let (_, page) = PAGE.split_once("in five minutes\n").unwrap();
    let (page, _) = page.split_once("\n## ").unwrap();
    let parts: Vec<_> = page.split("```").collect();
    let mut script = String::new();
    let mut running = 0;
    for pair in parts.chunks_exact(2) {
        let (before, block) = (pair[0], pair[1]);
        if let Some(text) = block.strip_prefix("toml\n") {
            let name = before.trim_end_matches(['`', '.', ':', '\n']);
            let name = name.rsplit('`').next().unwrap();
            script += &format!("cat >{name} <<'END'\n{text}END\n");
            continue;
        }
        let commands = block.strip_prefix("sh\n").unwrap();
        if commands.starts_with("diff") {
            // A moment later.
            script += &format!(
                "until {} >/dev/null; do sleep 0.05; done\n",
                commands.trim()
            );
            continue;
        }
        if commands.contains(" verify ") {
            // When both have ended.
            script += "end\n";
        }
        script += commands;
        if commands.ends_with("&\n") {
            running += 1;
            script += &format!("begun {running}\n");
        }
    }
    assert_eq!(running, 2, "{script}");
    script
}

/// Runs in its own network namespace, where the guide's port is free.
const GUIDE_SCRIPT: &str = r#"
mkdir bin
ln -s "$1" bin/lowroad
printf '#!/bin/sh\nexec "$@"\n' >bin/sudo
chmod +x bin/sudo
cat >guided <<'END'
PATH=$PWD/bin:$PATH
said=$PWD/said
started=
trap 'kill $started 2>/dev/null || true' EXIT
begun() {
    started="$started $!"
    until test "$(grep -c ^ready "$said")" = $1; do
        kill -0 $!
        sleep 0.01
    done
}
end() {
    for process in $started; do
        kill -TERM $process
        wait $process
    done
    started=
}
ip link set lo up
mkdir disk/guide
cd disk/guide
exec >"$said"
. ../../guide
END
unshare --net bash -euc '. ./guided'
grep -q '^capture-1  running' said
grep -q '^apply-1  running' said
grep -q '^equal  epoch' said
same disk/guide/app disk/guide/edge/replica/tree
"#;

#[test]
fn the_guide_leads_to_a_replica() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("guide"), guide()).unwrap();
    on_ext4(GUIDE_SCRIPT, folder.path());
}
