//! The real binary follows a tree on ext4 into a log, and makes the tree again of it.

use serde_json::Value;
use std::process::Command;
use sys::require::{Class, skip};

use crate::replicate_command::{on_ext4, refused};

/// Captures a tree and applies it to a replica.
const APPLY_SCRIPT: &str = r#"
"$1" replicate --json capture --tree disk/app --to log >said &
capture=$!
ready said
"$1" replicate --json apply log --to replica --follow >applied &
apply=$!
ready applied
cd disk/app
echo one >one
ln one two
ln -s nowhere three
mkdir -p deep/er
head -c 300000 /dev/urandom >deep/er/bytes
mv deep moved
chmod 640 moved/er/bytes
touch -d 2001-02-03 before
rm one
cd ../..
kill -INT $capture
wait $capture
"$1" replicate restore log --out copy
"$1" replicate --json log log >records
same disk/app copy
last=$(grep '"record":"epoch"' records | tail -n 1 | grep -o '"epoch":[0-9]*')
until grep -q "$last[,}]" applied; do
    kill -0 $apply
    sleep 0.05
done
kill -INT $apply
wait $apply
same disk/app replica/tree
"$1" replicate verify log --against copy | grep -q '^equal  epoch'
"$1" replicate verify log --against disk/app --privileged | grep -q '^equal  epoch'
hash=$("$1" replicate hash --log log)
test "$hash" = "$("$1" replicate hash --tree copy)"
test ${#hash} = 64
chmod 641 copy/moved/er/bytes
code=0
"$1" replicate --json verify log --against copy >verdict 2>failure || code=$?
test $code = 1
grep -q '"path":"moved/er/bytes"' verdict
grep -q '"what":"mode"' verdict
grep -q '"differences":1,' verdict
grep -q '^error: 1 difference$' failure
chmod 640 copy/moved/er/bytes
again=$("$1" replicate --json log log | grep -c '"record":"epoch"')
"$1" replicate --json capture --tree disk/app --to log >said &
capture=$!
ready said
grep -q '"epoch":'$((again + 1))[,}] said
grep -q '"differed_bytes":0,"files":7,"gone":0,"new":0,' said
test "$("$1" replicate --json log log | grep -c '"record":"start"')" = 1
echo later >disk/app/later
kill -INT $capture
wait $capture
"$1" replicate restore log --epoch $again --out before
"$1" replicate restore log --out after
same copy before
same disk/app after
# A replica goes on where it was, and nothing changes when it has all.
"$1" replicate apply log --to replica
same disk/app replica/tree
"$1" replicate verify log --against replica/tree | grep -q '^equal  epoch'
"$1" replicate --json apply log --to replica >applied
same disk/app replica/tree
"#;

/// Kills `apply` repeatedly at a log of many epochs; its replica equals what `restore` makes.
const KILL_SCRIPT: &str = r#"
"$1" replicate --json capture --tree disk/app --to log >said &
capture=$!
ready said
cd disk/app
for number in $(seq 80); do
    mkdir -p in/$((number % 7))
    head -c $((number * 500)) /dev/urandom >in/$((number % 7))/$number
    sync in/$((number % 7))/$number
    mv in/$((number % 7)) in/moved-$number
    mv -T in/moved-$number in/$((number % 7))
    head -c 100 /dev/urandom >>before
done
cd ../..
kill -INT $capture
wait $capture
"$1" replicate restore log --out copy
# Killed at the first, the middle and the last of its calls of each kind that changes a replica; what then goes on is
# killed at the next kind's.
strace -f -o calls "$1" replicate apply log --to whole
again=pwrite64
for name in openat pwrite64 fchownat fchmodat utimensat mkdirat renameat fdatasync syncfs; do
    last=$(grep -c "^[0-9]*  *$name(" calls)
    for at in $(printf '%s\n' 1 $((last / 2 + 1)) $last | uniq); do
        rm -rf replica
        code=0
        strace -f -o killed -e inject=$name:signal=KILL:when=$at "$1" replicate apply log --to replica || code=$?
        test $code = 137
        code=0
        strace -f -o killed -e inject=$again:signal=KILL:when=1 "$1" replicate apply log --to replica || code=$?
        test $code = 137 || test $code = 0
        "$1" replicate apply log --to replica
        same copy replica/tree
    done
    again=$name
done
same disk/app replica/tree
"#;

