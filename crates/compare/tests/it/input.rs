//! Input is checked before anything runs: without root, and without leaving anything behind.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::common::{lowroad, stderr, stdout, succeeded};

/// The user and the group `nobody`.
const UNPRIVILEGED_UID: u32 = 65534;

#[test]
fn dry_run_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let output = lowroad(&["compare", "relay-delay", "--quick", "--dry-run"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    succeeded(&output);
    let said = stdout(&output);
    for what in [
        "relay-delay: ",
        " in 10 blocks, about ",
        "baseline  recv",
        "load      200B 10kpps N=1",
    ] {
        assert!(said.contains(what), "{what}: {said}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let limited = lowroad(&["compare", "relay-throughput", "--dry-run", "--blocks", "2"])
        .output()
        .unwrap();
    let said = stdout(&limited);
    assert!(said.contains(" in 2 blocks"), "{said}");
}

#[test]
fn malformed_file_is_refused_without_root() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    fs::write(&file, "name = \"mine\"\njob = \"relay\"\nblock = 2\n").unwrap();
    let mut command = lowroad(&["compare", "mine.toml"]);
    command.current_dir(folder.path());
    let output = command.output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(
        said,
        "error: mine.toml:3: unknown key \"block\"; did you mean \"blocks\"?\n"
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn clean_says_what_it_needs_root_for() {
    if !sys::require::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("lowroad-compare");
    fs::copy(env!("CARGO_BIN_EXE_lowroad-compare"), &program).unwrap();
    for path in [folder.path(), &program] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(path, mode).unwrap();
    }
    let as_nobody = |words: &[&str]| {
        let mut command = Command::new(&program);
        command
            .args(words)
            .uid(UNPRIVILEGED_UID)
            .gid(UNPRIVILEGED_UID);
        command.output().unwrap()
    };
    let clean = as_nobody(&["clean"]);
    let said = stderr(&clean);
    assert_eq!(clean.status.code(), Some(3), "{said}");
    assert!(
        said.contains("removes") && !said.contains("creates"),
        "{said}"
    );
    succeeded(&as_nobody(&["compare", "relay-delay", "--dry-run"]));
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let program = env!("CARGO_BIN_EXE_lowroad-compare");
    let output = Command::new("sh")
        .args(["-c", &format!("{program} compare --list | true")])
        .output()
        .unwrap();
    assert_eq!(stderr(&output), "");
}
