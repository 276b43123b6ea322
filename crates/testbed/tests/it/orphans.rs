//! A maker that is killed leaves a bed that `clean` removes, and an interrupted one leaves nothing.

#![allow(clippy::print_stdout, reason = "the child speaks to its test")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use test_support::{cleaning, test_path};
use testbed::{Bed, HostSpec, LinkKind, LinkSpec, Topology};

use crate::bed_lock;

/// Says, in a child, that it is one.
const ROLE: &str = "LOWROAD_TEST_BED_MAKER";

fn topology() -> Topology {
    let mut topology = Topology::default();
    for name in ["sender", "relay"] {
        topology.host.insert(name.to_owned(), HostSpec::native());
    }
    topology.link = vec![LinkSpec::new(LinkKind::Bridge, &["sender", "relay"])];
    topology
}

/// Brings a bed up in another process, which runs the test of this name in this module as a child.
/// Its output stays open for as long as the last of the three is kept.
fn maker(test: &str) -> (Child, u32, BufReader<ChildStdout>) {
    // Blocked in every thread, the test harness's own included: one of them waits for it.
    let mut child = Command::new("env")
        .arg("--block-signal=INT")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", &test_path(module_path!(), test)])
        .env(ROLE, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let program = output
        .by_ref()
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.rsplit_once("program ")?.1.parse().ok());
    let program = program.expect("the maker says which program it started");
    (child, program, output)
}

/// The child's part: a bed with a program that starts another one, until a signal comes.
fn make_and_wait() {
    let mut interrupt = SigSet::empty();
    interrupt.add(Signal::SIGINT);
    let bed = Bed::up(&topology(), "maker").unwrap();
    // A program that has left its parent's process group, as daemons do.
    let mut shell = Command::new("sh");
    shell.args(["-c", "setsid sleep 300 & echo program $!; wait"]);
    let _child = bed.host("relay").unwrap().spawn(shell).unwrap();
    interrupt.wait().unwrap();
}

fn namespaces_of(pid: u32) -> usize {
    let mark = format!("lr-bed-{pid}-");
    let names = sys::netns::names();
    names.iter().filter(|name| name.starts_with(&mark)).count()
}

fn runs(pid: u32) -> bool {
    let owner = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    owner.is_ok_and(|stat| !stat.contains(") Z "))
}

fn wait_until(done: impl Fn() -> bool) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !done() {
        assert!(std::time::Instant::now() < until);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn clean_removes_what_a_killed_maker_left_and_nothing_of_a_living_one() {
    if std::env::var_os(ROLE).is_some() {
        return make_and_wait();
    }
    if !sys::require::root() {
        return;
    }
    let _beds = bed_lock::exclusive();
    let living = Bed::up(&topology(), "living").unwrap();
    let (mut child, program, _output) =
        maker("clean_removes_what_a_killed_maker_left_and_nothing_of_a_living_one");
    assert!(runs(program));
    assert_eq!(namespaces_of(child.id()), 3, "two hosts and a switch");
    let _turn = cleaning::turn();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(namespaces_of(child.id()), 3, "names outlive their maker");
    testbed::clean().unwrap();
    assert_eq!(namespaces_of(child.id()), 0);
    wait_until(|| !runs(program));
    assert_eq!(namespaces_of(std::process::id()), 3);
    drop(living);
    assert_eq!(namespaces_of(std::process::id()), 0);
}

#[test]
fn a_namespace_that_was_only_begun_is_removed() {
    if !sys::require::root() {
        return;
    }
    let _turn = cleaning::turn();
    // The rest of a creation that was cut short before the mount; no process with this number started then.
    let begun = std::path::Path::new("/run/netns/lr-bed-4194303-100-begun");
    std::fs::create_dir_all("/run/netns").unwrap();
    std::fs::write(begun, "").unwrap();
    testbed::clean().unwrap();
    assert!(!begun.exists());
}

#[test]
fn an_interrupted_maker_that_ends_in_order_leaves_nothing() {
    if std::env::var_os(ROLE).is_some() {
        return make_and_wait();
    }
    if !sys::require::root() {
        return;
    }
    let (mut child, program, _output) =
        maker("an_interrupted_maker_that_ends_in_order_leaves_nothing");
    let pid = Pid::from_raw(child.id().cast_signed());
    kill(pid, Signal::SIGINT).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(namespaces_of(child.id()), 0);
    wait_until(|| !runs(program));
}
