//! Ctrl-C in the middle of an experiment. The tests of `experiment` compare a continued record with that of an
//! uninterrupted run.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{alone, lowroad, path, record, stderr, succeeded};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use test_support::cleaning;

/// The bare link alone: what is tested is the experiment around it. The peer is in no PATH here.
const PLAN: &str = r#"
name = "bare"
job = "relay"
about = "The bare link alone"
measure = "delay"
baseline = "floor"
arms = ["floor", "quilkin"]
blocks = 6
idle = "burner"
primary = ["delay_p50"]

[[load]]
payload = "200B"
rate = "1kpps"
subscribers = 1
duration = "20ms"

[[question]]
text = "Is a bare link as fast as itself?"
metrics = ["delay_p50"]

[quick]
arms = ["floor"]
"#;

/// Blocks of the whole experiment: fewer than the plan's, as no interval is looked at.
const BLOCKS: usize = 3;
/// Trials in a block: the baseline's three.
const BLOCK: usize = 3;

fn compare(plan: &Path, out: &Path, more: &[&str]) -> std::process::Command {
    // Tests run beside it, which disturb its trials: another attempt would be disturbed too.
    let fewer = ["--blocks", &BLOCKS.to_string(), "--attempts", "1"];
    let mut command = lowroad(&["compare", path(plan), "--out", path(out)]);
    command.args(fewer).args(more).env("PATH", "/usr/bin:/bin");
    command
}

