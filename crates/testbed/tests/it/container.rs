//! Programs in containers: what they see, how they end, and that nothing of them stays.

#![allow(clippy::print_stdout, reason = "the child speaks to its test")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sys::require::{Class, skip};
use test_support::cleaning;
use testbed::{Bed, Child, HostSpec, Kind, LinkKind, LinkSpec, Program, Stream, Topology};

use crate::bed_lock;

/// Says, in a child, that it is one.
const ROLE: &str = "LOWROAD_TEST_CONTAINER_MAKER";
const TIMEOUT: Duration = Duration::from_secs(10);

fn here() -> bool {
    if !sys::require::root() {
        return false;
    }
    let missing = (Kind::find("oci").unwrap().probe)().err();
    if let Some(missing) = &missing {
        skip(Class::Core, &format!("{missing}: {}", missing.remedy));
    }
    missing.is_none()
}

fn bed(run: &str) -> Bed {
    let mut topology = Topology::default();
    for (name, env) in [("client", "native"), ("server", "oci")] {
        topology.host.insert(name.to_owned(), HostSpec::of(env));
    }
    topology.host.get_mut("server").unwrap().cpus = vec![0];
    topology.link = vec![LinkSpec::new(LinkKind::Direct, &["client", "server"])];
    Bed::up(&topology, run).unwrap()
}

fn shell(bed: &Bed, script: &str) -> Child {
    let server = bed.host("server").unwrap();
    let program = Program::new("busybox").args(["sh", "-c", script]);
    server.start(program.stdout(Stream::Piped)).unwrap()
}

fn output(child: &mut Child) -> String {
    let mut said = String::new();
    let mut out = child.stdout().unwrap();
    out.read_to_string(&mut said).unwrap();
    said
}

/// Everything outside of containers that one of the marks is in the name of.
fn traces(marks: &[String]) -> Vec<String> {
    let marked = |text: &str| marks.iter().any(|mark| text.contains(mark));
    let mut found = sys::netns::names();
    for folder in ["/sys/fs/cgroup", "/sys/fs/cgroup/cpuset", "/tmp"] {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            found.push(format!("{folder}/{}", entry.file_name().to_string_lossy()));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    found.extend(mounts.lines().map(str::to_owned));
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        // Whoever is dead and not yet reaped has neither memory nor place.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if stat.contains(") Z ") {
            continue;
        }
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        found.push(format!("{}: {words}", entry.path().display()));
        let groups = fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
        found.push(format!("{}: {groups}", entry.path().display()));
    }
    found.retain(|text| marked(text));
    found
}

#[test]
fn a_program_has_its_network_its_cpus_and_nothing_else_of_this_machine() {
    if !here() {
        return;
    }
    let _beds = bed_lock::shared();
    let bed = bed("inside");
    let script = "busybox ip -o link | busybox grep -c :; echo /proc/[0-9]*; \
                  busybox grep Cpus_allowed_list /proc/self/status; echo /*; exit 7";
    let asked = ["-c", "readlink -f $(command -v busybox)"];
    let path = Command::new("sh").args(asked).output().unwrap().stdout;
    let path = String::from_utf8(path).unwrap();
    let script = script.replace("busybox", path.trim());
    let mut child = shell(&bed, &script);
    let said = output(&mut child);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[0], "2", "the loopback and one link: {said}");
    assert_eq!(lines[1], "/proc/1", "the one process there is");
    assert_eq!(lines[2], "Cpus_allowed_list:\t0");
    assert!(
        !lines[3].contains("home") && lines[3].contains("/proc"),
        "{said}"
    );
    assert_eq!(child.wait().unwrap().code(), Some(7));
    let up = &bed.host("server").unwrap().facts()["up_us"];
    assert!(up.as_u64() > Some(0), "{up}");
    let missing = Program::new("/no/such/program");
    assert!(bed.host("server").unwrap().start(missing).is_err());
    drop(bed);
    let mark = format!("lr-bed-{}", std::process::id());
    let mut left = traces(&[mark]);
    left.retain(|trace| trace.contains("-inside-"));
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn a_dynamic_program_has_its_libraries_and_the_files_it_needs() {
    if !here() {
        return;
    }
    let _beds = bed_lock::shared();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in"), "from outside").unwrap();
    let bed = bed("dynamic");
    let server = bed.host("server").unwrap();
    let program = |to: &Path| {
        let from = folder.path().join("in");
        let program = Program::new("cp").args([from.as_os_str(), to.as_os_str()]);
        program.needs(folder.path()).stderr(Stream::Null)
    };
    let copy = folder.path().join("out");
    assert!(
        server
            .start(program(&copy))
            .unwrap()
            .wait()
            .unwrap()
            .success()
    );
    assert_eq!(fs::read_to_string(copy).unwrap(), "from outside");
    // The root file system is read-only.
    let elsewhere = program(Path::new("/out"));
    assert!(!server.start(elsewhere).unwrap().wait().unwrap().success());
}

#[test]
fn a_program_may_say_goodbye_and_one_that_is_dropped_is_gone() {
    if !here() {
        return;
    }
    let _beds = bed_lock::shared();
    let bed = bed("goodbye");
    let script = "trap 'exit 9' TERM; echo ready; while :; do :; done";
    let mut child = shell(&bed, script);
    let mut out = BufReader::new(child.stdout().unwrap());
    out.read_line(&mut String::new()).unwrap();
    let runs = |pid: u32| Path::new(&format!("/proc/{pid}")).exists();
    assert!(runs(child.id()));
    assert_eq!(child.stop(TIMEOUT).unwrap().code(), Some(9));
    let child = shell(&bed, "while :; do :; done");
    let pid = child.id();
    assert!(runs(pid));
    drop(child);
    assert!(!runs(pid));
    // One that is forgotten goes with the bed.
    let child = shell(&bed, "while :; do :; done");
    let pid = child.id();
    std::mem::forget(child);
    drop(bed);
    let until = Instant::now() + TIMEOUT;
    while runs(pid) {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn clean_removes_the_containers_of_a_killed_maker() {
    if std::env::var_os(ROLE).is_some() {
        let bed = bed("killed");
        let child = shell(&bed, "while :; do :; done");
        println!("\nprogram {}", child.id());
        loop {
            std::thread::park();
        }
    }
    if !here() {
        return;
    }
    let mut maker = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("container::clean_removes_the_containers_of_a_killed_maker")
        .env(ROLE, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(maker.stdout.take().unwrap()).lines();
    let started = said.by_ref().map_while(Result::ok);
    let mut started = started.filter(|line| line.starts_with("program "));
    assert!(
        started.next().is_some(),
        "the maker says that a program runs"
    );
    let pid = maker.id();
    let _turn = cleaning::turn();
    maker.kill().unwrap();
    maker.wait().unwrap();
    let marks = [format!("lr-bed-{pid}-")];
    let left = traces(&marks);
    for kind in ["/sys/fs/cgroup/", "/tmp/", "/proc/"] {
        assert!(left.iter().any(|trace| trace.starts_with(kind)), "{left:?}");
    }
    let cleaned = testbed::clean().unwrap();
    assert!(
        cleaned.containers >= 1 && cleaned.folders >= 1,
        "{cleaned:?}"
    );
    assert_eq!(traces(&marks), Vec::<String>::new());
}