/// A first copy is ended by a signal, and the next capture goes on.
const BROKEN_OFF: &str = r#"
mkdir disk/app/many
for number in $(seq 600); do
    head -c 3000 /dev/urandom >disk/app/many/$number
done
records() {
    "$1" replicate --json log log 2>/dev/null | grep -c "$2" || true
}
# It would take half a minute. On a terminal it says how far it is, and ends when that is told to.
mkfifo keys
script -qefc "exec '$1' replicate capture --tree disk/app --to log --rate-limit 64KiB >said" failure <keys >screen &
capture=$!
started=$capture
exec 3>keys
until test $(records "$1" '"record":"data"') -gt 5 && grep -q 'reading the tree  [1-9][0-9]* files in the log' failure; do
    kill -0 $capture
    sleep 0.05
done
printf '\003' >&3
exec 3>&-
code=0
wait $capture || code=$?
started=
test $code = 1
test ! -s said
test "$(grep -c 'error: ended while it read the tree: ' failure)" = 1
test $(records "$1" '"record":"epoch"') = 0
before=$(records "$1" '"record":"data"')
test $before -lt 600
code=0
"$1" replicate restore log --out copy 2>failure || code=$?
test $code = 2
grep -q 'has no epoch' failure
"$1" replicate --json capture --tree disk/app --to log >said &
capture=$!
ready said
kill -INT $capture
wait $capture
# What the log had was compared, not copied again.
differed=$(grep -o '"differed_bytes":[0-9]*' said | head -n 1 | grep -o '[0-9]*$')
test $differed = $((1800000 - 3000 * (before - 1)))
test $(records "$1" '"record":"start"') = 1
"$1" replicate restore log --out copy
same disk/app copy
"#;

#[test]
fn a_first_copy_ends_by_a_signal_and_the_next_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    on_ext4(BROKEN_OFF, folder.path());
}

#[test]
fn a_tree_is_followed_and_made_again() {
    let folder = tempfile::tempdir().unwrap();
    if !on_ext4(APPLY_SCRIPT, folder.path()) {
        return;
    }
    let records = std::fs::read_to_string(folder.path().join("records")).unwrap();
    let records: Vec<Value> = records
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let numbers = (1..).zip(&records);
    for (number, record) in numbers {
        assert_eq!(record["number"], number, "{record}");
    }
    let exact = records
        .iter()
        .filter(|record| record["record"] == "data" && record["origin"] == "exact");
    let bytes: u64 = exact.map(|record| record["bytes"].as_u64().unwrap()).sum();
    assert_eq!(bytes, 4 + 300_000, "each byte was seen as it was written");
    assert_eq!(records.last().unwrap()["record"], "epoch");
}

/// The source is compared with its log while programs write to it.
const LIVE: &str = r#"
"$1" replicate --json capture --tree disk/app --to log >said &
capture=$!
ready said
verify() {
    code=0
    "$1" replicate --json verify log --against disk/app --privileged --live "$2" >verdict 2>failure || code=$?
}
# What changes for a while is equal when it rests.
(for number in $(seq 100); do echo $number >>disk/app/busy; mv disk/app/busy disk/app/moved; mv disk/app/moved disk/app/busy; done) &
writer=$!
verify "$1" 60s
test $code = 0
grep -q '"equal":true' verdict
wait $writer
# What never rests is not known. A program that has no turn for a moment rests: then again.
(while :; do echo one more >>disk/app/busy; done) &
started="$started $!"
for attempt in $(seq 20); do
    verify "$1" 1s
    test $code = 0 || break
done
test $code = 1
grep -q '"differences":0,' verdict
grep -q '"path":"busy"' verdict
grep -q '^error: 0 differences, [12] undecided$' failure
kill $!
wait $! || true
# What rests and differs, differs: here nobody has seen it.
kill -INT $capture
wait $capture
verify "$1" 60s
test $code = 0
echo unseen >>disk/app/before
verify "$1" 60s
test $code = 1
grep -q '"undecided":0[,}]' verdict
grep -q '"path":"before"' verdict
"#;

#[test]
fn a_source_is_compared_while_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    on_ext4(LIVE, folder.path());
}

