//! Programs in containers of engines: which network they have, how they end, and that nothing of them stays.

#![allow(clippy::print_stdout, reason = "the child speaks to its test")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use test_support::cleaning;
use test_support::daemon::with_docker;
use testbed::{
    Bed, Child, Host, HostSpec, InstancePool, Kind, LinkKind, LinkSpec, Program, Stream, Topology,
};

/// Says, in a child, that it is one.
const ROLE: &str = "LOWROAD_TEST_ENGINE_MAKER";

fn pair(kind: LinkKind) -> Topology {
    let mut topology = Topology::default();
    for (name, env) in [("client", "native"), ("server", "docker")] {
        topology.host.insert(name.to_owned(), HostSpec::of(env));
    }
    topology.host.get_mut("server").unwrap().cpus = vec![0];
    topology.link = vec![LinkSpec::new(kind, &["client", "server"])];
    topology
}

/// Whether an echo of each family comes back from the container.
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

/// The output of a shell in the host, and its exit code.
fn printed(host: &Host, script: &str) -> (String, Option<i32>) {
    let program = Program::new("sh").args(["-c", script]);
    let mut child = host.start(program.stdout(Stream::Piped)).unwrap();
    let mut said = String::new();
    child.stdout().unwrap().read_to_string(&mut said).unwrap();
    (said, child.wait().unwrap().code())
}

/// Whether it has `CAP_NET_ADMIN`, the twelfth capability.
fn may_change_networks(child: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("CapEff:"));
    let set = line.unwrap().split_whitespace().last().unwrap();
    u64::from_str_radix(set, 16).unwrap() & 1 << 12 != 0
}

/// A program that goes on, and has begun.
fn sleeper(host: &Host) -> Child {
    let program = Program::new("sh").args(["-c", "echo begun; read -r never"]);
    let program = program.stdin(Stream::Piped).stdout(Stream::Piped);
    let mut child = host.start(program).unwrap();
    let mut line = String::new();
    let read = BufReader::new(child.stdout().unwrap()).read_line(&mut line);
    assert_eq!((read.unwrap(), line.as_str()), (6, "begun\n"));
    child
}

/// Words of the engine's, one to each line.
fn docker(words: &[&str]) -> Vec<String> {
    let output = Command::new("docker").args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines().map(str::to_owned).collect()
}

fn containers() -> Vec<String> {
    docker(&["ps", "--all", "--quiet", "--no-trunc"])
}

/// Everything that an engine and a maker of beds may leave.
fn remains(maker: u32) -> Vec<String> {
    let mut left = containers();
    left.extend(docker(&["images", "--all", "--quiet"]));
    let mut names = sys::netns::names();
    names.retain(|name| name.starts_with(&format!("lr-bed-{maker}-")));
    left.extend(names);
    let folders = fs::read_dir(std::env::temp_dir()).unwrap();
    let folders = folders.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    left.extend(folders.filter(|name| name.starts_with(&format!("lr-bed-{maker}-"))));
    left
}

fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

fn wait_until(done: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
}

/// The first process of the one container there is.
fn agent() -> u32 {
    let id = containers().remove(0);
    let pid = docker(&["inspect", "--format", "{{.State.Pid}}", &id]).remove(0);
    pid.parse().unwrap()
}

