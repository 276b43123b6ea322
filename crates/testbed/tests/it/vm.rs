//! Virtual machines carry packets over both kinds of link, run programs, wait for the next bed, and leave nothing.

#![allow(clippy::print_stdout, reason = "the child speaks to its test")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sys::require::{Class, skip};
use test_support::cleaning;
use testbed::{
    Bed, Child, Host, HostSpec, InstancePool, Kind, LinkKind, LinkSpec, Program, Stream, Topology,
};

use crate::bed_lock;

/// Says, in a child, that it is one.
const ROLE: &str = "LOWROAD_TEST_VM_MAKER";

/// Whether guests boot here; reports the skip when not.
fn present(env: &str) -> bool {
    if !sys::require::root() {
        return false;
    }
    match (Kind::find(env).unwrap().probe)() {
        Ok(()) => true,
        Err(missing) => {
            let reason = format!("{}; {}", missing.what, missing.remedy);
            skip(Class::Core, &reason);
            false
        }
    }
}

fn pair(env: &str, kind: LinkKind) -> Topology {
    let mut topology = Topology::default();
    for (name, env) in [("client", "native"), ("server", env)] {
        let mut host = HostSpec::native();
        host.env = env.to_owned();
        topology.host.insert(name.to_owned(), host);
    }
    topology.link = vec![LinkSpec::new(kind, &["client", "server"])];
    topology
}

/// Whether an echo of each family comes back from the guest.
fn echoes(bed: &Bed) -> bool {
    let client = bed.host("client").unwrap();
    let server = bed.host("server").unwrap().interface("client").unwrap();
    [server.v4, server.v6].iter().all(|address| {
        let mut ping = Command::new("ping");
        ping.args(["-c", "1", "-W", "5", &address.to_string()]);
        ping.stdout(Stdio::null());
        client.spawn(ping).unwrap().wait().unwrap().success()
    })
}

/// The output of a program in the host, and its exit code.
fn printed(host: &Host, program: Program) -> (String, Option<i32>) {
    let mut child = host.start(program.stdout(Stream::Piped)).unwrap();
    let mut said = String::new();
    child.stdout().unwrap().read_to_string(&mut said).unwrap();
    (said, child.wait().unwrap().code())
}

fn shell(script: &str) -> Program {
    Program::new("sh").args(["-c", script])
}

/// A program that goes on, and has begun.
fn sleeper(host: &Host) -> Child {
    let program = shell("echo begun; read -r never").stdin(Stream::Piped);
    let mut child = host.start(program.stdout(Stream::Piped)).unwrap();
    let mut line = String::new();
    let output = BufReader::new(child.stdout().unwrap()).read_line(&mut line);
    assert_eq!((output.unwrap(), line.as_str()), (6, "begun\n"));
    child
}

fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