/// The tree is made of the log alone, compared, and removed, whatever comes.
const REBUILT: &str = r#"
"$1" replicate --json capture --tree disk/app --to log >said &
capture=$!
ready said
cd disk/app
mkdir deep
head -c 300000 /dev/urandom >deep/bytes
ln deep/bytes again
mknod null c 1 3
(cd deep && seq 3000 | xargs touch)
cd ../..
kill -INT $capture
wait $capture
mkdir place
nothing_stays() {
    test -z "$(ls -A place)"
    test -z "$(find . -name '.lowroad-rebuild-*')"
}
"$1" replicate verify log --rebuild >said
grep -q '^equal  epoch.*  log and rebuilt tree$' said
nothing_stays
"$1" replicate verify log --rebuild --privileged --in place --against disk/app >said
grep -q '^equal  epoch.*  log and rebuilt tree$' said
grep -q '^equal  epoch.*  rebuilt tree and disk/app$' said
nothing_stays
"$1" replicate --json verify log --rebuild --epoch 1 >said
grep -q '"epoch":1,.*"names":1,' said
"$1" replicate restore log --out copy
chmod 641 copy/deep/bytes
code=0
"$1" replicate verify log --rebuild --against copy >verdict 2>failure || code=$?
test $code = 1
grep -q '^mode  .*\./again  rebuilt: 0644  folder: 0641$' verdict
grep -q '^error: 2 differences$' failure
code=0
"$1" replicate --json verify log --rebuild --against copy >verdict 2>failure || code=$?
test $code = 1
grep -q '"equal":false' verdict
grep -q '"folder":"0641","path":"again","ranges":\[\],"rebuilt":"0644"' verdict
mkdir small
mount -t tmpfs -o size=64k small small
code=0
"$1" replicate verify log --rebuild --in small >verdict 2>failure || code=$?
test $code = 2
grep -q '^error: small has room for .*: name another place$' failure
# Ctrl-C, wherever it is by then.
for try in $(seq 20); do
    "$1" replicate verify log --rebuild --in place >interrupted 2>&1 &
    verify=$!
    until ls place/.lowroad-rebuild-* >/dev/null 2>&1 || ! kill -0 $verify 2>/dev/null; do :; done
    code=0
    kill -INT $verify || true
    wait $verify || code=$?
    nothing_stays
    test $code = 0 || break
done
test $code = 1
"#;

#[test]
fn a_tree_is_made_of_its_log_compared_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    on_ext4(REBUILT, folder.path());
}

/// A capture that is killed leaves a journal, until one is told to keep none.
const PINNED: &str = r#"
capture() {
    : >said
    "$@" >>said 2>errors &
    capture=$!
    ready said
}
code=0
"$1" replicate capture --tree disk/app --to log --pin=disk >said 2>errors || code=$?
test $code = 3
grep -q 'no BPF file system: mount -t bpf bpf /sys/fs/bpf' errors
mount -t bpf bpf /sys/fs/bpf
(cd disk/app && seq 300 | xargs touch && sync -f .)
: >said
for try in $(seq 50); do
    capture "$1" replicate --json capture --tree disk/app --to log --pin
    ! grep -q '"by_journal":true,' said || break
    for tick in $(seq 10); do
        echo $tick >disk/app/tick
        sleep 0.05
    done
    kill -KILL $capture
    wait $capture || true
    test -n "$(ls /sys/fs/bpf/lowroad/*/label)"
    echo unseen $try >disk/app/unseen
    mv disk/app/7 disk/app/seven-$try 2>/dev/null || true
done
grep -q '"by_journal":true,"differed_bytes":[0-9]*,"files":[12]\?[0-9]\{1,2\},' said
kill -INT $capture
wait $capture
"$1" replicate verify log --against disk/app --privileged | grep -q '^equal  epoch'
test -n "$(ls /sys/fs/bpf/lowroad/*/label)"
capture "$1" replicate --json capture --tree disk/app --to log
grep -q '"by_journal":false,' said
test -z "$(ls /sys/fs/bpf/lowroad)"
kill -INT $capture
wait $capture
"#;

#[test]
fn a_journal_outlives_its_capture() {
    let folder = tempfile::tempdir().unwrap();
    on_ext4(PINNED, folder.path());
}

