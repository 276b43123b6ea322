//! The effect of `--arm` on a plan, and its refusals.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use super::*;

/// A program that says of itself what `lowroad` does.
const FAKE: &str = r#"#!/bin/sh
case "$1" in
    --version) echo "lowroad 9.9.9" ;;
    doctor) echo '{"checks": [{"group": "relay", "name": "recv"}]}' ;;
    *) echo "error: relay.toml:3: unknown key" >&2; exit 2 ;;
esac
"#;
/// One that accepts whatever it is asked.
const NEWER: &str = r#"#!/bin/sh
case "$1" in
    --version) echo "lowroad 10.0.0" ;;
    doctor) echo '{"checks": [{"group": "relay", "name": "recv"}, {"group": "relay", "name": "tc"}]}' ;;
esac
"#;

/// Writes a program and returns its path.
fn program(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn with(experiment: &str, options: &[String]) -> Result<Plan> {
    with_arms(catalog::find(experiment).unwrap(), options)
}

fn refusal(experiment: &str, options: &[&str]) -> String {
    let options: Vec<String> = options.iter().map(|text| (*text).to_owned()).collect();
    let error = with(experiment, &options).unwrap_err();
    let said = format!("{error:#}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn builds_take_the_place_of_the_arms() {
    let folder = tempfile::tempdir().unwrap();
    let old = program(folder.path(), "old", FAKE);
    let new = program(folder.path(), "new", NEWER);
    let options = [
        format!("old={}", old.display()),
        format!("new={},datapath=tc", new.display()),
    ];
    let plan = with("relay-delay", &options).unwrap();
    assert_eq!(plan.arms, ["old", "new"]);
    assert_eq!((plan.baseline.as_str(), plan.quick.arms.len()), ("old", 2));
    assert_eq!(plan.questions.len(), 1, "its own arms are not asked about");
    assert!(plan.questions[0].arms.is_empty());
    let headline = plan.questions[0].headline.as_ref().unwrap();
    assert_eq!(headline.arm, "new");
    assert_eq!(
        headline.text,
        "The delay_p50 of the build new is {ratio} times that of old"
    );
    assert_eq!(plan.questions[0].metrics[0], "delay_p50");
    let build = |name: &str| match &plan.custom[name] {
        CustomArm::Build(build) => build.identity.clone(),
        CustomArm::Program(_) => unreachable!("{name} is a build"),
    };
    let (old_build, new_build) = (build("old"), build("new"));
    assert_eq!(
        (old_build.arm.as_str(), new_build.arm.as_str()),
        ("recv", "tc")
    );
    assert_eq!(old_build.version, "lowroad 9.9.9");
    assert_eq!(old_build.bytes, FAKE.len() as u64);
    assert_ne!(old_build.hash, new_build.hash);
    assert!(new_build.path.starts_with('/'), "{}", new_build.path);
    let only = plan.narrowed(true, &["new".to_owned()], Some(6)).unwrap();
    assert_eq!((only.baseline.as_str(), only.blocks), ("new", 6));
    assert!(only.questions[0].headline.is_none());
}

#[test]
fn program_joins_the_arms() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    fs::write(&file, "job = \"relay\"\nsetup = \"true\"\n").unwrap();
    let options = [format!("mine={}", file.display())];
    let plan = with("relay-delay", &options).unwrap();
    assert_eq!(plan.baseline, "recv");
    assert_eq!(plan.arms.last().unwrap(), "mine");
    assert!(plan.quick.arms.contains(&"mine".to_owned()));
    let question = plan.questions.last().unwrap();
    assert_eq!(question.arms, ["mine"]);
    assert!(
        !question.against.contains(&"recv".to_owned()),
        "it is the baseline"
    );
    assert!(matches!(&plan.custom["mine"], CustomArm::Program(_)));

    fs::write(&file, "setup = \"true {lisen}\"\n").unwrap();
    let said = refusal("relay-delay", &[&options[0]]);
    assert!(
        said.contains("mine.toml:1: ") && said.contains("did you mean {listen}?"),
        "{said}"
    );
    fs::write(&file, "job = \"router\"\nsetup = \"true\"\n").unwrap();
    let said = refusal("relay-delay", &[&options[0]]);
    assert!(
        said.contains("mine.toml:1: ") && said.contains("is of router"),
        "{said}"
    );
}

#[test]
fn path_that_is_no_build_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let build = program(folder.path(), "build", FAKE);
    let other = program(folder.path(), "other", "#!/bin/sh\necho hello 1.0\n");
    let plain = folder.path().join("plain");
    fs::write(&plain, FAKE).unwrap();
    let build = build.display();
    for (options, what) in [
        (vec!["old".to_owned()], "write NAME=PATH"),
        (vec!["old=".to_owned()], "the path is missing"),
        (
            vec!["old=/nonexistent/lowroad".to_owned()],
            "such as target/release/lowroad",
        ),
        (
            vec![format!("old={}", folder.path().display())],
            "name the program in it",
        ),
        (vec![format!("old={}", plain.display())], "chmod +x"),
        (
            vec![format!("old={}", other.display())],
            "is not lowroad: --version printed \"hello 1.0\"",
        ),
        (vec![format!("old={build}")], "name a second one"),
        (
            vec![format!("old={build}"), format!("old={build}")],
            "is used twice",
        ),
        (vec![format!("recv={build}")], "of its own"),
        (vec![format!("a b={build}")], "letters, digits"),
        (
            vec![format!("old={build},datapath=floor")],
            "the arm \"floor\" of relay does not start lowroad",
        ),
        (vec!["mine=/nonexistent.toml".to_owned()], "No such file"),
    ] {
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let said = refusal("relay-delay", &options);
        assert!(said.contains(what), "{options:?}: {said}");
    }
    let said = refusal("replicate-pwrite", &[&format!("old={build}")]);
    assert!(
        said.contains("\"none\", does not start lowroad") && said.contains(",datapath=journal"),
        "{said}"
    );
}

#[test]
fn build_that_cannot_run_the_experiment_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (
        program(folder.path(), "old", FAKE),
        program(folder.path(), "new", NEWER),
    );
    let (old, new) = (old.display(), new.display());
    for (arms, what) in [
        (
            [format!("a={new}"), format!("b={old},datapath=tc")],
            "it has no datapath \"tc\" of relay; name another build",
        ),
        (
            [format!("a={new}"), format!("b={old}")],
            "error: relay.toml:3: unknown key; name another build",
        ),
    ] {
        let plan = with("relay-delay", &arms).unwrap();
        let said = format!("{:#}", check_builds(&plan).unwrap_err());
        assert!(said.contains(what) && said.contains("--arm b: /"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let plan = with(
        "relay-delay",
        &[format!("a={new}"), format!("b={new},datapath=tc")],
    );
    check_builds(&plan.unwrap()).unwrap();
}
