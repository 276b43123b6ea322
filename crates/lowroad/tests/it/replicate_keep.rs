//! The real binary keeps logs to a size: asked once, or while it captures; and what it does where a log has no room.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use replicate::log::{Options, Writer};
use replicate::record::{Change, Entry, File, Kind, Name, Origin};
use serde_json::Value;

use crate::replicate_command::{LOWROAD, lowroad, on_ext4, refused};

/// A file that is written again for each epoch.
fn log(folder: &Path, epochs: std::ops::RangeInclusive<u64>) {
    let mut writer = Writer::open(&folder.join("log"), Options::default()).unwrap();
    let [root, file] = [2, 3].map(|inode| File {
        inode,
        generation: 0,
    });
    let mut say = |entry| writer.append(1, entry).unwrap();
    if *epochs.start() == 1 {
        say(Entry::Start { root });
        let kind = Kind::Regular;
        say(Entry::Change(Change::New { file, kind }));
        let (directory, name) = (root, Name::new(b"file").unwrap());
        say(Entry::Change(Change::Link {
            directory,
            name,
            file,
        }));
    }
    for number in epochs {
        say(Entry::Change(Change::Data {
            file,
            offset: 0,
            bytes: vec![number.to_le_bytes()[0]; 1000],
            origin: Origin::Exact,
        }));
        say(Entry::Epoch { number });
    }
    writer.sync().unwrap();
}

#[test]
fn a_log_is_compacted_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let said = refused(&["replicate", "compact", "log"], 2, folder);
    assert!(said.contains("log: there is no log yet"), "{said}");
    std::fs::create_dir(folder.join("empty")).unwrap();
    let said = refused(&["replicate", "compact", "empty"], 2, folder);
    assert!(said.contains("there is no log"), "{said}");
    assert_eq!(std::fs::read_dir(folder.join("empty")).unwrap().count(), 0);
    log(folder, 1..=50);
    let compact = |more: &[&str]| {
        let output = lowroad(&[&["replicate", "compact", "log"], more].concat(), folder);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let said: Value = serde_json::from_str(&compact(&["--epoch", "20", "--json"])).unwrap();
    assert_eq!(said["first_epoch"], 20, "{said:#}");
    assert!(said["saved_bytes"].as_u64().unwrap() > 18_000, "{said:#}");
    let restore = |epoch: &str| {
        let out = format!("out-{epoch}");
        let arguments = [
            "replicate",
            "restore",
            "log",
            "--out",
            &out,
            "--epoch",
            epoch,
        ];
        lowroad(&arguments, folder).status.code()
    };
    assert_eq!([restore("20"), restore("19")], [Some(0), Some(2)]);
    let said = refused(&["replicate", "compact", "log", "--epoch", "51"], 2, folder);
    assert!(said.contains("has no epoch 51"), "{said}");
    // Somebody writes it: what he is at cannot be folded.
    log(folder, 51..=60);
    let writer = Writer::open(&folder.join("log"), Options::default()).unwrap();
    let said = compact(&[]);
    assert!(said.starts_with("first epoch 50  folded "), "{said}");
    assert!(compact(&[]).starts_with("nothing to compact  log "));
    drop(writer);
    let said = compact(&[]);
    assert!(said.starts_with("first epoch 60  folded "), "{said}");
    assert!(compact(&[]).starts_with("nothing to compact  log "));
    assert_eq!([restore("60"), restore("59")], [Some(0), Some(2)]);
    log(folder, 61..=70);
    assert_eq!(restore("70"), Some(0));
}

#[test]
fn a_log_is_followed_for_as_long_as_somebody_reads() {
    let folder = tempfile::tempdir().unwrap();
    log(folder.path(), 1..=3);
    let mut follower = Command::new(LOWROAD)
        .args(["replicate", "log", "log", "--follow", "--from", "9"])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(follower.stdout.take().unwrap());
    let mut lines = said.lines().map(Result::unwrap);
    let last = lines.next().unwrap();
    assert!(last.contains("9  epoch"), "{last}");
    // What comes then is shown as it comes.
    log(folder.path(), 4..=4);
    let next: Vec<_> = lines.by_ref().take(2).collect();
    assert!(next[1].contains("11  epoch"), "{next:?}");
    drop(lines);
    // It notices with no other record.
    follower.wait().unwrap();
}

