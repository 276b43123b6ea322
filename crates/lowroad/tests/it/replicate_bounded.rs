//! The real binary freezes an application that is faster than its log or its replicas, and never leaves it frozen.

use std::fs;

use serde_json::Value;

use crate::replicate_command::on_ext4;

/// A cgroup of the test's own, an application in it, and what ends it also where a script fails.
const CGROUP: &str = r#"
mkdir cgroups
mount -t cgroup2 cgroup cgroups
app=$PWD/cgroups/lowroad-test-$$
mkdir $app
mkdir slow
leave() {
    fsfreeze -u slow 2>/dev/null || true
    for process in $started; do
        kill -CONT $process 2>/dev/null || true
        kill -KILL $process 2>/dev/null || true
    done
    if test -d $app; then
        echo 1 >$app/cgroup.kill
        until rmdir $app; do
            sleep 0.05
        done
    fi
}
trap leave EXIT
block=$(head -c 4095 /dev/zero | tr '\0' x)
# writes COUNT FILE [END]: as many blocks, in the cgroup, again and again until END is there; it is left running
writes() {
    (
        echo $BASHPID >$app/cgroup.procs
        until
            for number in $(seq $1); do
                echo "$block" >&3
            done 3>"$2"
            test -e "${3:-.}"
        do
            :
        done
    ) &
    writer=$!
}
frozen() {
    grep -q '^frozen 1$' $app/cgroup.events
}
# while_up PROCESS COMMAND...: waits until that is so, while this lives
while_up() {
    local process=$1
    shift
    until "$@"; do
        kill -0 $process
        sleep 0.01
    done
}
runs() {
    ! frozen
}
"#;

/// The log's disk stands still while the application writes twice as much as the ring holds: `$bounded` decides.
const OVERRUN: &str = r#"
truncate -s 256M slow.image
mkfs.ext4 -q slow.image
mount -o loop slow.image slow
"$1" replicate --json capture --tree disk/app --to slow/log --ring 16MiB $bounded >said &
capture=$!
ready said
fsfreeze -f slow
writes 8192 disk/app/data
if test -n "$bounded"; then
    while_up $writer frozen
    fsfreeze -u slow
    wait $writer
else
    wait $writer
    fsfreeze -u slow
fi
kill -TERM $capture
wait $capture
started=
runs
test "$(cat $app/cgroup.freeze)" = 0
"$1" replicate restore slow/log --out copy
same disk/app copy
"#;

fn overrun(bounded: &str) -> Option<Value> {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("{CGROUP}bounded=\"{bounded}\"\n{OVERRUN}");
    if !on_ext4(&script, folder.path()) {
        return None;
    }
    let said = fs::read_to_string(folder.path().join("said")).unwrap();
    let ended: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    Some(ended["ended"].clone())
}

#[test]
fn a_ring_that_is_overrun_loses_events() {
    let Some(ended) = overrun("") else {
        return;
    };
    assert!(ended["dropped"].as_u64().unwrap() > 0, "{ended:#}");
    assert!(ended["read_back_bytes"].as_u64().unwrap() > 0, "{ended:#}");
    assert!(ended["bounded"].is_null(), "{ended:#}");
}

#[test]
fn an_application_that_is_bounded_does_not_overrun_the_ring() {
    let Some(ended) = overrun("--bounded 1GiB --cgroup $app") else {
        return;
    };
    assert_eq!(ended["dropped"], 0, "{ended:#}");
    let bounded = &ended["bounded"];
    assert!(bounded["freezes"].as_u64().unwrap() > 0, "{ended:#}");
    assert_eq!(bounded["expired"], 0, "{ended:#}");
    assert_eq!(bounded["frozen"], false, "{ended:#}");
}

/// What is stored to all the time is read again and again, and held back.
const STORES: &str = r#"
head -c 8388608 /dev/zero >disk/app/data
"$1" replicate --json capture --tree disk/app --to log --bounded 1MiB --cgroup $app >said &
capture=$!
ready said
(
    echo $BASHPID >$app/cgroup.procs
    exec python3 -c '
import mmap, time
file = open("disk/app/data", "r+b")
memory = mmap.mmap(file.fileno(), 8 << 20)
end, number = time.monotonic() + 3, 0
while time.monotonic() < end:
    number += 1
    memory[number * 4104 % (8 << 20)] = number % 256
'
) &
wait $!
kill -TERM $capture
wait $capture
started=
runs
"$1" replicate restore log --out copy
same disk/app copy
"#;

