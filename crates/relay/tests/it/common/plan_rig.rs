//! A datapath asked by plans: a sender's, a relay's and a receivers' namespace, and frames put into
//! the relay's.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use datapath::Datapath;
use libbpf_rs::{Program, libbpf_sys};
use netdev::{LinkSpec, NextHop};
use nix::sys::socket::{MsgFlags, recv};
use relay::af_xdp::AfXdp;
use relay::counters::{Counters, DropReason, StreamCounters};
use relay::plan::{Limits, Plan, SourcePolicy, Stream, StreamId, Subscriber, SubscriberId};
use relay::tc::Tc;
use relay::xdp::Xdp;
use relay::{Relay, Running};
use sys::ethtool::{Channels, Ethtool};

use super::frame::{self, Frame, ReceivedFrame};
use super::space::{Injector, Space, TIMEOUT, add_addresses, packet_socket};

pub const SENDER: &str = "10.1.0.1:4000";
pub const INGEST: &str = "10.1.0.2:5000";
pub const SENDER6: &str = "[fd01::1]:4000";
pub const INGEST6: &str = "[fd01::2]:5000";
pub const REDIRECT: u32 = 4;

/// The kernel's datapaths, which only plans reach by themselves.
pub const DATAPATHS: [&dyn Datapath<Relay>; 3] = [&Xdp, &Tc, &AfXdp];

/// A sender and the ingest it sends to, of either family.
pub const FAMILIES: [(&str, &str); 2] = [(SENDER, INGEST), (SENDER6, INGEST6)];

/// Each of the kernel's datapaths with a sender and an ingest of each family.
pub fn everywhere()
-> impl Iterator<Item = (&'static dyn Datapath<Relay>, &'static str, &'static str)> {
    let families = |datapath| FAMILIES.map(|(sender, ingest)| (datapath, sender, ingest));
    DATAPATHS.into_iter().flat_map(families)
}

/// A plan of this stream alone.
pub fn plan(stream: &Stream) -> Plan {
    Plan {
        streams: vec![stream.clone()],
        ..Plan::default()
    }
}

