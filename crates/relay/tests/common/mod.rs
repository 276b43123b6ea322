//! A sender's, a relay's and a receivers' namespace, and frames put into the relay's.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a test that cannot set up has failed, and its numbers are small"
)]
#![allow(
    unreachable_pub,
    reason = "a module of tests is reached by nobody else"
)]

pub mod frame;

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use frame::Arrived;
use libbpf_rs::{Program, libbpf_sys};
use netdev::{LinkSpec, Netlink, NextHop};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, socket};
use relay::Running;
use relay::counters::{Counters, DropReason, StreamCounters};
use relay::plan::{Limits, Plan, SourcePolicy, Stream, StreamId, Subscriber, SubscriberId};
use sys::ethtool::Ethtool;
use sys::netns::{self, Namespace};

pub const SENDER: &str = "10.1.0.1:4000";
pub const INGEST: &str = "10.1.0.2:5000";
pub const SENDER6: &str = "[fd01::1]:4000";
pub const INGEST6: &str = "[fd01::2]:5000";
pub const DROP: u32 = 1;
pub const PASS: u32 = 2;
pub const REDIRECT: u32 = 4;

/// A namespace whose name is removed with it.
pub struct Space {
    name: String,
    pub namespace: Namespace,
}

impl Space {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lr-{}-relay-{number}", std::process::id());
        let namespace = Namespace::create(&name).unwrap();
        let space = Self { name, namespace };
        space
            .netlink()
            .set_link(1, &LinkSpec::unnamed().up())
            .unwrap();
        space.run(|| std::fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0").unwrap());
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
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = netns::remove(&self.name);
    }
}

/// src0 - in0 (the relay) out0 - rx0, and out1 - rx1.
pub struct Rig {
    pub sender: Space,
    pub relay: Space,
    pub client: Space,
    pub ingress: u32,
    pub out: [u32; 2],
}

pub fn mac(end: u8) -> [u8; 6] {
    [0x02, 0, 0, 0, 0x10, end]
}

impl Rig {
    pub fn new() -> Self {
        let (sender, relay, client) = (Space::new(), Space::new(), Space::new());
        for (name, other, space, number) in [
            ("in0", "src0", &sender, 1),
            ("out0", "rx0", &client, 2),
            ("out1", "rx1", &client, 3),
        ] {
            cable(&relay, space, name, other, number);
        }
        client.run(|| {
            for name in ["rx0", "rx1"] {
                Ethtool::open(name)
                    .unwrap()
                    .set_features(&[("rx-gro", true)])
                    .unwrap();
            }
        });
        let ingress = relay.index("in0");
        let out = [relay.index("out0"), relay.index("out1")];
        Self {
            sender,
            relay,
            client,
            ingress,
            out,
        }
    }

    /// Everything that arrives in the receivers' namespace from now on.
    pub fn capture(&self) -> Capture {
        let fd = self.client.run(|| {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            socket(
                AddressFamily::Packet,
                SockType::Raw,
                flags,
                SockProtocol::EthAll,
            )
            .unwrap()
        });
        sys::socket::receive_buffer(&fd, 64 << 20).unwrap();
        Capture(fd)
    }

    /// A stream of `subscribers`, the even ones by out0 and the odd ones by out1, port 7000 + i.
    pub fn stream(&self, subscribers: u32, ingest: &str) -> Stream {
        let address: SocketAddr = ingest.parse().unwrap();
        let socket = self.relay.run(|| UdpSocket::bind(address).unwrap());
        Stream {
            id: StreamId(3),
            name: "cam1".into(),
            ingest: vec![address],
            interfaces: vec![self.ingress],
            socket: Arc::new(socket),
            egress: std::collections::BTreeMap::new(),
            source: SourcePolicy::Any,
            limits: Limits::default(),
            min_ttl: 2,
            copy_port: None,
            handover: None,
            work: relay::plan::PerPacket::default(),
            subscribers: (0..subscribers)
                .map(|i| self.subscriber(i, address.is_ipv4()))
                .collect(),
        }
    }

    pub fn subscriber(&self, i: u32, v4: bool) -> Subscriber {
        let way = (i % 2) as usize;
        let net = way + 2;
        let text = |host: usize, port: u32| {
            let text = if v4 {
                format!("10.{net}.0.{host}:{port}")
            } else {
                format!("[fd0{net}::{host}]:{port}")
            };
            text.parse().unwrap()
        };
        Subscriber {
            id: SubscriberId(100 + i),
            name: format!("edge-{i}"),
            destination: text(2, 7000 + i),
            source: text(1, 5001),
            ttl: None,
            next_hop: NextHop::Ready {
                ifindex: self.out[way],
                source_mac: mac(net as u8 * 2),
                destination_mac: mac(net as u8 * 2 + 1),
                mtu: 1500,
                source: text(1, 0).ip(),
            },
        }
    }

    pub fn start(&self, datapath: &dyn datapath::Datapath<relay::Relay>, plan: &Plan) -> Running {
        self.relay.run(|| datapath.start(plan).unwrap())
    }

