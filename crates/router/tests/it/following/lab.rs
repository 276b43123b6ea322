//! Network namespaces with cables, and a follower in one of them.

use std::io::Write;
use std::net::IpAddr;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use lpm::{Fib4, Fib6, Layout4, Layout6};
use netdev::Netlink;
use router::follow::{Follow, Follower, Options};
use sys::netns::{self, Namespace};

use super::plane::Memory;

/// Longer than anything here takes on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A namespace that goes with its value, and what runs in it.
pub(crate) struct Space {
    pub(crate) name: String,
    namespace: Namespace,
}

impl Space {
    /// Nothing without root.
    pub(crate) fn new(name: &str) -> Option<Self> {
        if !sys::require::root() {
            return None;
        }
        let name = format!("lr-{}-{name}", std::process::id());
        let namespace = Namespace::create(&name).unwrap();
        let space = Self { name, namespace };
        space.run("ip link set lo up");
        space.run("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.default.accept_dad=0");
        Some(space)
    }

    /// A cable to another space, both ends up; `near` and `far` are device names.
    pub(crate) fn cable(&self, near: &str, other: &Self, far: &str) {
        let to = &other.name;
        self.run(&format!(
            "ip link add {near} type veth peer name {far} netns {to}"
        ));
        self.run(&format!("ip link set {near} up"));
        other.run(&format!("ip link set {far} up"));
    }

    /// What a command line writes, which must succeed.
    pub(crate) fn run(&self, line: &str) -> String {
        self.feed(line, b"")
    }

    /// As `run`, with standard input.
    pub(crate) fn feed(&self, line: &str, input: &[u8]) -> String {
        let output = self.output(line, input);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{line}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn inside<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(act).unwrap()
    }

    pub(crate) fn index(&self, device: &str) -> u32 {
        self.inside(|| Netlink::new().unwrap().link_by_name(device).unwrap().index)
    }

    pub(crate) fn mac(&self, device: &str) -> [u8; 6] {
        self.inside(|| Netlink::new().unwrap().link_by_name(device).unwrap().mac)
    }

    /// A program that lives until it is dropped or its thread ends.
    pub(crate) fn start(&self, program: &str, arguments: &[&str]) -> Running {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null());
        let namespace = self.namespace.try_clone().unwrap();
        // The thread that starts it must live as long as it does, so it is this one.
        let before = Namespace::current().unwrap();
        namespace.enter().unwrap();
        let child = sys::child::die_with_parent(&mut command).spawn();
        before.enter().unwrap();
        Running(child.unwrap())
    }

    pub(crate) fn output(&self, line: &str, input: &[u8]) -> Output {
        self.inside(|| {
            let mut child = Command::new("sh")
                .args(["-c", line])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            // Of one that ends early, what it says is of interest.
            let _written = child.stdin.take().unwrap().write_all(input);
            child.wait_with_output().unwrap()
        })
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = netns::remove(&self.name);
    }
}

/// A started program.
pub(crate) struct Running(Child);

impl Running {
    /// Ends it without giving it a chance to say anything.
    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) type TestFollower = Follower<Memory>;

pub(crate) fn follow(space: &Space) -> TestFollower {
    follow_with(space, Memory::new(), Options::default())
}

pub(crate) fn follow_with(space: &Space, mut plane: Memory, options: Options) -> TestFollower {
    space.inside(|| {
        let make = |v4, v6| {
            plane.v4 = Fib4::build(v4, Layout4::Words)?;
            plane.v6 = Fib6::build(v6, Layout6::Flat)?;
            Ok::<_, lpm::Error>(plane)
        };
        Follower::start(options, make).unwrap()
    })
}

/// Waits until something holds of the state, which is what fails otherwise.
pub(crate) fn until(what: &str, followed: &TestFollower, holds: impl Fn(&Follow<Memory>) -> bool) {
    let started = Instant::now();
    while !followed.with(|follow| holds(follow)) {
        if started.elapsed() > TIMEOUT {
            let (status, hops) = (
                followed.status(),
                followed.with(|follow| follow.next_hops()),
            );
            panic!("{what}: {status:#?} {hops:#?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Where a packet of this machine goes, in the words that both sides are compared by.
pub(crate) fn kernel_path(
    netlink: &mut Netlink,
    names: &dyn Fn(u32) -> String,
    to: IpAddr,
) -> String {
    // What it would send there itself; of others it takes nothing to "this network".
    let this = matches!(to, IpAddr::V4(to) if to.octets()[0] == 0);
    if this || to.is_multicast() || to == std::net::Ipv4Addr::BROADCAST {
        return "this machine".into();
    }
    match netlink.route_to(to, None, None) {
        Ok(found) if found.local || found.broadcast => "this machine".into(),
        Ok(found) => match found.gateway {
            Some(gateway) => format!("via {gateway} dev {}", names(found.ifindex)),
            None => format!("dev {}", names(found.ifindex)),
        },
        // A blackhole's errno.
        Err(error) if error.errno() == Some(libc::EINVAL) => "blackhole".into(),
        Err(_) => "unreachable".into(),
    }
}

/// The same of the follower: any of these.
pub(crate) fn follower_paths(follow: &Follow<Memory>, to: IpAddr) -> Vec<String> {
    let Some(route) = follow.routes(Some(to), 1).pop() else {
        return vec!["unreachable".into()];
    };
    let text = match route.to.strip_prefix("nhid ") {
        Some(object) => object
            .split_once(' ')
            .map_or("", |(_, hops)| hops)
            .to_owned(),
        None => route.to,
    };
    let itself = format!("via {to} ");
    let ways = text.split(", ").map(|way| {
        let way = way.split(" weight").next().unwrap();
        way.strip_prefix(&itself).unwrap_or(way).to_owned()
    });
    ways.collect()
}

/// That both say the same of all these addresses.
pub(crate) fn assert_agree(space: &Space, followed: &TestFollower, addresses: &[IpAddr]) {
    assert_eq!(disagreement(space, followed, addresses), None);
}

/// That they come to say the same, where a daemon may be changing routes: some take one away before they add it again.
pub(crate) fn await_agreement(space: &Space, followed: &TestFollower, addresses: &[IpAddr]) {
    let started = Instant::now();
    while let Some(what) = disagreement(space, followed, addresses) {
        assert!(started.elapsed() < TIMEOUT, "{what}");
    }
}

fn disagreement(space: &Space, followed: &TestFollower, addresses: &[IpAddr]) -> Option<String> {
    space.inside(|| {
        let mut netlink = Netlink::new().unwrap();
        let links = netlink.links().unwrap();
        let names = |index: u32| {
            let link = links.iter().find(|link| link.index == index);
            link.map_or_else(|| index.to_string(), |link| link.name.clone())
        };
        addresses.iter().find_map(|to| {
            let kernels = kernel_path(&mut netlink, &names, *to);
            let ours = followed.with(|follow| follower_paths(follow, *to));
            let differ = !ours.contains(&kernels);
            differ.then(|| format!("{to}: the kernel {kernels}, we {ours:?}"))
        })
    })
}