/// src0 - in0 (the relay) out0 - rx0, and out1 - rx1.
pub struct Rig {
    pub sender: Space,
    pub relay: Space,
    pub client: Space,
    pub ingress: u32,
    pub out: [u32; 2],
    injector: Injector,
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
        for device in ["in0", "out0", "out1"] {
            relay.await_running(device);
        }
        let ingress = relay.index("in0");
        let out = [relay.index("out0"), relay.index("out1")];
        Self {
            injector: Injector::new(&sender, "src0"),
            sender,
            relay,
            client,
            ingress,
            out,
        }
    }

    /// Everything that arrives in the receivers' namespace from now on.
    pub fn capture(&self) -> Capture {
        let fd = self.client.run(packet_socket);
        sys::socket::receive_buffer(&fd, 64 << 20).unwrap();
        Capture(fd)
    }

    /// A stream of `subscribers`, the even ones by out0 and the odd ones by out1, port 7000 + i.
    pub fn stream(&self, subscribers: u32, ingest: &str) -> Stream {
        let address: SocketAddr = ingest.parse().unwrap();
        let socket = self.relay.listen(address);
        // Where the tests crowd the CPUs, the relay may be away for longer than the usual buffer.
        sys::socket::receive_buffer(&socket, 16 << 20).unwrap();
        Stream {
            id: StreamId(3),
            name: "cam1".into(),
            ingest: vec![address],
            interfaces: vec![self.ingress],
            socket: Arc::new(socket),
            egress: std::collections::BTreeMap::new(),
            source: SourcePolicy::Any,
            check_source: false,
            limits: Limits::default(),
            min_ttl: 2,
            policy: None,
            diverted: false,
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
            userspace_only: false,
            next_hop: NextHop::Ready {
                ifindex: self.out[way],
                source_mac: mac(net as u8 * 2),
                destination_mac: mac(net as u8 * 2 + 1),
                mtu: 1500,
                source: text(1, 0).ip(),
            },
        }
    }

    /// What such a subscriber's device must get of a frame.
    pub fn copy(&self, i: u32, v4: bool, frame: &Frame) -> ReceivedFrame {
        let subscriber = self.subscriber(i, v4);
        let net = (i % 2 + 2) as u8;
        let macs = [mac(net * 2 + 1), mac(net * 2)].concat();
        ReceivedFrame {
            macs: macs.try_into().unwrap(),
            source: subscriber.source,
            destination: subscriber.destination,
            tos: frame.tos,
            ttl: frame.ttl - 1,
            payload: frame.payload.clone(),
            partial: false,
        }
    }

    pub fn start(&self, datapath: &dyn Datapath<Relay>, plan: &Plan) -> Running {
        self.relay.run(|| datapath.start(plan).unwrap())
    }

    /// The XDP program of the ingress device.
    pub fn xdp_program(&self) -> OwnedFd {
        let link = self.relay.netlink().link_by_index(self.ingress).unwrap();
        Program::fd_from_id(link.xdp_program.expect("a program is attached")).unwrap()
    }

    /// Has the sender send the frame as it is.
    pub fn send(&self, frame: &Frame) {
        self.send_to(mac(2), frame);
    }

    /// Has the sender send the frame to another device than the relay's.
    pub fn send_to(&self, device: [u8; 6], frame: &Frame) {
        let mut bytes = frame.bytes();
        bytes[..6].copy_from_slice(&device);
        self.injector.send(&bytes);
    }

    /// Has the sender use one of its queues only, so that all frames come in by one.
    pub fn use_one_queue(&self) {
        self.sender.run(|| {
            let device = Ethtool::open("src0").unwrap();
            let channels = device.channels().unwrap();
            device.set_channels(Channels { tx: 1, ..channels }).unwrap();
        });
    }

    /// Has the relay's device take in these frames at one go, if they are 64 at the most. There is
    /// one that is nobody's before them and one after.
    pub fn send_at_one_go<'a>(&self, frames: impl IntoIterator<Item = &'a Frame>) {
        let nobodys = |size| self.send(&Frame::new(SENDER, "10.1.0.2:4999", size));
        // The long one empties the bucket, for longer than the others take.
        let bucket = "tbf rate 400bit burst 1600 limit 1mb";
        self.sender.tc(&format!("qdisc add dev src0 root {bucket}"));
        nobodys(1472);
        for frame in frames {
            self.send(frame);
        }
        // From the next frame on, it lets everything through.
        let bucket = "tbf rate 1gbit burst 1mb limit 1mb";
        self.sender
            .tc(&format!("qdisc change dev src0 root {bucket}"));
        nobodys(20);
        self.sender.tc("qdisc del dev src0 root");
    }

    /// The verdict on a frame that comes so many times and goes nowhere.
    pub fn verdict(&self, program: &OwnedFd, frame: &[u8], times: u32) -> u32 {
        self.relay
            .run(|| test_run(program, frame, self.ingress, times))
    }
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
        let v4 = format!("10.{number}.0.{host}");
        let v6 = format!("fd0{number}::{host}");
        add_addresses(&mut space.netlink(), index, &v4, &v6);
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
    /// When they have not come within [`TIMEOUT`].
    pub fn take(&self, count: usize) -> Vec<ReceivedFrame> {
        let mut frames = Vec::new();
        let deadline = Instant::now() + TIMEOUT;
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

    /// The same, in order of the ports they are for.
    pub fn take_by_port(&self, count: usize) -> Vec<ReceivedFrame> {
        let mut frames = self.take(count);
        frames.sort_by_key(|frame| frame.destination.port());
        frames
    }

    /// What has arrived by now.
    pub fn rest(&self) -> Vec<ReceivedFrame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next() {
            frames.extend(frame);
        }
        frames
    }

    fn next(&self) -> Option<Option<ReceivedFrame>> {
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

fn handled(counters: &StreamCounters) -> u64 {
    counters.forwarded.packets + counters.passed.packets + counters.drops.total()
}

/// Waits until so many datagrams of the only stream are counted, whatever became of them. Nothing
/// arrives that shows that one was refused, and one still on its way is lost where the datapath
/// stops.
pub fn await_handled(running: &Running, datagrams: u64) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let counters = running.counters();
        let counters = stream(&counters);
        if handled(counters) >= datagrams {
            return;
        }
        assert!(Instant::now() < deadline, "{datagrams}: {counters:?}");
        std::thread::yield_now();
    }
}

/// received = forwarded + passed + drops, and copies = delivered + drops.
pub fn assert_identities(counters: &StreamCounters) {
    let handled = handled(counters);
    assert_eq!(counters.received.packets, handled, "{counters:?}");
    for subscriber in counters.subscribers.values() {
        let copies = subscriber.delivered.packets + subscriber.drops.total();
        assert!(copies <= counters.forwarded.packets, "{counters:?}");
    }
}

/// The next datagram that a fast path hands to userspace.
pub fn punt(running: &Running) -> relay::Punt {
    let punts = running.fast_path().unwrap().punts().unwrap();
    let mut ring = relay::PuntRing::new(&punts).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(punt) = ring.take().pop() {
            return punt;
        }
        assert!(Instant::now() < deadline, "nothing was handed over");
        std::thread::yield_now();
    }
}