    /// The XDP program of the ingress device.
    pub fn xdp_program(&self) -> OwnedFd {
        let link = self.relay.netlink().link_by_index(self.ingress).unwrap();
        Program::fd_from_id(link.xdp_program.expect("a program is attached")).unwrap()
    }

    /// Has the sender send the frame as it is.
    pub fn send(&self, frame: &frame::Frame) {
        self.send_to(mac(2), frame);
    }

    /// Has the sender send the frame to another device than the relay's.
    pub fn send_to(&self, device: [u8; 6], frame: &frame::Frame) {
        let mut bytes = frame.bytes();
        bytes[..6].copy_from_slice(&device);
        self.sender.run(|| send_raw(&bytes));
    }

    /// The verdict on a frame that comes so many times and goes nowhere.
    pub fn verdict(&self, program: &OwnedFd, frame: &[u8], times: u32) -> u32 {
        self.relay
            .run(|| test_run(program, frame, self.ingress, times))
    }
}

/// Sends by the interface src0 of the calling thread's namespace.
fn send_raw(frame: &[u8]) {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0,
        sll_ifindex: Netlink::new().unwrap().link_by_name("src0").unwrap().index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: [0; 8],
    };
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None).unwrap();
    // SAFETY: the frame and the address are read for the lengths given, during the call only.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            frame.as_ptr().cast(),
            frame.len(),
            0,
            (&raw const address).cast(),
            size_of_val(&address) as u32,
        )
    };
    assert_eq!(
        sent,
        frame.len() as isize,
        "{}",
        std::io::Error::last_os_error()
    );
}

fn cable(relay: &Space, space: &Space, name: &str, other: &str, number: u8) {
    let near = LinkSpec::new(name).mac(mac(number * 2)).queues(2).up();
    let far = LinkSpec::new(other).mac(mac(number * 2 + 1)).queues(2);
    let far = far.namespace(space.namespace.as_fd());
    relay.netlink().add_veth(&near, &far).unwrap();
    space
        .netlink()
        .set_link(space.index(other), &LinkSpec::unnamed().up())
        .unwrap();
    // Of the sender's cable the sender has the first address, of the receivers' the relay.
    let (near, far) = if number == 1 { (2, 1) } else { (1, 2) };
    for (space, name, host) in [(relay, name, near), (space, other, far)] {
        let index = space.index(name);
        let v4 = format!("10.{number}.0.{host}").parse().unwrap();
        let v6 = format!("fd0{number}::{host}").parse().unwrap();
        space
            .netlink()
            .add_addresses(&[(index, v4, 24), (index, v6, 64)])
            .unwrap();
    }
}

fn test_run(program: &OwnedFd, frame: &[u8], ifindex: u32, times: u32) -> u32 {
    let length = frame.len() as u32;
    let context: [u32; 6] = [0, length, 0, ifindex, 0, 0];
    let mut out = vec![0; frame.len() + 256];
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
        data_in: frame.as_ptr().cast(),
        data_size_in: length,
        ctx_in: context.as_ptr().cast(),
        ctx_size_in: size_of_val(&context) as u32,
        data_out: out.as_mut_ptr().cast(),
        data_size_out: out.len() as u32,
        repeat: times as i32,
        ..Default::default()
    };
    // SAFETY: every pointer in the options is to a buffer above, of the length beside it.
    let result =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    assert_eq!(
        result,
        0,
        "test run: {}",
        std::io::Error::from_raw_os_error(-result)
    );
    options.retval
}

/// A socket that sees every frame of the receivers' namespace.
pub struct Capture(OwnedFd);

impl Capture {
    /// The next `count` relayed frames, in order of arrival.
    ///
    /// # Panics
    /// When they have not come within five seconds.
    pub fn take(&self, count: usize) -> Vec<Arrived> {
        let mut frames = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(5);
        while frames.len() < count {
            assert!(
                Instant::now() < deadline,
                "{} of {count} frames arrived",
                frames.len()
            );
            match self.next() {
                Some(frame) => frames.extend(frame),
                None => std::thread::yield_now(),
            }
        }
        frames
    }

    /// What has arrived by now.
    pub fn rest(&self) -> Vec<Arrived> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next() {
            frames.extend(frame);
        }
        frames
    }

    fn next(&self) -> Option<Option<Arrived>> {
        let mut buffer = vec![0; 65536];
        let length = recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty()).ok()?;
        let relayed = buffer[..6] != [0xff; 6];
        Some(relayed.then(|| frame::read(&buffer[..length])).flatten())
    }
}

pub fn stream(counters: &Counters) -> &StreamCounters {
    counters.streams.values().next().unwrap()
}

pub fn dropped(counters: &StreamCounters, reason: DropReason) -> u64 {
    counters.drops.0.get(&reason).copied().unwrap_or(0)
}

/// received = forwarded + passed + drops, and copies = delivered + drops.
pub fn assert_identities(counters: &StreamCounters) {
    let handled = counters.forwarded.packets + counters.passed.packets + counters.drops.total();
    assert_eq!(counters.received.packets, handled, "{counters:?}");
    for subscriber in counters.subscribers.values() {
        let copies = subscriber.delivered.packets + subscriber.drops.total();
        assert!(copies <= counters.forwarded.packets, "{counters:?}");
    }
}