/// Runs a capture with a limit of its log, and a capture that continues the log.
const RETENTION_SCRIPT: &str = r#"
cat >run.toml <<END
[replicate]
control = "run.sock"
[[capture]]
name = "app"
tree = "disk/app"
log = "log"
keep = "1MiB"
END
"$1" replicate run --config run.toml >run.said &
run=$!
ready run.said
value() {
    "$1" replicate --json status --control run.sock | grep -o "\"$2\": [0-9]*" | grep -o '[0-9]*$'
}
writes() {
    for number in $(seq 40); do
        head -c 100000 /dev/urandom >disk/app/data
        sync disk/app/data
    done
}
equal() {
    until "$1" replicate verify log --against disk/app | grep -q '^equal'; do
        kill -0 $run
        sleep 0.05
    done
}
for round in 1 2; do
    writes
    # Those are on the disk; the log may not have all of them yet.
    equal "$1"
    until test $(value "$1" log_bytes) -lt 1048576; do
        kill -0 $run
        sleep 0.05
    done
done
first=$(value "$1" log_first_epoch)
test $first -gt 40
"$1" replicate status --control run.sock | grep -q "^app  running  .*  log bytes [0-9]*  from epoch $first$"
"$1" replicate restore log --out copy --epoch $first >restored
equal "$1"
kill -TERM $run
wait $run
echo later >disk/app/later
"$1" replicate run --config run.toml >run.said &
run=$!
ready run.said
# A line of its own, which may come a moment after the one that it is ready.
until grep -q '^app  compared [0-9]* files, [0-9]* B: 1 new, 0 gone, [0-9]* B differed$' run.said; do
    kill -0 $run
    sleep 0.05
done
"$1" replicate status --control run.sock | grep -q '^  compared [0-9]* files, [0-9]* B: 1 new, 0 gone, '
kill -TERM $run
wait $run
started=
"#;

#[test]
fn a_capture_keeps_its_log_to_a_size() {
    let folder = tempfile::tempdir().unwrap();
    on_ext4(RETENTION_SCRIPT, folder.path());
}

/// A log on a disk that is full: nothing is read for nothing, and all is there once it has room.
const FULL: &str = r#"
head -c 12000000 /dev/urandom >disk/app/large
mkdir small
mount -t tmpfs -o size=8M none small
cat >run.toml <<END
[replicate]
control = "run.sock"
[[capture]]
tree = "disk/app"
log = "small/log"
END
"$1" replicate run --config run.toml >run.said 2>run.failures &
run=$!
ready run.said
failures() {
    "$1" replicate --json status --control run.sock >status.json
    grep -o '"failures": [0-9]*' status.json | grep -o '[0-9]*$'
}
fails() {
    until test $(failures "$1") -ge $2; do
        kill -0 $run
        sleep 0.05
    done
}
read_bytes() {
    sed -n 's/^rchar: //p' /proc/$run/io
}
fails "$1" 1
before=$(read_bytes)
fails "$1" 3
test $(($(read_bytes) - before)) -lt 4000000
grep -q '"state": "retrying"' status.json
# How far it is behind, nobody knows.
grep -q '"lag_ms": null' status.json
grep -q '"lag_records": null' status.json
mount -o remount,size=64M small
until "$1" replicate status --control run.sock | grep -q '^capture-1  running'; do
    kill -0 $run
    sleep 0.05
done
kill -TERM $run
wait $run
started=
"$1" replicate verify small/log --against disk/app --privileged | grep -q '^equal  epoch'
"#;

#[test]
fn a_full_disk_is_looked_at_before_the_tree() {
    let folder = tempfile::tempdir().unwrap();
    on_ext4(FULL, folder.path());
}
