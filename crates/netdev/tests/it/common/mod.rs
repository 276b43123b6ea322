//! Two namespaces and a cable between them.
#![allow(
    unreachable_pub,
    reason = "a module of tests is reached by nobody else"
)]

use std::net::IpAddr;
use std::os::fd::{AsFd, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use libbpf_rs::libbpf_sys;
use netdev::{LinkSpec, Netlink};
use sys::netns::{self, Namespace};

pub const NEAR: [u8; 6] = [0x02, 0, 0, 0, 0, 1];
pub const FAR: [u8; 6] = [0x02, 0, 0, 0, 0, 2];

/// A namespace whose name is removed with it.
pub struct Space {
    pub name: String,
    pub namespace: Namespace,
}

impl Space {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lr-{}-netdev-{number}", std::process::id());
        let namespace = Namespace::create(&name).unwrap();
        let space = Self { name, namespace };
        // Local IPv6 routes need a loopback that is up.
        let up = LinkSpec::unnamed().up();
        space.netlink().set_link(1, &up).unwrap();
        space
    }

    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(work).unwrap()
    }

    pub fn netlink(&self) -> Netlink {
        self.run(|| Netlink::new().unwrap())
    }

    pub fn index(&self, name: &str) -> u32 {
        self.netlink().link_by_name(name).unwrap().index
    }

    /// The kernel adds the local routes of IPv6 addresses some time after the addresses.
    fn wait_until_local(&self, address: &str) {
        let mut netlink = self.netlink();
        let started = Instant::now();
        while !netlink.route_to(ip(address), None, None).unwrap().local {
            assert!(started.elapsed() < Duration::from_secs(10));
            std::thread::yield_now();
        }
    }

    pub fn sysctl(&self, key: &str, value: &str) {
        self.run(|| std::fs::write(format!("/proc/sys/net/{key}"), value).unwrap());
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = netns::remove(&self.name);
    }
}

/// `near` has eth0 with 10.9.0.1/24 and fd09::1/64, `far` has eth0 with .2 and ::2.
pub struct Pair {
    pub near: Space,
    pub far: Space,
    pub ifindex: u32,
}

impl Pair {
    pub fn new() -> Self {
        let (near, far) = (Space::new(), Space::new());
        for space in [&near, &far] {
            space.sysctl("ipv6/conf/default/accept_dad", "0");
        }
        let end = |mac| LinkSpec::new("eth0").mac(mac).queues(2);
        near.netlink()
            .add_veth(&end(NEAR).up(), &end(FAR).namespace(far.namespace.as_fd()))
            .unwrap();
        let up = LinkSpec::unnamed().up();
        far.netlink().set_link(far.index("eth0"), &up).unwrap();
        for (space, host) in [(&near, 1), (&far, 2)] {
            let index = space.index("eth0");
            space
                .netlink()
                .add_addresses(&[
                    (index, ip(&format!("10.9.0.{host}")), 24),
                    (index, ip(&format!("fd09::{host}")), 64),
                ])
                .unwrap();
            space.wait_until_local(&format!("fd09::{host}"));
        }
        let ifindex = near.index("eth0");
        Self { near, far, ifindex }
    }
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A program called `test` that returns `value`: 0 drops in XDP and on cgroups, and lets pass in tc.
pub fn program(kind: libbpf_sys::bpf_prog_type, value: i32) -> OwnedFd {
    // mov64 r0, value; exit
    let mut code = [libbpf_sys::bpf_insn::default(); 2];
    code[0].code = 0xb7;
    code[0].imm = value;
    code[1].code = 0x95;
    // SAFETY: the name and the licence are C strings, the code is as long as said.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            kind,
            c"test".as_ptr(),
            c"Dual BSD/GPL".as_ptr(),
            code.as_ptr(),
            2,
            std::ptr::null_mut(),
        )
    };
    assert!(fd >= 0, "load: {}", std::io::Error::from_raw_os_error(-fd));
    // SAFETY: the descriptor was just made.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
