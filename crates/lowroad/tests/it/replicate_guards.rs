//! The real binary does not follow a source into an empty folder, and does not empty a replica unless it is told to.

use std::fs;
use std::net::TcpListener;

use serde_json::Value;

use crate::replicate_command::on_ext4;

/// A source in `TREE`, with a replica.
const RUN: &str = r#"
cat >run.toml <<END
[replicate]
control = "run.sock"
[[capture]]
name = "app"
tree = "TREE"
log = "log"
[[apply]]
name = "replica"
log = "log"
to = "replica"
END
status() {
    "$1" replicate status --control run.sock
}
# until_is PATTERN: a line of the status is so
until_is() {
    until status "$1" | grep -q "$2"; do
        kill -0 $run
        sleep 0.05
    done
}
run() {
    "$1" replicate run --config run.toml >said 2>errors &
    run=$!
    ready said
}
# has: how many files of the source are in the replica
has() {
    find replica/tree -name 'precious-*' | wc -l
}
# until_has COUNT
until_has() {
    until test $(has) = $1; do
        kill -0 $run
        sleep 0.05
    done
}
"#;

fn script(tree: &str, then: &str) -> String {
    RUN.replace("TREE", tree) + then
}

const EMPTY_MOUNT: &str = r#"
touch disk/precious-{1..5}
run "$1"
until_has 5
kill -TERM $run
wait $run
umount disk
run "$1"
until_is "$1" '^app  retrying'
status "$1" >status.text
"$1" replicate --json status --control run.sock >status.json
test $(has) = 5
test -z "$(ls disk)"
# It goes on by itself once the file system is there.
mount -o loop image disk
touch disk/precious-6
until_is "$1" '^app  running'
until_has 6
kill -TERM $run
wait $run
started=
"$1" replicate verify log --against disk
test "$("$1" replicate --json log log | grep -c '"record":"start"')" = 1
test "$("$1" replicate --json log log | grep -c '"record":"source"')" = 1
# By hand, another tree is refused before anything is written, and begins the log anew where that is asked for.
umount disk
before=$(cat log/*.log | sha256sum)
mkdir other
mkfs.ext4 -q -F image2 64M
mount -o loop image2 other
echo other >other/file
code=0
"$1" replicate capture --tree other --to log >said 2>refusal || code=$?
test $code = 2
test "$before" = "$(cat log/*.log | sha256sum)"
test -z "$(ls -A other | grep lowroad)"
"$1" replicate capture --tree other --to log --fresh >said &
capture=$!
ready said
kill -INT $capture
wait $capture
started=
"$1" replicate verify log --against other
umount other
"#;

#[test]
fn a_source_that_is_not_mounted_leaves_the_replica_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    if !on_ext4(&script("disk", EMPTY_MOUNT), folder.path()) {
        return;
    }
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let status = read("status.text");
    assert!(
        status.contains("log is the log of another tree than disk: the log's was "),
        "{status}"
    );
    assert!(
        status.contains("mount or name the tree that the log is of"),
        "{status}"
    );
    assert!(status.contains("--fresh"), "{status}");
    let status: Value = serde_json::from_str(&read("status.json")).unwrap();
    assert!(
        status["parts"][0]["failures"].as_u64().unwrap() > 0,
        "{status:#}"
    );
    assert_eq!(status["parts"][1]["state"], "running", "{status:#}");
    let refusal = read("refusal");
    assert_eq!(refusal.lines().count(), 1, "{refusal}");
    assert!(
        refusal.contains("is the log of another tree than other"),
        "{refusal}"
    );
}

const DELETION: &str = r#"
mkdir disk/app/many
touch disk/app/many/precious-{1..150}
# All at once, out of the tree and into it again.
empty() {
    mv disk/app/many disk/away
}
fill() {
    mv disk/away disk/app/many
}
sed -i 's/^control.*/&\nhttp = { listen = "127.0.0.1:0", token_file = "token" }/' run.toml
(umask 077; echo correct-horse-battery-staple >token)
run "$1"
until_has 150
empty
until_is "$1" '^replica  halted'
status "$1" >status.text
test $(has) = 150
port=$(grep -o 'http 127.0.0.1:[0-9]*' said | grep -o '[0-9]*$')
exec 3<>/dev/tcp/127.0.0.1/$port
printf 'GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n' \
    $port correct-horse-battery-staple >&3
cat <&3 >metrics
# What is not halted is not allowed anything.
! "$1" replicate allow-delete app --control run.sock 2>refusal
grep -q 'app is not halted' refusal
! "$1" replicate allow-delete none --control run.sock 2>refusal
grep -q 'there is no part "none"' refusal
# Files that come back end it, and so does a permission, for one step.
fill
until_is "$1" '^replica  running'
empty
until_is "$1" '^replica  halted'
"$1" replicate allow-delete --control run.sock | grep -q '^allowed  replica$'
until_has 0
until_is "$1" '^replica  running'
fill
until_has 150
empty
until_is "$1" '^replica  halted'
kill -TERM $run
code=0
wait $run || code=$?
started=
test $code = 1
test $(has) = 150
# By hand.
code=0
"$1" replicate apply log --to replica 2>refusal || code=$?
test $code = 2
grep -q 'would remove 151 of the 15[0-9] files of replica; nothing was changed' refusal
code=0
timeout 60 "$1" replicate apply log --to replica --follow 2>refusal || code=$?
test $code = 2
test $(has) = 150
"$1" replicate apply log --to replica --allow-delete
test $(has) = 0
# A configuration that allows it.
fill
sed -i 's/^to = .*/&\nallow_delete = true/' run.toml
run "$1"
until_has 150
empty
until_has 0
kill -TERM $run
wait $run
started=
"#;

#[test]
fn a_replica_is_not_emptied_before_that_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    if !on_ext4(&script("disk/app", DELETION), folder.path()) {
        return;
    }
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let status = read("status.text");
    assert!(status.contains("would remove 151 of the 15"), "{status}");
    assert!(
        status.contains("lowroad replicate allow-delete"),
        "{status}"
    );
    assert!(status.contains("app  running"), "{status}");
    let metrics = read("metrics");
    let halted = r#"lowroad_replicate_part_state{part="replica",kind="apply",state="halted"} 1"#;
    assert!(metrics.contains(halted), "{metrics}");
    let errors = read("errors");
    assert!(!errors.contains("panicked"), "{errors}");
}

