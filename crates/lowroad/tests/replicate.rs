//! The real binary follows a tree on ext4 into a log, and makes the tree again of it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use sys::require::{Class, skip};

/// In a mount namespace of its own, so that nothing stays mounted. Its argument is the program.
const FOLLOWED: &str = r#"
truncate -s 64M image
mkfs.ext4 -q image
mkdir disk
mount -o loop image disk
mkdir disk/app
echo before >disk/app/before
"$1" replicate --json capture --tree disk/app --to log >said &
capture=$!
until grep -q ready said; do
    kill -0 $capture
    sleep 0.01
done
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
list() {
    (cd "$1" && find . -printf '%P %y %m %U:%G %n %T@ %l\n' | sort)
}
list disk/app >source.list
list copy >copy.list
diff source.list copy.list
diff -r --no-dereference disk/app copy
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
until grep -q ready said; do
    kill -0 $capture
    sleep 0.01
done
grep -q '"epoch":'$((again + 1))[,}] said
grep -q '"differed_bytes":0,"files":7,"gone":0,"new":0,' said
test "$("$1" replicate --json log log | grep -c '"record":"start"')" = 1
echo later >disk/app/later
kill -INT $capture
wait $capture
"$1" replicate restore log --epoch $again --out before
"$1" replicate restore log --out after
diff -r --no-dereference copy before
diff -r --no-dereference disk/app after
"#;

fn lowroad(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lowroad"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn has(program: &str) -> bool {
    let found = Command::new("sh")
        .args([
            "-c",
            "PATH=$PATH:/usr/sbin:/sbin; command -v \"$0\"",
            program,
        ])
        .output();
    found.unwrap().status.success()
}

#[test]
fn a_tree_is_followed_and_made_again() {
    if !sys::require::root() {
        return;
    }
    if !has("mkfs.ext4") {
        skip(Class::Core, "no mkfs.ext4: apt install e2fsprogs");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let followed = Command::new("unshare")
        .args([
            "--mount",
            "--propagation",
            "private",
            "bash",
            "-euc",
            FOLLOWED,
            "test",
        ])
        .arg(env!("CARGO_BIN_EXE_lowroad"))
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .current_dir(folder.path())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, errors) = (text(&followed.stdout), text(&followed.stderr));
    assert!(followed.status.success(), "{out}{errors}");
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
            "--tree none: No such file",
        ),
        (&["replicate", "log", "none"], "none: No such file"),
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
            "has no epoch 7",
        ),
        (
            &["replicate", "restore", "empty", "--out", "full"],
            "has no epoch",
        ),
        (
            &["replicate", "verify", "empty", "--against", "tree"],
            "has no epoch",
        ),
        (
            &["replicate", "hash", "--tree", "none"],
            "none: No such file",
        ),
    ] {
        let refused = lowroad(asked, folder.path());
        let text = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{asked:?}: {text}");
        assert!(text.contains(said) && text.lines().count() == 1, "{text}");
    }
}
