//! The real binary promotes a replica.

use std::fs;

use serde_json::Value;

use crate::replicate_command::on_ext4;

#[test]
fn promote_shows_what_is_lost_and_fences_the_source() {
    let folder = tempfile::tempdir().unwrap();
    let ran = on_ext4(
        r#"
"$1" replicate capture --tree disk/app --to log >capture.said & ready capture.said
source=$!
"$1" replicate apply log --to disk/replica
# Neither of the source that writes the log, nor of what is no replica.
code=0; "$1" replicate promote log --to disk/replica 2>busy || code=$?
test $code = 1; grep -q 'another program writes this log' busy
code=0; "$1" replicate promote log --to disk/app 2>none || code=$?
test $code = 2; grep -q 'there is no replica' none
echo later >disk/app/later; sync -f disk
until "$1" replicate log log | grep -q later; do sleep 0.01; done
kill $source; wait $source
"$1" replicate --json promote log --to disk/replica --dry-run >planned
test ! -e disk/replica/tree/later
"$1" replicate promote log --to disk/replica --no-loss >promoted
grep -q '^promoted  tree disk/replica/tree  log log  term 2  ' promoted
grep -q '^missing  nothing known$' promoted
grep -q '^next  lowroad replicate capture --tree disk/replica/tree --to log$' promoted
same disk/app disk/replica/tree
"$1" replicate promote log --to disk/replica | grep -q '^already promoted  '
for fresh in '' --fresh; do
    code=0; "$1" replicate capture --tree disk/app --to log $fresh 2>returned || code=$?
    test $code = 2; grep -q 'was promoted to term 2' returned
done
code=0; "$1" replicate apply log --to disk/replica 2>applied || code=$?
test $code = 2; grep -q 'was promoted' applied
"$1" replicate capture --tree disk/replica/tree --to log >capture.said & ready capture.said
echo new >disk/replica/tree/further
until "$1" replicate log log | grep -q further; do sleep 0.01; done
kill $!; wait $!
mkdir disk/back; mv disk/app disk/back/tree
"$1" replicate apply log --to disk/back --resync
same disk/back/tree disk/replica/tree
"#,
        folder.path(),
    );
    if ran {
        let planned = fs::read_to_string(folder.path().join("planned")).unwrap();
        let planned: Value = serde_json::from_str(&planned).unwrap();
        let would = &planned["would"];
        assert_eq!(would["term"], 2, "{planned}");
        assert!(would["applied"].as_u64().unwrap() > 0, "{planned}");
        assert_eq!(would["missing"]["epochs"], 0, "{planned}");
        assert_eq!(would["source"], Value::Null, "{planned}");
    }
}