fn wait_until(done: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Namespaces and folders of temporary files that a process has.
fn left_by(pid: u32) -> Vec<String> {
    let mut names = sys::netns::names();
    names.retain(|name| name.starts_with(&format!("lr-bed-{pid}-")));
    let folders = fs::read_dir(std::env::temp_dir()).unwrap();
    let folders = folders.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.extend(folders.filter(|name| name.starts_with(&format!("lr-bed-{pid}-"))));
    names
}

#[test]
fn a_guest_boots_once_and_is_plugged_into_links_of_both_kinds() {
    if !present("vm") {
        return;
    }
    let _beds = bed_lock::exclusive();
    let pool = InstancePool::new();
    let mut pids = Vec::new();
    for (run, kind) in [
        ("direct", LinkKind::Direct),
        ("bridge", LinkKind::Bridge),
        ("again", LinkKind::Direct),
    ] {
        let bed = Bed::up(&pair("vm", kind), run).unwrap();
        assert!(echoes(&bed), "{run}");
        let child = sleeper(bed.host("server").unwrap());
        assert_eq!(bed.settings()["link.client-server.kind"], run_kind(kind));
        pids.push(child.id());
    }
    pids.dedup();
    assert_eq!(pids.len(), 1, "one boot");
    assert!(runs(pids[0]));
    drop(pool);
    wait_until(|| !runs(pids[0]));
    assert_eq!(left_by(std::process::id()), Vec::<String>::new());
}

#[test]
fn guests_boot_ahead_once_each_and_stay_beyond_a_block_where_they_are_emulated() {
    if !present("vm") || !present("vm-rt") {
        return;
    }
    let _beds = bed_lock::exclusive();
    let pool = InstancePool::new();
    let guests = || {
        let mut names = left_by(std::process::id());
        names.retain(|name| name.contains("-vm-"));
        names
    };
    let hosts = ["vm", "vm-oci", "vm-rt", "native"].map(HostSpec::of);
    testbed::boot_ahead(&hosts, 1);
    let ahead = guests();
    assert_eq!(ahead.len(), 2, "one of each kernel: {ahead:?}");
    for env in ["vm", "vm-rt"] {
        let bed = Bed::up(&pair(env, LinkKind::Direct), "ahead").unwrap();
        assert!(echoes(&bed));
        assert_eq!(guests(), ahead, "no other boots");
        let emulated = bed.host("server").unwrap().facts()["emulated"] == true;
        // It waits before the rest of the bed is gone.
        let remains = bed.leave();
        let next = Bed::up(&pair(env, LinkKind::Bridge), "next").unwrap();
        assert!(echoes(&next));
        assert_eq!(guests(), ahead);
        drop((remains, next));
        if env == "vm-rt" {
            pool.end_of_block();
            assert_eq!(guests().is_empty(), !emulated);
        }
    }
    drop(pool);
    assert_eq!(left_by(std::process::id()), Vec::<String>::new());
}

fn run_kind(kind: LinkKind) -> &'static str {
    match kind {
        LinkKind::Bridge => "bridge",
        _ => "direct",
    }
}

#[test]
fn programs_of_this_machine_run_in_the_guest_with_what_they_need() {
    if !present("vm-rt") {
        return;
    }
    let _beds = bed_lock::exclusive();
    let bed = Bed::up(&pair("vm-rt", LinkKind::Direct), "programs").unwrap();
    let server = bed.host("server").unwrap();
    // Libraries are put in with the program; the guest has a kernel of its own.
    let mut needed = tempfile::NamedTempFile::new().unwrap();
    needed.write_all(b"of this machine\n").unwrap();
    let program = Program::new("cat")
        .args([needed.path(), Path::new("/sys/kernel/realtime")])
        .needs(needed.path());
    assert_eq!(
        printed(server, program),
        ("of this machine\n1\n".to_owned(), Some(0))
    );
    let kernel = server.facts()["kernel"].to_string();
    assert!(kernel.contains("-rt-amd64"), "{kernel}");
    let vhost = Path::new("/dev/vhost-net").exists();
    assert_eq!(
        server.facts()["vhost"],
        vhost,
        "whether it was there is told"
    );
    assert_eq!(printed(server, shell("exit 7")), (String::new(), Some(7)));
    // More than the port carries at a time comes whole and in order.
    let (said, _) = printed(
        server,
        shell("i=0; while [ $i -lt 40000 ]; do echo $i; i=$((i+1)); done"),
    );
    assert_eq!(said.lines().count(), 40_000);
    assert_eq!(said.lines().last(), Some("39999"));
    let mut child = sleeper(server);
    child.signal(Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::SIGTERM as i32));
    let error = server.start(Program::new("/no/such/program")).unwrap_err();
    assert!(error.to_string().contains("No such file"), "{error}");
    let folder = Program::new("cat").needs(std::env::temp_dir());
    let error = server.start(folder).unwrap_err().to_string();
    assert!(error.contains("shares no folder"), "{error}");
}