#[test]
fn a_container_starts_once_and_is_plugged_into_one_bed_after_the_other() {
    let test = "engines::a_container_starts_once_and_is_plugged_into_one_bed_after_the_other";
    with_docker(test, || {
        let pool = InstancePool::new();
        let mut seen = Vec::new();
        for (run, kind) in [
            ("direct", LinkKind::Direct),
            ("bridge", LinkKind::Bridge),
            ("macvlan", LinkKind::Macvlan),
            ("again", LinkKind::Direct),
        ] {
            let bed = Bed::up(&pair(kind), run).unwrap();
            assert!(echoes(&bed), "{run}");
            let server = bed.host("server").unwrap();
            let child = sleeper(server);
            let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
            assert!(status.contains("Name:\tsh\n"), "{status}");
            assert!(status.contains("Cpus_allowed_list:\t0\n"), "{status}");
            let script = "echo /proc/[0-9]*; echo /sys/class/net/*; exit 7";
            let (said, code) = printed(server, script);
            let lines: Vec<_> = said.lines().collect();
            assert!(lines[0].split(' ').count() <= 5, "its own alone: {said}");
            assert_eq!(lines[1], "/sys/class/net/client /sys/class/net/lo");
            assert_eq!(code, Some(7));
            let facts = server.facts();
            assert!(facts["up_us"].as_u64() > Some(0), "{facts:?}");
            assert!(facts["engine"].as_str().is_some(), "{facts:?}");
            let needy = Program::new("true").may(&["CAP_NET_ADMIN"]);
            let refused = server.start(needy).unwrap_err().to_string();
            assert!(refused.contains("CAP_NET_ADMIN"), "{refused}");
            assert!(!may_change_networks(&child), "nor has any that");
            // One that is forgotten goes with the bed.
            let pid = child.id();
            std::mem::forget(child);
            seen.extend(containers());
            drop(bed);
            wait_until(|| !runs(pid));
        }
        seen.dedup();
        assert_eq!(seen.len(), 1, "one start: {seen:?}");
        drop(pool);
        assert_eq!(remains(std::process::id()), Vec::<String>::new());
    });
}

#[test]
fn each_block_has_a_container_of_its_own_of_the_one_image() {
    let test = "engines::each_block_has_a_container_of_its_own_of_the_one_image";
    with_docker(test, || {
        let pool = InstancePool::new();
        let mut seen = Vec::new();
        let mut images = Vec::new();
        for run in ["first", "second"] {
            let bed = Bed::up(&pair(LinkKind::Direct), run).unwrap();
            seen.extend(containers());
            // It waits before the rest of the bed is gone.
            let remains = bed.leave();
            let other = Bed::up(&pair(LinkKind::Direct), "other").unwrap();
            assert!(echoes(&other), "{run}");
            assert_eq!(containers().as_slice(), &seen[seen.len() - 1..]);
            drop((remains, other));
            pool.end_of_block();
            assert_eq!(containers(), Vec::<String>::new());
            images.extend(docker(&["images", "--quiet"]));
        }
        assert_ne!(seen[0], seen[1]);
        assert_eq!((images.len(), &images[0]), (2, &images[1]));
        drop(pool);
        assert_eq!(remains(std::process::id()), Vec::<String>::new());
    });
}

#[test]
fn a_host_may_ask_for_more_than_an_engine_gives() {
    with_docker(
        "engines::a_host_may_ask_for_more_than_an_engine_gives",
        || {
            let mut topology = pair(LinkKind::Direct);
            let server = topology.host.remove("server").unwrap();
            let server = server.may(&["CAP_NET_ADMIN"]);
            topology.host.insert("server".to_owned(), server);
            let bed = Bed::up(&topology, "may").unwrap();
            let server = bed.host("server").unwrap();
            assert!(may_change_networks(&sleeper(server)));
            let needy = Program::new("true").may(&["CAP_NET_ADMIN"]);
            assert!(server.start(needy).unwrap().wait().unwrap().success());
        },
    );
}

#[test]
fn a_container_that_dies_or_hangs_costs_its_bed_alone() {
    let test = "engines::a_container_that_dies_or_hangs_costs_its_bed_alone";
    with_docker(test, || {
        let pool = InstancePool::new();
        for (run, how) in [("dies", Signal::SIGKILL), ("hangs", Signal::SIGSTOP)] {
            let bed = Bed::up(&pair(LinkKind::Direct), run).unwrap();
            let mut child = sleeper(bed.host("server").unwrap());
            let first = agent();
            // The agent that serves the host is a child of the first process.
            let inside = fs::read_to_string(format!("/proc/{first}/task/{first}/children"));
            let inside = inside.unwrap();
            let serving: u32 = inside.split_whitespace().next().unwrap().parse().unwrap();
            signal(serving, how);
            assert_eq!(child.wait().unwrap().signal(), Some(Signal::SIGKILL as i32));
            drop(child);
            drop(bed);
            assert!(!runs(first), "what {run} was reused");
        }
        let bed = Bed::up(&pair(LinkKind::Direct), "after").unwrap();
        assert!(echoes(&bed));
        drop(bed);
        drop(pool);
        assert_eq!(remains(std::process::id()), Vec::<String>::new());
    });
}

