//! A namespace with a device to send by, a plane in it, and frames run by its program.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU32, Ordering};

use libbpf_rs::libbpf_sys;
use lpm::{NextHop, Rib};
use netdev::{LinkSpec, Netlink, XdpMode};
use router::forward::{Adjacency, Family, Forwarding, Plane};
use router::xdp::{Counters, End, Port, Settings, Xdp, start};
use sys::netns::{self, Namespace};

pub const DROP: u32 = 1;
pub const PASS: u32 = 2;
pub const REDIRECT: u32 = 4;

/// What test runs come by: the loopback.
pub const INGRESS: u32 = 1;
pub const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const SENDER: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub const OUT: [u8; 6] = [2, 0, 0, 0, 0, 3];
pub const NEIGHBOUR: [u8; 6] = [2, 0, 0, 0, 0, 4];

/// A namespace whose name is removed with it, where `out0` is a device.
pub struct Space {
    name: String,
    namespace: Namespace,
    pub out: u32,
}

impl Space {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lr-bed-{}-xdp-{number}", sys::owner::Owner::current());
        let namespace = Namespace::create(&name).unwrap();
        let out = namespace.run(|| {
            let mut netlink = Netlink::new().unwrap();
            netlink.set_link(1, &LinkSpec::unnamed().up()).unwrap();
            let (near, far) = (LinkSpec::new("out0"), LinkSpec::new("far0"));
            netlink.add_veth(&near.up(), &far).unwrap();
            let far = netlink.link_by_name("far0").unwrap().index;
            netlink.set_link(far, &LinkSpec::unnamed().up()).unwrap();
            netlink.link_by_name("out0").unwrap().index
        });
        Self {
            out: out.unwrap(),
            name,
            namespace,
        }
    }

    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(work).unwrap()
    }

    /// A plane that takes in what comes by the loopback: untagged, VLAN 7, and VLAN 8 in 9.
    pub fn start(&self, settings: &Settings, v4: Rib<u32>, v6: Rib<u128>) -> Xdp {
        let settings = Settings {
            mode: XdpMode::Generic,
            ..settings.clone()
        };
        self.run(|| {
            let mut xdp = start(&settings, v4, v6).unwrap();
            xdp.listen(&[[0, 0], [7, 0], [9, 8]].map(port)).unwrap();
            xdp
        })
    }

    pub fn adjacency(&self) -> Adjacency {
        Adjacency {
            ifindex: self.out,
            source: OUT,
            destination: NEIGHBOUR,
            vlan: None,
            mtu: 1500,
        }
    }

    pub fn next_hop(&self, xdp: &mut Xdp, family: Family, number: u16, to: &Forwarding) {
        self.run(|| xdp.next_hop(family, hop(number), to)).unwrap();
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = netns::remove(&self.name);
    }
}

pub fn port(tags: [u16; 2]) -> Port {
    Port {
        ifindex: INGRESS,
        tags,
        mac: OURS,
    }
}

pub fn hop(number: u16) -> NextHop {
    NextHop::new(number).unwrap()
}

/// What one run of the program came to.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub verdict: u32,
    pub end: End,
    pub frame: Vec<u8>,
}

/// Runs the program once on a frame.
///
/// # Panics
/// When not exactly one end counts it.
pub fn run(space: &Space, xdp: &Xdp, frame: &[u8]) -> Outcome {
    let before = xdp.counters().unwrap();
    let (verdict, out) = space.run(|| test_run(xdp, frame));
    let after = xdp.counters().unwrap();
    Outcome {
        verdict,
        end: moved(&before, &after, frame.len() as u64),
        frame: out,
    }
}

fn moved(before: &Counters, after: &Counters, bytes: u64) -> End {
    let mut ends = after.iter().filter(|(end, now)| *now != before.get(*end));
    let (end, now) = ends.next().unwrap();
    assert_eq!(ends.next(), None);
    assert_eq!(now.packets, before.get(end).packets + 1);
    assert_eq!(now.bytes, before.get(end).bytes + bytes);
    end
}

/// The verdict, and the frame as it is then.
pub fn test_run(xdp: &Xdp, frame: &[u8]) -> (u32, Vec<u8>) {
    let (verdict, out, _) = call(xdp, frame, 1);
    (verdict, out)
}

/// The verdict of the last of so many runs, one at once after the other.
pub fn test_runs(xdp: &Xdp, frame: &[u8], runs: u16) -> u32 {
    call(xdp, frame, runs).0
}

/// Nanoseconds that one run takes, as the kernel measures it.
pub fn timed_run(xdp: &Xdp, frame: &[u8]) -> u64 {
    call(xdp, frame, 1).2.into()
}

fn call(xdp: &Xdp, frame: &[u8], runs: u16) -> (u32, Vec<u8>, u32) {
    let mut out = vec![0; frame.len() + 256];
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        data_out: out.as_mut_ptr().cast(),
        data_size_out: out.len() as u32,
        repeat: runs.into(),
        ..Default::default()
    };
    let program = xdp.program().as_fd().as_raw_fd();
    // SAFETY: the frames and the options outlive the call, and their sizes are theirs.
    let result = unsafe { libbpf_sys::bpf_prog_test_run_opts(program, &raw mut options) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    out.truncate(options.data_size_out as usize);
    (options.retval, out, options.duration)
}
