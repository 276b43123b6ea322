//! Two network namespaces and a veth pair between them, gone with their handles.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use loadgen::{Amount, Backend, Load, SendReport};
use netdev::{LinkSpec, NeighbourState, Netlink};
use nix::sched::{CloneFlags, unshare};
use sys::netns::Namespace;

const NEAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xb];

pub(crate) struct Topology {
    pub(crate) near: Namespace,
    pub(crate) far: Namespace,
    pub(crate) near_index: u32,
    pub(crate) far_index: u32,
}

impl Topology {
    pub(crate) fn new() -> Self {
        let (near, far) = (anonymous(), anonymous());
        let near_index = near.run(|| connect(&far)).unwrap();
        let far_index = far.run(|| configure("far", 2)).unwrap();
        let topology = Self {
            near,
            far,
            near_index,
            far_index,
        };
        // Static neighbours: no packet waits for an answer.
        topology.near.run(|| know("near", 2, FAR_MAC)).unwrap();
        topology.far.run(|| know("far", 1, NEAR_MAC)).unwrap();
        topology
    }

    /// A load of `flows` flows to ports 9000 and up.
    pub(crate) fn load(&self, backend: Backend, v6: bool, flows: u16) -> Load {
        let address = |host, port| SocketAddr::new(addresses(host)[usize::from(v6)], port);
        Load {
            backend,
            ifindex: self.near_index,
            source: address(1, 20_000),
            destinations: (0..flows).map(|flow| address(2, 9000 + flow)).collect(),
            source_mac: NEAR_MAC,
            destination_mac: FAR_MAC,
            payload_len: 101,
            rate: None,
            amount: Amount::Time(Duration::from_secs(1)),
            burst: 64,
            run: 77,
            cpu: None,
            fifo: false,
        }
    }

    pub(crate) fn generate(&self, load: &Load) -> Result<SendReport, loadgen::Error> {
        let stop = AtomicBool::new(false);
        self.near.run(|| loadgen::generate(load, &stop)).unwrap()
    }
}

/// Polls until something is so: softirqs may run after the sender has returned.
pub(crate) fn until(mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !so() {
        assert!(Instant::now() < deadline, "it never came to be");
        thread::yield_now();
    }
}

fn anonymous() -> Namespace {
    let made = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        Namespace::current().unwrap()
    });
    made.join().unwrap()
}

fn connect(far: &Namespace) -> u32 {
    let near = LinkSpec::new("near").mac(NEAR_MAC);
    let other = LinkSpec::new("far").mac(FAR_MAC).namespace(far.as_fd());
    Netlink::new().unwrap().add_veth(&near, &other).unwrap();
    configure("near", 1)
}

fn configure(name: &str, host: u8) -> u32 {
    let mut netlink = Netlink::new().unwrap();
    let index = netlink.link_by_name(name).unwrap().index;
    let [v4, v6] = addresses(host);
    netlink.set_link(index, &LinkSpec::unnamed().up()).unwrap();
    netlink
        .add_addresses(&[(index, v4, 24), (index, v6, 64)])
        .unwrap();
    // The kernel adds the local route of an IPv6 address some time after the address.
    until(|| netlink.route_to(v6, None, None).unwrap().local);
    index
}

/// Tells the end called `device` the link-layer address of the other end.
fn know(device: &str, other: u8, mac: [u8; 6]) {
    let mut netlink = Netlink::new().unwrap();
    let index = netlink.link_by_name(device).unwrap().index;
    let neighbours = addresses(other).map(|address| (index, address, mac));
    netlink
        .set_neighbours(&neighbours, NeighbourState::Permanent)
        .unwrap();
}

fn addresses(host: u8) -> [IpAddr; 2] {
    [
        IpAddr::from([192, 0, 2, host]),
        IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(host)]),
    ]
}
