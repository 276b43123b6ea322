//! Continuing a record that does not exist, and interrupting an experiment.

use crate::common::{lowroad, path, stderr};

mod exclusive;

#[test]
fn resume_needs_a_record_to_go_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = lowroad(&["compare", "relay-delay", "--resume"])
        .output()
        .unwrap();
    assert_eq!(nothing.status.code(), Some(2));
    assert!(stderr(&nothing).contains("--out"), "{}", stderr(&nothing));
    if !sys::require::root() {
        return;
    }
    let out = folder.path().join("none");
    let absent = lowroad(&["compare", "relay-delay", "--resume", "--out", path(&out)])
        .output()
        .unwrap();
    let said = stderr(&absent);
    assert_eq!(absent.status.code(), Some(2), "{said}");
    assert!(
        said.contains("leave --resume out") && said.lines().count() == 1,
        "{said}"
    );
    assert!(!out.exists(), "no folder is made");
}