/// Starts the experiment and sends SIGINT once it says that the first block is complete.
fn interrupted(plan: &Path, out: &Path) -> Output {
    alone(|| {
        let mut command = compare(plan, out, &["--seed", "7"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        hear(&mut errors, &mut said, "block 1/");
        interrupt(&child);
        end(child, errors, said)
    })
}

/// Reads until a line begins so. Of one that is refused, or fails, the lines end: its status tells.
fn hear(errors: &mut impl BufRead, said: &mut String, words: &str) {
    let heard = |said: &str| said.lines().any(|line| line.starts_with(words));
    while !heard(said) && errors.read_line(said).unwrap() > 0 {}
}

fn interrupt(child: &Child) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    // An error here is the child having ended by itself: its status tells.
    let _sent = kill(pid, Signal::SIGINT);
}

fn end(child: Child, mut errors: impl BufRead, mut said: String) -> Output {
    errors.read_to_string(&mut said).unwrap();
    let mut output = child.wait_with_output().unwrap();
    output.stderr = said.into_bytes();
    output
}

/// Which trials ran, in their order, however many attempts each took.
fn trials(record: &[Value]) -> Vec<[Value; 5]> {
    let of =
        |trial: &Value| ["block", "load", "arm", "repeat", "seed"].map(|key| trial[key].clone());
    let ran = record.iter().skip(1);
    ran.filter(|trial| trial["attempt"] == 0).map(of).collect()
}

/// Blocks of two builds are never put into one record.
fn of_another_build_is_refused(plan: &Path, out: &Path) {
    let path = out.join("record.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let header: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let build = header["machine"]["build"]["lowroad-compare"]
        .as_str()
        .unwrap();
    fs::write(&path, text.replace(build, "0123456789abcdef")).unwrap();
    let refused = alone(|| {
        let output = compare(plan, out, &["--resume"]).output().unwrap();
        assert!(!output.status.success());
        output
    });
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(
        said.contains("build differ") && said.contains("--out") && said.lines().count() == 1,
        "{said}"
    );
    assert_eq!(record(out).len(), text.lines().count(), "nothing was added");
    fs::write(&path, text).unwrap();
}

#[test]
fn ctrl_c_keeps_whole_blocks() {
    if !sys::require::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("bare.toml");
    fs::write(&plan, PLAN).unwrap();
    let [cut, before] = ["cut", "before"].map(|name| folder.path().join(name));

    let output = interrupted(&plan, &cut);
    succeeded(&output);
    let kept = trials(&record(&cut));
    let blocks = kept.len() / BLOCK;
    assert!(
        (1..BLOCKS).contains(&blocks),
        "{blocks} blocks:\n{}",
        stderr(&output)
    );
    assert_eq!(kept.len(), BLOCK * blocks, "only whole blocks");
    let said = stderr(&output);
    assert!(
        said.contains(&format!("interrupted: {blocks} blocks kept")),
        "{said}"
    );
    assert!(said.contains("stopping after this trial"), "{said}");
    assert!(
        said.contains("--seed 7") && said.contains("--resume"),
        "{said}"
    );
    assert!(
        said.contains("skipped quilkin: quilkin is not installed"),
        "{said}"
    );
    assert!(
        cut.join("report.html").is_file(),
        "what there is was reported"
    );

    of_another_build_is_refused(&plan, &cut);
    fs::create_dir(&before).unwrap();
    fs::copy(cut.join("record.jsonl"), before.join("record.jsonl")).unwrap();

    let other = compare(&plan, &cut, &["--resume", "--seed", "8"]);
    let refused = { other }.output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("has the seed 7, not 8; leave --seed out"),
        "{}",
        stderr(&refused)
    );
    succeeded(&alone(|| {
        compare(&plan, &cut, &["--resume"]).output().unwrap()
    }));
    let whole = record(&cut);
    assert_eq!(whole[0]["seed"], 7);
    let ran = trials(&whole);
    assert_eq!(ran[..kept.len()], kept);
    assert_eq!(ran.len(), BLOCK * BLOCKS, "{ran:?}");
    for (number, [block, ..]) in ran.iter().enumerate() {
        assert_eq!(*block, number / BLOCK, "{ran:?}");
    }

    let burning = |trial: &Value| trial["environment"]["idle"] == "burner";
    assert!(whole.iter().skip(1).all(burning));
    let refused = compare(&plan, &cut, &[]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    let both = lowroad(&["report", path(&before), path(&cut)])
        .output()
        .unwrap();
    succeeded(&both);
}

/// Starts the experiment, waits until its first trial has begun, and sends SIGINT twice.
fn interrupt_twice(plan: &Path, out: &Path, has_begun: impl Fn(&Child) -> bool) -> Output {
    let mut command = compare(plan, out, &["--seed", "7"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let deadline = Instant::now() + Duration::from_secs(60);
    // Stopped before it has begun a trial it would end by itself.
    while !has_begun(&child) && child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "no trial begins in a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
    interrupt(&child);
    let mut said = String::new();
    hear(&mut errors, &mut said, "stopping after this trial");
    interrupt(&child);
    end(child, errors, said)
}

#[test]
fn second_ctrl_c_ends_at_once() {
    if !sys::require::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("long.toml");
    // Longer than anybody waits.
    fs::write(&plan, PLAN.replace("\"20ms\"", "\"600s\"")).unwrap();
    let output = alone(|| {
        let out = tempfile::tempdir_in(folder.path())
            .unwrap()
            .path()
            .join("out");
        interrupt_twice(&plan, &out, |child| !made_by(child.id()).is_empty())
    });
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("sudo lowroad clean"), "{said}");
    let _turn = cleaning::turn();
    succeeded(&lowroad(&["clean"]).output().unwrap());
}

#[test]
fn second_ctrl_c_runs_teardown() {
    if !sys::require::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("made");
    let plan = folder.path().join("long.toml");
    let text = PLAN
        .replace("\"20ms\"", "\"600s\"")
        .replace("\"floor\", \"quilkin\"", "\"mine\"");
    let arm = "\n[[arm]]\nname = \"mine\"\nsetup = \"touch {here}/made\"\nteardown = \"rm {here}/made\"\n";
    fs::write(&plan, text.replace("\"floor\"", "\"mine\"") + arm).unwrap();
    let output = alone(|| {
        let out = tempfile::tempdir_in(folder.path()).unwrap();
        let out = out.path().join("out");
        interrupt_twice(&plan, &out, |_| made.exists())
    });
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(!made.exists(), "{}", stderr(&output));
    let _turn = cleaning::turn();
    succeeded(&lowroad(&["clean"]).output().unwrap());
}

/// A server in a container, for longer than anybody waits.
const LONG: &str = r#"
name = "long"
job = "netbench"
about = "Round trips to a container"
measure = "exchange"
baseline = "oci/bridge"
arms = ["oci/bridge"]
blocks = 6
idle = "none"
primary = ["tcp_rr_us_p50"]

[[load]]
options = { test = "tcp_rr" }
duration = "600s"

[[question]]
text = "How long does a round trip take?"
metrics = ["tcp_rr_us_p50"]

[quick]
blocks = 6
"#;

/// Namespaces, folders and control groups that a process has made.
fn made_by(pid: u32) -> Vec<String> {
    let mark = format!("lr-bed-{pid}-");
    let groups = fs::read_dir("/sys/fs/cgroup").into_iter().flatten();
    let groups = groups.flatten().map(|entry| entry.path());
    let temporary = std::env::temp_dir();
    let places = ["/run/netns", "/sys/fs/cgroup"].map(Into::into);
    let places = places.into_iter().chain([temporary]).chain(groups);
    let entries = places.flat_map(|place| fs::read_dir(place).into_iter().flatten().flatten());
    let paths = entries.map(|entry| entry.path().display().to_string());
    let mut made: Vec<_> = paths.filter(|path| path.contains(&mark)).collect();
    made.sort();
    made.dedup();
    made
}

#[test]
fn clean_removes_remains_of_kill() {
    if !sys::require::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("long.toml");
    fs::write(&plan, LONG).unwrap();
    let output = alone(|| {
        let out = tempfile::tempdir_in(folder.path()).unwrap();
        let out = out.path().join("out");
        let mut command = lowroad(&["compare", path(&plan), "--out", path(&out)]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        // Two hosts and what is between them, and the container's own.
        let whole = |made: &[String]| {
            let of = |place: &str| made.iter().filter(|path| path.starts_with(place)).count();
            of("/run/netns") >= 3 && of("/sys/fs/cgroup") > 0
        };
        while !whole(&made_by(child.id())) && child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "nothing is made in a minute");
            std::thread::sleep(Duration::from_millis(20));
        }
        let pid = child.id();
        let _turn = cleaning::turn();
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        if output.status.code().is_none() {
            assert!(whole(&made_by(pid)), "it outlives its maker");
            succeeded(&lowroad(&["clean"]).output().unwrap());
            assert_eq!(made_by(pid), Vec::<String>::new());
        }
        output
    });
    assert_eq!(output.status.code(), None, "{}", stderr(&output));
}