/// Has a container run a program, until it is killed.
fn make_and_wait() -> ! {
    let _pool = InstancePool::new();
    let bed = Bed::up(&pair(LinkKind::Bridge), "maker").unwrap();
    let child = sleeper(bed.host("server").unwrap());
    println!("\nprogram {}", child.id());
    loop {
        std::thread::park();
    }
}

/// A process that does so, this same test again, and its program.
fn maker(test: &str) -> (std::process::Child, u32) {
    let mut maker = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", test])
        .env(ROLE, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(maker.stdout.take().unwrap()).lines();
    let mut said = said.map_while(Result::ok);
    let program = said.find_map(|line| line.strip_prefix("program ")?.parse().ok());
    (maker, program.expect("the maker says that a program runs"))
}

#[test]
fn clean_removes_the_image_of_a_killed_maker_whose_containers_have_ended() {
    let test = "engines::clean_removes_the_image_of_a_killed_maker_whose_containers_have_ended";
    if std::env::var_os(ROLE).is_some() {
        make_and_wait();
    }
    with_docker(test, || {
        let (mut maker, program) = maker(test);
        let _turn = cleaning::turn();
        maker.kill().unwrap();
        maker.wait().unwrap();
        wait_until(|| containers().is_empty() && !runs(program));
        assert!(!docker(&["images", "--quiet"]).is_empty());
        let cleaned = testbed::clean().unwrap();
        assert!(cleaned.images >= 1, "{cleaned:?}");
        assert_eq!(remains(maker.id()), Vec::<String>::new());
    });
}

#[test]
fn clean_removes_what_a_killed_maker_of_containers_left() {
    let test = "engines::clean_removes_what_a_killed_maker_of_containers_left";
    if std::env::var_os(ROLE).is_some() {
        make_and_wait();
    }
    with_docker(test, || {
        let (mut maker, program) = maker(test);
        // The first process cannot see that its host is gone: its container stays.
        let agent = agent();
        signal(agent, Signal::SIGSTOP);
        let _turn = cleaning::turn();
        maker.kill().unwrap();
        maker.wait().unwrap();
        assert!(runs(agent));
        let before = remains(maker.id());
        assert!(
            before.len() >= 6,
            "a container, its image, three names, its files: {before:?}"
        );
        let cleaned = testbed::clean().unwrap();
        // The container may go by itself, as what ran in it is ended before.
        assert!(cleaned.images >= 1, "{cleaned:?}");
        assert_eq!(remains(maker.id()), Vec::<String>::new());
        wait_until(|| !runs(program) && !runs(agent));
    });
}

#[test]
fn without_an_engine_it_is_said_what_brings_one() {
    let test = "engines::without_an_engine_it_is_said_what_brings_one";
    if let Ok(expected) = std::env::var(ROLE) {
        let missing = (Kind::find("docker").unwrap().probe)().unwrap_err();
        assert!(missing.what.contains(&expected), "{missing}");
        let remedy = "apt-get install docker.io && systemctl start docker";
        assert_eq!(missing.remedy, remedy);
        // One that is not installed has nothing to clean.
        let _turn = cleaning::turn();
        let silent = testbed::clean().unwrap().silent;
        let why = expected.strip_prefix("no engine answers: ");
        let docker: Vec<_> = silent
            .iter()
            .map(|(name, why)| (*name, why.as_str()))
            .collect();
        assert_eq!(
            docker,
            why.map(|why| ("docker", why))
                .into_iter()
                .collect::<Vec<_>>()
        );
        return;
    }
    if !sys::require::root() {
        return;
    }
    let empty = tempfile::tempdir().unwrap();
    let fake = empty.path().join("docker");
    let run = |expected: &str| {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", test])
            .env(ROLE, expected)
            .env("PATH", empty.path())
            .status();
        assert!(status.unwrap().success(), "{expected}");
    };
    run("docker is not installed");
    let says = "#!/bin/sh\necho Cannot connect to the Docker daemon >&2\nexit 1\n";
    fs::write(&fake, says).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&fake, mode).unwrap();
    run("no engine answers: Cannot connect to the Docker daemon");
}
