//! The real binary checks a tree beside its capture: what changes behind its back is said, counted and mended, and
//! what programs do meanwhile is no difference.

use std::fs;
use std::path::Path;

use serde_json::Value;
use test_support::exposition::Page;

use crate::replicate_command::{lowroad, on_ext4, refused};
use crate::scrape::BOOK;

const STATUS: &str = r#"
program=$1
# until_is SIDE PATTERN: its status is so, while its process, which has the same name here, lives
until_is() {
    until "$program" replicate --json status --control $1.sock | grep -q "$2"; do
        kill -0 ${!1}
        sleep 0.1
    done
}
"#;

const CHECK_SCRIPT: &str = r#"
echo 'a line that no other file has' >disk/app/marked
head -c 300000 /dev/urandom >>disk/app/marked
mkdir -p disk/app/one/deep disk/app/two/deep
echo one >disk/app/one/deep/file
echo two >disk/app/two/deep/file
cat >source.toml <<END
[replicate]
control = "source.sock"
http = { listen = "127.0.0.1:0", token_file = "$PWD/token" }
[[capture]]
tree = "disk/app"
log = "log"
check = "1s"
END
(umask 077; echo correct-horse-battery-staple >token)
"$1" replicate --json run --config source.toml >source.said 2>errors &
source=$!
ready source.said
until_is source '"rounds": [2-9]'
# Programs go on and on: names that mean other files all the time, files that grow and go.
(while :; do
    mv disk/app/one disk/app/three; mv disk/app/two disk/app/one; mv disk/app/three disk/app/two
    echo more >>disk/app/busy
    echo other >disk/app/short; rm disk/app/short
done) &
busy=$!
started="$started $busy"
# A byte changes on the disk, and no program did it.
sync -f disk/app
at=$(grep -abo 'a line that no other file has' image | head -n 1 | cut -d : -f 1)
printf A | dd of=image bs=1 seek=$at conv=notrunc status=none
dd if=disk/app/marked iflag=nocache count=0 status=none
head -n 1 disk/app/marked | grep -q '^A line'
until_is source '"mended": 1'
count() {
    "$program" replicate --json status --control source.sock | grep -o "\"$1\": [0-9]*" | grep -o '[0-9]*$'
}
rounds=$(count rounds)
until test "$(count rounds)" -ge $((rounds + 5)); do
    sleep 0.1
done
kill $busy
wait $busy || true
"$1" replicate --json status --control source.sock >status.json
"$1" replicate status --control source.sock | grep -q '^  check  rounds [0-9]*  differences 1  mended 1  undecided [0-9]*$'
scrape() {
    exec 3<>/dev/tcp/127.0.0.1/$1
    printf 'GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n' \
        $1 correct-horse-battery-staple >&3
    cat <&3
}
scrape $(grep -o '"http":"127.0.0.1:[0-9]*' source.said | grep -o '[0-9]*$') >metrics
kill -TERM $source
wait $source
started=
# The log has it now, and the epochs before as it was.
"$1" replicate verify log --against disk/app --privileged | grep -q '^equal  epoch'
"$1" replicate restore log --epoch 1 --out before
head -n 1 before/marked | grep -q '^a line'
"#;

/// What the check has counted: one difference, which was said in one line, and mended.
fn said_once(folder: &Path, said: &str) -> Value {
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let errors = read("errors");
    let warned = errors.lines().filter(|line| line.contains("WARN"));
    let warned: Vec<_> = warned.collect();
    assert_eq!(warned.len(), 1, "{errors}");
    assert!(warned[0].ends_with(said), "{errors}");
    let status: Value = serde_json::from_str(&read("status.json")).unwrap();
    let check = &status["parts"][0]["counts"]["check"];
    let counts = (&check["differences"], &check["mended"]);
    assert_eq!(counts, (&1.into(), &1.into()), "{check}");
    check.clone()
}

#[test]
fn what_changes_behind_a_capture_is_said_counted_and_mended() {
    let folder = tempfile::tempdir().unwrap();
    if !on_ext4(&format!("{STATUS}{CHECK_SCRIPT}"), folder.path()) {
        return;
    }
    let check = said_once(
        folder.path(),
        "disk/app/marked: the log has not what the tree has: bytes from 0 on; it is read again",
    );
    assert!(
        check["names"].as_u64() > check["rounds"].as_u64(),
        "{check}"
    );
    let metrics = fs::read_to_string(folder.path().join("metrics")).unwrap();
    let page = Page::of_answer(&metrics);
    page.assert_documented(BOOK);
    let labels = [("part", "capture-1"), ("kind", "capture")];
    assert_eq!(
        page.value("lowroad_replicate_check_differences_total", &labels),
        1.0
    );
}

const REPLICA: &str = r#"
echo 'what the log says' >disk/app/marked
"$1" replicate --json capture --tree disk/app --to log >said &
capture=$!
ready said
cat >edge.toml <<END
[replicate]
control = "edge.sock"
[[apply]]
log = "log"
to = "replica"
check = "1s"
END
"$1" replicate --json run --config edge.toml >edge.said 2>errors &
edge=$!
ready edge.said
until_is edge '"rounds": [1-9]'
# The log goes on all the time, and the replica with it.
(while :; do
    echo more >>disk/app/busy; mkdir disk/app/short; rmdir disk/app/short; mv disk/app/busy disk/app/moved
    mv disk/app/moved disk/app/busy
    sleep 0.02
done) &
busy=$!
started="$started $busy"
# A byte is another one, at the time that the file had.
spoil() {
    printf "$1" | dd of=replica/tree/marked bs=1 conv=notrunc status=none
    touch -r disk/app/marked replica/tree/marked
}
spoil W
until_is edge '"differences": 1'
grep -q '^W' replica/tree/marked
spoil w
until_is edge '"mended": 1'
"$1" replicate --json status --control edge.sock >status.json
kill $busy
wait $busy || true
kill -INT $capture
wait $capture
kill -TERM $edge
wait $edge
started=
"$1" replicate verify log --against replica/tree | grep -q '^equal  epoch'
# What is wrong and removed is made again.
spoil W
code=0
"$1" replicate verify log --against replica/tree >verdict 2>failure || code=$?
test $code = 1
rm replica/tree/marked
"$1" replicate apply log --to replica --repair
"$1" replicate verify log --against replica/tree | grep -q '^equal  epoch'
"#;

#[test]
fn what_somebody_does_to_a_replica_is_said_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    if !on_ext4(&format!("{STATUS}{REPLICA}"), folder.path()) {
        return;
    }
    said_once(
        folder.path(),
        "replica/tree/marked: the tree has not what the log says: bytes from 0 on",
    );
}

#[test]
fn a_check_that_cannot_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("tree")).unwrap();
    let capture = ["replicate", "capture", "--tree", "tree", "--to", "log"];
    for (more, said) in [
        (&["--check", "10ms"][..], "a round takes 1s at least"),
        (&["--check", "often"], "not a duration"),
    ] {
        let asked = [&capture[..], more].concat();
        let output = lowroad(&asked, folder.path());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(said), "{text}");
    }
    let asked = "[[capture]]\ntree = \"tree\"\nlog = \"log\"\ncheck = \"1h\"\nallow = [\"mmap\"]\n";
    fs::write(folder.path().join("r.toml"), asked).unwrap();
    let run = ["replicate", "run", "--config", "r.toml", "--check"];
    let text = refused(&run, 2, folder.path());
    assert!(text.contains("check: not with allow"), "{text}");
}
