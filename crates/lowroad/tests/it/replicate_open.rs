//! What epochs wait for, as whoever asks sees it.

use std::fs;

use serde_json::Value;

use crate::replicate_command::on_ext4;

/// A program that writes on and on and syncs nothing: what it has written is read now and then.
const WRITING: &str = r#"
mkdir disk/app/deep
cat >run.toml <<END
[replicate]
control = "run.sock"
[[capture]]
tree = "disk/app"
log = "log"
journal = true
END
"$1" replicate --json run --config run.toml >run.said &
run=$!
started=$run
ready run.said
(until test -e enough; do
    echo line
    sleep 0.01
done) >disk/app/deep/lines &
writer=$!
started="$run $writer"
shows() {
    "$1" replicate status --control run.sock >$2
    grep -q '^  open  ' $2
}
until shows "$1" status; do
    kill -0 $run
done
is_open() {
    "$1" replicate --json status --control run.sock >status.json
    ! grep -q '"listed": \[\]' status.json
}
until is_open "$1"; do
    kill -0 $run
done
touch enough
wait $writer
started=$run
while shows "$1" later; do
    kill -0 $run
done
kill -TERM $run
wait $run
started=
"#;

#[test]
fn what_is_in_doubt_is_listed_until_it_has_been_read() {
    let folder = tempfile::tempdir().unwrap();
    if !on_ext4(WRITING, folder.path()) {
        return;
    }
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let status = read("status");
    assert!(status.contains("  open  deep/lines  "), "{status}");
    let status: Value = serde_json::from_str(&read("status.json")).unwrap();
    let open = &status["parts"][0]["counts"]["open"];
    let listed = open["listed"].as_array().unwrap();
    assert_eq!(open["parts"], listed.len(), "{open:#}");
    assert_eq!(listed[0]["path"], "deep/lines", "{open:#}");
    assert!(listed[0]["part"].is_string(), "{open:#}");
}
