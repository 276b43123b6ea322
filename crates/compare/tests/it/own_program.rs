//! Arms of the user's own: what is refused before anything runs, and the examples that ship.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::common::{lowroad, path, program, stderr, stdout, succeeded};

mod exclusive;

/// The page that shows the example.
const PAGE: &str = include_str!("../../../../docs/src/own-program.md");
pub(crate) const EXAMPLE: &str = "../../examples/own-program";

#[test]
fn page_shows_the_example_that_ships() {
    for file in ["forwarder.py", "forwarder.toml"] {
        let text = fs::read_to_string(format!("{EXAMPLE}/{file}")).unwrap();
        let language = file.replace("forwarder.", "").replace("py", "python");
        let shown = format!("```{language}\n{text}```\n");
        assert!(PAGE.contains(&shown), "{file}");
    }
}

#[test]
fn dry_run_names_the_program() {
    let example = format!("mine={EXAMPLE}/forwarder.toml");
    let output = lowroad(&["compare", "relay-delay", "--dry-run", "--arm", &example]);
    let output = { output }.output().unwrap();
    succeeded(&output);
    let said = stdout(&output);
    let arms = said.lines().find(|line| line.starts_with("arms ")).unwrap();
    assert!(arms.ends_with(", mine"), "{said}");
    // It has one receiver under the first load, and all of them under the others.
    assert!(!said.contains("mine under"), "{said}");
}

#[test]
fn dry_run_names_the_builds() {
    let Some(build) = program() else {
        return;
    };
    let arms = ["old", "new"].map(|name| format!("{name}={}", build.display()));
    let words = [
        "compare",
        "relay-delay",
        "--dry-run",
        "--arm",
        &arms[0],
        "--arm",
        &arms[1],
    ];
    let output = lowroad(&words).output().unwrap();
    succeeded(&output);
    let said = stdout(&output);
    assert!(
        said.contains("baseline  old\narms      old, new\n"),
        "{said}"
    );
    let line = said
        .lines()
        .find(|line| line.starts_with("build     new lowroad "));
    assert!(line.unwrap().ends_with(", which runs recv"), "{said}");
}

#[test]
fn malformed_arm_is_refused_without_root() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    fs::write(&file, "job = \"relay\"\nsetup = \"true {lissten}\"\n").unwrap();
    let other = folder.path().join("other");
    fs::write(&other, "#!/bin/sh\necho other 1.0\n").unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    for (arm, what) in [
        (
            path(&file),
            "mine.toml:2: relay has no placeholder {lissten}; did you mean {listen}?",
        ),
        (
            path(&other),
            "is not lowroad: --version printed \"other 1.0\"",
        ),
        ("/nonexistent/lowroad", "name the file of a build"),
    ] {
        let arm = format!("mine={arm}");
        let output = lowroad(&["compare", "relay-delay", "--arm", &arm])
            .output()
            .unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(what) && said.lines().count() == 1, "{said}");
    }
}
