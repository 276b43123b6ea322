//! Programs on devices: attached as asked, detached on drop, and not left by a dead owner.

#![allow(clippy::print_stdout, reason = "the child speaks to its test")]

use std::os::fd::AsFd;
use std::process;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::libbpf_sys;
use netdev::attach::{self, Direction, TcVia};
use netdev::{Attachments, Error, Hook, LinkSpec, XdpMode, clsact};
use test_support::bpf_link;

use crate::common::{Pair, Space, program};
use crate::policy::load;

fn xdp_of(space: &Space, ifindex: u32) -> Option<XdpMode> {
    space.run(|| attach::xdp_mode(ifindex).unwrap())
}

/// The filters on both sides of a device, as `tc` would list them.
fn qdiscs(space: &Space, interface: &str) -> String {
    space.run(|| {
        let output = process::Command::new("tc")
            .args(["qdisc", "show", "dev", interface])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    })
}

#[test]
fn xdp_is_attached_in_the_mode_asked_for_and_detached_on_drop() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    let program = program(libbpf_sys::BPF_PROG_TYPE_XDP, 0);
    for mode in [XdpMode::Native, XdpMode::Generic] {
        let attached = pair
            .near
            .run(|| attach::xdp(program.as_fd(), pair.ifindex, mode).unwrap());
        assert_eq!(attached.mode(), mode.name());
        assert_eq!(xdp_of(&pair.near, pair.ifindex), Some(mode));
        let second = pair
            .near
            .run(|| attach::xdp(program.as_fd(), pair.ifindex, mode).unwrap_err());
        assert!(matches!(second, Error::XdpTaken { .. }), "{second}");
        assert!(second.to_string().contains("eth0"), "{second}");
        drop(attached);
        // Until it runs its program, what another test starts has a descriptor of it as well.
        let until = Instant::now() + Duration::from_secs(30);
        while xdp_of(&pair.near, pair.ifindex).is_some() {
            assert!(Instant::now() < until);
            thread::yield_now();
        }
    }
}

#[test]
fn a_device_without_native_xdp_says_so() {
    if !sys::require::root() {
        return;
    }
    let space = Space::new();
    space
        .netlink()
        .add_bridge(&LinkSpec::new("br0").up())
        .unwrap();
    let index = space.index("br0");
    let program = program(libbpf_sys::BPF_PROG_TYPE_XDP, 0);
    let error = space.run(|| attach::xdp(program.as_fd(), index, XdpMode::Native).unwrap_err());
    assert!(error.to_string().contains("generic mode"), "{error}");
}

#[test]
fn tc_programs_go_with_their_handle() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    let program = program(libbpf_sys::BPF_PROG_TYPE_SCHED_CLS, 0);
    let attach = |direction, via| {
        pair.near
            .run(|| attach::tc(program.as_fd(), pair.ifindex, direction, via).unwrap())
    };
    if attach::tc_via() == TcVia::Tcx {
        let ingress = attach(Direction::Ingress, TcVia::Tcx);
        let egress = attach(Direction::Egress, TcVia::Tcx);
        assert_eq!((ingress.mode(), egress.mode()), ("tcx", "tcx"));
    }
    let both = [
        attach(Direction::Ingress, TcVia::Clsact),
        attach(Direction::Egress, TcVia::Clsact),
        attach(Direction::Egress, TcVia::Clsact),
    ];
    assert_eq!(both[0].mode(), "tc-clsact");
    assert!(qdiscs(&pair.near, "eth0").contains("clsact"));
    assert_eq!(
        pair.near.run(|| clsact::clean().unwrap()),
        0,
        "the owner lives"
    );
    // Dropped from outside the namespace: the handle knows where its filter is.
    drop(both);
    assert!(!qdiscs(&pair.near, "eth0").contains("clsact"));
}

#[test]
fn a_killed_owner_leaves_no_link_and_a_filter_that_clean_removes() {
    const ROLE: &str = "LOWROAD_TEST_ATTACH_IN";
    if let Ok(name) = std::env::var(ROLE) {
        return hold_and_wait_to_be_killed(&name);
    }
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    let mut child = process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("attach::a_killed_owner_leaves_no_link_and_a_filter_that_clean_removes")
        .env(ROLE, &pair.near.name)
        .stdout(process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert!(
        lines
            .map_while(Result::ok)
            .any(|line| line.contains("attached"))
    );
    assert_eq!(xdp_of(&pair.near, pair.ifindex), Some(XdpMode::Native));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until(|| xdp_of(&pair.near, pair.ifindex).is_none());
    assert!(qdiscs(&pair.near, "eth0").contains("clsact"));
    assert_eq!(pair.near.run(|| clsact::clean().unwrap()), 1);
    assert!(!qdiscs(&pair.near, "eth0").contains("clsact"));
}

fn hold_and_wait_to_be_killed(name: &str) {
    let namespace = sys::netns::Namespace::named(name).unwrap();
    let xdp = program(libbpf_sys::BPF_PROG_TYPE_XDP, 0);
    let tc = program(libbpf_sys::BPF_PROG_TYPE_SCHED_CLS, 0);
    let _held = namespace.run(|| {
        let index = netdev::Netlink::new().unwrap().link_by_name("eth0");
        let index = index.unwrap().index;
        (
            attach::xdp(xdp.as_fd(), index, XdpMode::Native).unwrap(),
            attach::tc(tc.as_fd(), index, Direction::Ingress, TcVia::Clsact).unwrap(),
        )
    });
    println!("attached");
    let (_never, wait) = mpsc::channel::<()>();
    let _ = wait.recv_timeout(Duration::from_secs(60));
}

fn wait_until(done: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < until);
        thread::yield_now();
    }
}

#[test]
fn what_others_detach_is_attached_again() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    let attach = |kind, hook| {
        let mut attached = Attachments::new(program(kind, 0), hook);
        pair.near.run(|| attached.attach(pair.ifindex).unwrap());
        attached
    };
    let reattach = |attached: &mut Attachments| {
        let changes = pair.near.run(|| attached.reattach());
        let text = changes.iter().map(ToString::to_string);
        text.collect::<Vec<_>>()
    };
    let again = "detached from eth0 by another program; attached again";
    let (native, ingress) = (Hook::Xdp(XdpMode::Native), Hook::Tc(Direction::Ingress));
    let mut xdp = attach(libbpf_sys::BPF_PROG_TYPE_XDP, native);
    assert_eq!(reattach(&mut xdp), [""; 0]);
    assert_eq!(bpf_link::detach(process::id(), "xdp", pair.ifindex), 1);
    assert_eq!(xdp_of(&pair.near, pair.ifindex), None);
    assert_eq!(reattach(&mut xdp), [again]);
    assert_eq!(xdp_of(&pair.near, pair.ifindex), Some(XdpMode::Native));
    let mut tc = attach(libbpf_sys::BPF_PROG_TYPE_SCHED_CLS, ingress);
    assert_eq!(reattach(&mut tc), [""; 0]);
    if attach::tc_via() == TcVia::Clsact {
        load(
            &pair.near,
            &["tc", "qdisc", "delete", "dev", "eth0", "clsact"],
            "",
        );
    } else {
        assert_eq!(bpf_link::detach(process::id(), "tcx", pair.ifindex), 1);
    }
    assert_eq!(reattach(&mut tc), [again]);
    assert_eq!(reattach(&mut tc), [""; 0]);
    assert_eq!(tc.detachments()[0].count, 1);
    // Nobody has detached the program from a device that is gone.
    pair.near.netlink().delete_link(pair.ifindex).unwrap();
    assert_eq!(reattach(&mut xdp), [""; 0]);
}