/// Files that patterns exclude are in no copy, and no check reports them.
const FILTER_SCRIPT: &str = r#"
mkdir -p disk/app/cache disk/app/data
echo cached >disk/app/cache/one
echo kept >disk/app/data/one
"$1" replicate --json capture --tree disk/app --to log --exclude '*.tmp' --exclude /cache >said &
capture=$!
ready said
cd disk/app
echo first >data/two.tmp
mv data/two.tmp data/two
echo never >data/three.tmp
echo more >>cache/one
mv data/one cache/
ln before data/before
cd ../..
kill -INT $capture
wait $capture
"$1" replicate --json log log | grep -q '"exclude":\["\*.tmp","/cache"\],"include":\[\],.*"record":"patterns"'
"$1" replicate restore log --out copy
test "$(cd copy && find . | sort | tr '\n' ' ')" = ". ./before ./data ./data/before ./data/two "
test "$(cat copy/data/two)" = first
"$1" replicate verify log --against disk/app --privileged >verdict
grep -q '^equal  epoch.*  left out 2  ' verdict
"$1" replicate verify log --against copy | grep -q '^equal  epoch.* undecided 0  hash'
"$1" replicate verify log --against disk/app --privileged --live 60s | grep -q '^equal  epoch'
"$1" replicate verify log --rebuild --privileged --in . --against disk/app >verdict
grep -q '^equal  epoch.*  rebuilt tree and disk/app$' verdict
hash=$("$1" replicate hash --log log --privileged)
test "$hash" = "$("$1" replicate hash --tree disk/app --like log --privileged)"
test "$hash" = "$("$1" replicate hash --tree copy --privileged)"
test "$hash" != "$("$1" replicate hash --tree disk/app --privileged)"
# What belongs is missed all the same.
echo unseen >disk/app/data/unseen
code=0
"$1" replicate verify log --against disk/app >verdict || code=$?
test $code = 1
grep -q '^extra .*data/unseen' verdict
# Other patterns: the whole tree is compared, and the log has what these leave in.
: >said
"$1" replicate --json capture --tree disk/app --to log --include '*.tmp' --include cache/ >said &
capture=$!
ready said
kill -INT $capture
wait $capture
"$1" replicate restore log --out other
test "$(cd other && find . | sort | tr '\n' ' ')" = ". ./cache ./cache/one ./data ./data/three.tmp "
"$1" replicate verify log --against disk/app --privileged | grep -q '^equal  epoch.*  left out 4  '
test "$("$1" replicate --json log log | grep -c '"record":"start"')" = 1
"#;

#[test]
fn patterns_narrow_what_a_log_has() {
    let folder = tempfile::tempdir().unwrap();
    on_ext4(FILTER_SCRIPT, folder.path());
}

#[test]
fn apply_may_be_killed_at_any_call() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip(Class::Core, "no strace: apt install strace");
    }
    let folder = tempfile::tempdir().unwrap();
    on_ext4(KILL_SCRIPT, folder.path());
}

#[test]
fn what_cannot_be_done_is_said_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("tree")).unwrap();
    std::fs::create_dir_all(folder.path().join("empty")).unwrap();
    std::fs::create_dir_all(folder.path().join("full/of")).unwrap();
    for (asked, said) in [
        (
            &["replicate", "capture", "--tree", "tree", "--to", "tree/log"][..],
            "would be a change of the tree",
        ),
        (
            &["replicate", "capture", "--tree", "none", "--to", "log"],
            "none: No such file",
        ),
        (
            &[
                "replicate",
                "capture",
                "--tree",
                "tree",
                "--to",
                "log",
                "--exclude",
                "a[",
            ],
            "pattern \"a[\": ",
        ),
        (
            &[
                "replicate",
                "capture",
                "--tree",
                "tree",
                "--to",
                "log",
                "--include",
                "/",
            ],
            "pattern \"/\": it names the tree itself",
        ),
        (
            &["replicate", "log", "none"],
            "none: there is no log yet; start",
        ),
        (
            &[
                "replicate",
                "restore",
                "empty",
                "--epoch",
                "7",
                "--out",
                "out",
            ],
            "empty: there is no log yet",
        ),
        (
            &["replicate", "restore", "empty", "--out", "full"],
            "empty: there is no log yet",
        ),
        (
            &["replicate", "verify", "empty", "--against", "tree"],
            "empty: there is no log yet",
        ),
        (
            &["replicate", "verify", "empty", "--rebuild", "--in", "empty"],
            "is in empty, which is read",
        ),
        (
            &["replicate", "hash", "--tree", "none"],
            "none: No such file",
        ),
    ] {
        let text = refused(asked, 2, folder.path());
        assert!(text.contains(said), "{asked:?}: {text}");
    }
}