const CAPACITY: &str = r#"
"$1" replicate --json capture --tree disk/app --to log >said &
capture=$!
ready said
mkdir replica
mount -t tmpfs -o size=2m,mode=755 none replica
"$1" replicate --json apply log --to replica --follow >applied 2>errors &
apply=$!
ready applied
# Moved in, so that it is in one epoch.
head -c 6000000 /dev/urandom >disk/large
mv disk/large disk/app/large
until grep -q 'needs room for [0-9]* bytes and [0-9]* files, and there is room for [0-9]* bytes' errors; do
    kill -0 $apply
    sleep 0.05
done
test ! -e replica/tree/large
test -z "$(ls -A replica/staging)"
mount -o remount,size=32m replica
until cmp -s disk/app/large replica/tree/large; do
    kill -0 $apply
    sleep 0.05
done
kill -INT $apply
wait $apply
kill -INT $capture
wait $capture
started=
umount replica
"#;

#[test]
fn a_replica_without_room_waits_and_goes_on_when_there_is_some() {
    let folder = tempfile::tempdir().unwrap();
    on_ext4(CAPACITY, folder.path());
}

const READY: &str = r#"
"$1" replicate keys keys --server 127.0.0.1 --client edge >made
mkdir edge
cat >edge.toml <<END
[replicate]
control = "edge.sock"
[[receive]]
from = "tcp://127.0.0.1:7411"
log = "edge/log"
cert = "keys/edge.pem"
key = "keys/edge.key"
server_ca = "keys/ca.pem"
[[apply]]
log = "edge/log"
to = "edge/replica"
END
cat >source.toml <<END
[replicate]
control = "source.sock"
[[capture]]
tree = "disk/app"
log = "log"
[[serve]]
log = "log"
listen = "127.0.0.1:7411"
cert = "keys/server.pem"
key = "keys/server.key"
clients_ca = "keys/ca.pem"
END
"$1" replicate run --config edge.toml >edge.said 2>edge.errors &
edge=$!
until grep -q 'not ready: receive-1 waits: ' edge.errors && grep -q 'not ready: apply-1 waits: edge/log has no epoch yet' edge.errors; do
    kill -0 $edge
    sleep 0.05
done
test ! -s edge.said
"$1" replicate run --config source.toml >source.said 2>source.errors &
source=$!
ready source.said
until grep -q ready edge.said; do
    kill -0 $edge
    sleep 0.05
done
# The next command finds what it is about.
diff -r disk/app edge/replica/tree
kill -TERM $source
wait $source
kill -TERM $edge
wait $edge
# One that has a tree is ready without its source.
"$1" replicate run --config edge.toml >edge.said 2>edge.errors &
edge=$!
ready edge.said
kill -TERM $edge
wait $edge
started=
"#;

#[test]
fn an_edge_is_ready_when_its_replica_has_a_tree() {
    let folder = tempfile::tempdir().unwrap();
    // The edge begins first, so it has to know the port.
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    on_ext4(&READY.replace("7411", &port.to_string()), folder.path());
}