#[test]
fn an_application_is_frozen_while_too_much_of_its_files_is_held_back() {
    let folder = tempfile::tempdir().unwrap();
    if !on_ext4(&format!("{CGROUP}{STORES}"), folder.path()) {
        return;
    }
    let said = fs::read_to_string(folder.path().join("said")).unwrap();
    let ended: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    let bounded = &ended["ended"]["bounded"];
    assert!(bounded["freezes"].as_u64().unwrap() > 0, "{ended:#}");
    assert_eq!(bounded["frozen"], false, "{ended:#}");
}

/// Starts a source whose only replica can be stopped.
const SERVE_SCRIPT: &str = r#"
"$1" replicate keys keys --server 127.0.0.1 --client edge >made
mkdir edge
port=0
source_begins() {
    cat >source.toml <<END
[replicate]
control = "source.sock"
[[capture]]
tree = "disk/app"
log = "log"
bounded = "1MiB"
cgroup = "$app"
[[serve]]
log = "log"
listen = "127.0.0.1:$port"
cert = "keys/server.pem"
key = "keys/server.key"
clients_ca = "keys/ca.pem"
END
    rm -f source.said
    "$1" replicate --json run --config source.toml >source.said 2>>source.warned &
    source=$!
    ready source.said
}
status() {
    "$1" replicate --json status --control source.sock >status.json
}
# The replica has all that the log has.
equal() {
    status "$1"
    test "$(grep -c '"lag_records": 0,' status.json)" = 3
}
# counts MEMBER NUMBER: of the capture, at least
counts() {
    status "$1"
    test "$(grep -o "\"$2\": [0-9]*" status.json | grep -o '[0-9]*$')" -ge $3
}
is_frozen() {
    status "$1"
    grep -q '"frozen": true' status.json
}
# The application is frozen because its replica stands still.
stands_still() {
    while_up $edge equal "$1"
    kill -STOP $edge
    rm -f enough
    # It may write for a while before the capture has a turn.
    writes 2048 disk/app/data enough
    while_up $writer frozen
}
ends_writing() {
    touch enough
    wait $writer
}
goes_on() {
    while_up $source runs
    kill -CONT $edge
    ends_writing
    while_up $edge equal "$1"
}
source_begins "$1"
status "$1"
port=$(grep -o '"listen": "127.0.0.1:[0-9]*' status.json | grep -o '[0-9]*$')
"$1" replicate --json receive tcp://127.0.0.1:$port --to edge/log --cert keys/edge.pem --key keys/edge.key \
    --server-ca keys/ca.pem >edge.said &
edge=$!
ready edge.said
"#;