#[test]
fn a_container_in_a_guest_has_a_root_of_its_own_and_the_guests_network() {
    if !present("vm-oci") {
        return;
    }
    let _beds = bed_lock::exclusive();
    let bed = Bed::up(&pair("vm-oci", LinkKind::Direct), "contained").unwrap();
    assert!(echoes(&bed));
    let server = bed.host("server").unwrap();
    let mut needed = tempfile::NamedTempFile::new().unwrap();
    needed.write_all(b"of this machine\n").unwrap();
    let script = format!(
        "read -r line < {}; echo $line; echo $$; echo /*; read -r kernel < /proc/sys/kernel/osrelease; \
         echo $kernel; echo /sys/class/net/*; exit 7",
        needed.path().display()
    );
    let (said, code) = printed(server, shell(&script).needs(needed.path()));
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(code, Some(7), "{said}");
    assert_eq!(lines[0], "of this machine");
    assert_eq!(lines[1], "1", "its own processes alone");
    assert!(
        !lines[2].contains("/modules"),
        "not the guest's root: {said}"
    );
    assert!(server.facts()["kernel"].to_string().contains(lines[3]));
    assert_eq!(lines[4], "/sys/class/net/client /sys/class/net/lo");
    let child = sleeper(server);
    child.signal(Signal::SIGKILL).unwrap();
    drop(child);
    let error = server.start(Program::new("/no/such/program")).unwrap_err();
    assert!(error.to_string().contains("not found"), "{error}");
}

#[test]
fn a_guest_that_dies_or_hangs_costs_its_bed_alone() {
    if !present("vm") {
        return;
    }
    let _beds = bed_lock::exclusive();
    let _pool = InstancePool::new();
    for (run, signal) in [("dies", Signal::SIGKILL), ("hangs", Signal::SIGSTOP)] {
        let bed = Bed::up(&pair("vm", LinkKind::Bridge), run).unwrap();
        let mut child = sleeper(bed.host("server").unwrap());
        let qemu = child.id();
        kill(Pid::from_raw(qemu.cast_signed()), signal).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::SIGKILL as i32));
        drop(child);
        drop(bed);
        assert!(!runs(qemu), "what {run} was reused");
    }
    let bed = Bed::up(&pair("vm", LinkKind::Direct), "after").unwrap();
    assert!(echoes(&bed));
}

#[test]
fn a_guest_that_sleeps_takes_no_time_and_wakes() {
    if !present("vm") {
        return;
    }
    let _beds = bed_lock::exclusive();
    let bed = Bed::up(&pair("vm", LinkKind::Direct), "asleep").unwrap();
    let server = bed.host("server").unwrap();
    let child = sleeper(server);
    let stat = || fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let guard = bed.pause_guests().unwrap();
    wait_until(|| stat().contains(") T "));
    drop(guard);
    wait_until(|| !stat().contains(") T "));
    assert!(echoes(&bed));
    let (said, code) = printed(server, shell("echo awake"));
    assert_eq!((said.as_str(), code), ("awake\n", Some(0)));
}

#[test]
fn clean_removes_what_a_killed_maker_of_guests_left() {
    if std::env::var_os(ROLE).is_some() {
        let _pool = InstancePool::new();
        let bed = Bed::up(&pair("vm", LinkKind::Bridge), "maker").unwrap();
        let child = sleeper(bed.host("server").unwrap());
        println!("qemu {}", child.id());
        loop {
            std::thread::park();
        }
    }
    if !present("vm") {
        return;
    }
    let _beds = bed_lock::exclusive();
    let mut maker = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("vm::clean_removes_what_a_killed_maker_of_guests_left")
        .env(ROLE, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(maker.stdout.take().unwrap());
    let qemu = output
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.rsplit_once("qemu ")?.1.parse().ok())
        .expect("the maker says which process its guest is");
    let _turn = cleaning::turn();
    maker.kill().unwrap();
    maker.wait().unwrap();
    wait_until(|| !runs(qemu));
    assert_eq!(
        left_by(maker.id()).len(),
        4,
        "a host, a switch, a guest and its files"
    );
    testbed::clean().unwrap();
    assert_eq!(left_by(maker.id()), Vec::<String>::new());
}