/// The wait ends when the replica continues, after the time limit, and when the capture stops or is killed.
const CASES_SCRIPT: &str = r#"
stands_still "$1"
while_up $source is_frozen "$1"
"$1" replicate status --control source.sock | grep -q '^  application frozen  frozen [0-9]* times for [0-9]* ms  too long 0  gone 0  lag [0-9]* B$'
kill -CONT $edge
goes_on "$1"
counts "$1" freezes 1
grep -q '"dropped": 0,' status.json
# A replica that stands still for too long is waited for no more until it has caught up.
stands_still "$1"
while_up $source counts "$1" expired 1
ends_writing
kill -CONT $edge
while_up $edge equal "$1"
# The source is stopped itself.
stands_still "$1"
kill -STOP $source
while_up $source runs
kill -CONT $source
goes_on "$1"
# It is told to end.
stands_still "$1"
kill -TERM $source
while_up $edge runs
ends_writing
kill -CONT $edge
wait $source
# It is killed.
source_begins "$1"
stands_still "$1"
kill -KILL $source
while_up $edge runs
ends_writing
kill -CONT $edge
wait $source || test $? = 137
# It is killed together with what was to thaw then: its successor does.
source_begins "$1"
stands_still "$1"
# What the replica has confirmed before may thaw it once more.
sleep 0.3
while_up $source frozen
kill -KILL $(cat /proc/$source/task/*/children) $source
wait $source || test $? = 137
frozen
kill -CONT $edge
source_begins "$1"
while_up $source runs
grep -q 'a capture that was killed had left it frozen' source.warned
ends_writing
while_up $edge equal "$1"
kill -TERM $source
wait $source
kill -TERM $edge
wait $edge
started=
test "$(cat $app/cgroup.freeze)" = 0
"$1" replicate restore edge/log --out copy
same disk/app copy
"#;

#[test]
fn nothing_leaves_an_application_frozen() {
    let folder = tempfile::tempdir().unwrap();
    on_ext4(
        &format!("{CGROUP}{SERVE_SCRIPT}{CASES_SCRIPT}"),
        folder.path(),
    );
}

/// A cgroup that goes and comes, and one that somebody else freezes.
const OTHERS: &str = r#"
rmdir $app
while_up $source counts "$1" vanished 1
# Nobody is frozen, and all is followed.
echo meanwhile >disk/app/meanwhile
while_up $edge equal "$1"
mkdir $app
while_up $source grep -q 'is there again' source.warned
stands_still "$1"
kill -CONT $edge
goes_on "$1"
# Whoever has frozen it thaws it.
echo 1 >$app/cgroup.freeze
kill -STOP $edge
for number in $(seq 2048); do
    echo "$block"
done >disk/app/outside
while_up $source grep -q 'is frozen already, by somebody else' source.warned
kill -CONT $edge
while_up $edge equal "$1"
test "$(cat $app/cgroup.freeze)" = 1
kill -TERM $source
wait $source
frozen
echo 0 >$app/cgroup.freeze
kill -TERM $edge
wait $edge
started=
"$1" replicate restore edge/log --out copy
same disk/app copy
"#;

#[test]
fn a_cgroup_that_is_gone_or_another_s_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    on_ext4(&format!("{CGROUP}{SERVE_SCRIPT}{OTHERS}"), folder.path());
}

/// Without the right to a priority.
const ORDINARY: &str = r#"
ulimit -e 0
ulimit -r 0
setpriv --bounding-set=-sys_nice "$1" replicate --json capture --tree disk/app --to log \
    --bounded 1MiB --cgroup $app >said 2>warned &
capture=$!
ready said
kill -TERM $capture
wait $capture
started=
test $(grep -c "cgroup $app: .* CAP_SYS_NICE" warned) = 1
"#;

#[test]
fn who_freezes_without_a_priority_says_so() {
    let folder = tempfile::tempdir().unwrap();
    on_ext4(&format!("{CGROUP}{ORDINARY}"), folder.path());
}

/// Refusals, each with the line that has the remedy.
const REFUSALS_SCRIPT: &str = r#"
# refused LINE ARGUMENTS...
refused() {
    local line=$1 code=0
    shift
    "$program" replicate capture --tree disk/app --to log "$@" 2>failure || code=$?
    test $code = 2
    test $(wc -l <failure) = 1
    grep -q "^error: $line" failure
}
program=$1
mkdir plain
refused 'cgroup none: there is none: start the application first' --bounded 1MiB --cgroup none
refused 'cgroup plain: no directory of a cgroup2 file system' --bounded 1MiB --cgroup plain
refused 'cgroup .*/cgroup.procs: no directory of a cgroup2' --bounded 1MiB --cgroup $app/cgroup.procs
refused 'cgroup cgroups: the root cgroup cannot be frozen' --bounded 1MiB --cgroup cgroups
refused 'bounded 261120 B: at least 256 KiB' --bounded 255KiB --cgroup $app
refused 'ring 3145728 B: a power of two, 64 KiB at least' --ring 3MiB
mkdir $app/below
(
    echo $BASHPID >$app/below/cgroup.procs
    refused 'cgroup .*: lowroad is in it, and would freeze itself' --bounded 1MiB --cgroup $app
)
rmdir $app/below
mkdir $app/threads
echo threaded >$app/threads/cgroup.type
refused 'cgroup .*/threads: a threaded one' --bounded 1MiB --cgroup $app/threads
rmdir $app/threads
mount --bind cgroups cgroups
mount -o remount,bind,ro cgroups
refused 'cgroup .*: it cannot be written (Read-only file system' --bounded 1MiB --cgroup $app
umount cgroups
for alone in '--bounded 1MiB' "--cgroup $app"; do
    code=0
    "$program" replicate capture --tree disk/app --to log $alone 2>failure || code=$?
    test $code = 2
done
test ! -e log
cat >capture.toml <<END
[[capture]]
tree = "disk/app"
log = "log"
bounded = "1MiB"
cgroup = "cgroups"
END
code=0
"$program" replicate run --config capture.toml --check 2>failure || code=$?
test $code = 2
grep -q '^error: capture.toml:1: cgroup cgroups: the root cgroup' failure
"#;

#[test]
fn what_cannot_be_frozen_is_refused_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    on_ext4(&format!("{CGROUP}{REFUSALS_SCRIPT}"), folder.path());
}
