//! A whole relay: a sender, the relay and receivers in three network namespaces. Frames go in as bytes and what
//! reaches the receivers' two devices is captured as bytes.
//!
//! ```text
//! sender s0 10.91.0.1 ---- in0 10.91.0.2  relay  out1 10.91.1.1 ---- c1 10.91.1.2
//!        fd91::1                fd91::2           out2 10.91.2.1 ---- c2 10.91.2.2   receivers
//! ```
//! The second half of each IPv6 address is the same: fd91:0:0:1::1, fd91:0:0:2::2 and so on.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use netdev::{LinkSpec, NeighbourState, Netlink};
use nix::sys::socket::{LinkAddr, recvfrom};
use packet::build::{Builder, udp};
use relay::config::Config;
use relay::core::{Core, StreamView};
use relay::spec::{StreamSpec, SubscriberSpec};
use sys::ethtool::Ethtool;
use sys::mmsg::Outgoing;

use super::space::{Injector, Space, TIMEOUT, add_addresses, packet_socket};

pub const SENDER_MAC: [u8; 6] = [2, 0x91, 0, 0, 0, 1];
pub const INGRESS_MAC: [u8; 6] = [2, 0x91, 0, 0, 0, 2];
const EGRESS_MACS: [[u8; 6]; 2] = [[2, 0x91, 0, 0, 1, 1], [2, 0x91, 0, 0, 2, 1]];
const RECEIVER_MACS: [[u8; 6]; 2] = [[2, 0x91, 0, 0, 1, 2], [2, 0x91, 0, 0, 2, 2]];

/// The three namespaces.
pub struct Rig {
    pub sender: Space,
    pub relay: Space,
    pub receivers: Space,
    injector: Injector,
}

/// A datagram as a receiver's device got it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReceivedDatagram {
    /// 1 or 2: c1 or c2.
    pub device: u8,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub ttl: u8,
    pub tos: u8,
    /// DF, or true for IPv6.
    pub whole: bool,
    pub payload: Vec<u8>,
}

impl Rig {
    /// Replaces the nftables rules of the relay's namespace.
    pub fn load_rules(&self, rules: &str) {
        let script = format!("flush ruleset\n{rules}\n");
        let status = self.relay.run(|| {
            let mut nft = Command::new("nft")
                .args(["-f", "-"])
                .stdin(Stdio::piped())
                .spawn()
                .unwrap();
            let mut stdin = nft.stdin.take().unwrap();
            stdin.write_all(script.as_bytes()).unwrap();
            drop(stdin);
            nft.wait().unwrap()
        });
        assert!(status.success(), "{rules}");
    }

    /// With this MTU on the device to c1, where one is named.
    pub fn new(mtu: Option<u32>) -> Self {
        let (sender, relay, receivers) = (Space::new(), Space::new(), Space::new());
        relay.run(|| {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
        });
        let injector = wire_ingress(&relay, &sender);
        wire_egress(&relay, &receivers, 1, mtu);
        wire_egress(&relay, &receivers, 2, None);
        Self {
            injector,
            sender,
            relay,
            receivers,
        }
    }

    /// Removes a device of the relay's, and with it the other end of its cable.
    pub fn cut(&self, device: &str) {
        let mut netlink = self.relay.netlink();
        let index = netlink.link_by_name(device).unwrap().index;
        netlink.delete_link(index).unwrap();
    }

    /// Puts back the device that frames come in by.
    pub fn restore_ingress(&mut self) {
        self.injector = wire_ingress(&self.relay, &self.sender);
    }

    /// Puts back out1 or out2.
    pub fn restore_egress(&self, number: u8) {
        wire_egress(&self.relay, &self.receivers, number, None);
    }

    /// Starts a relay in its namespace.
    pub fn serve(&self, streams: Vec<StreamSpec>) -> Core {
        self.try_serve(streams).unwrap()
    }

    pub fn try_serve(&self, streams: Vec<StreamSpec>) -> Result<Core, control::Error> {
        self.serve_on(Vec::new(), streams)
    }

    /// Starts a relay whose threads are pinned to these CPUs in turn.
    pub fn serve_on(
        &self,
        cpus: Vec<usize>,
        streams: Vec<StreamSpec>,
    ) -> Result<Core, control::Error> {
        let config = Config {
            path: "/nonexistent".into(),
            control: "/nonexistent".into(),
            http: None,
            cpus,
            streams,
        };
        self.relay.run(|| Core::start(&config))
    }

    /// Runs `ip` with these words in the relay's namespace.
    pub fn ip(&self, words: &str) {
        let run = || {
            let mut ip = Command::new("ip");
            ip.args(words.split_whitespace()).status().unwrap()
        };
        assert!(self.relay.run(run).success(), "ip {words}");
    }

    /// Sends a frame into the relay's ingress device.
    pub fn inject(&self, frame: &[u8]) {
        self.injector.send(frame);
    }

    /// Sends frames one after the other, all from the same CPU: a veth queues the frames of each
    /// apart, and a sender that moves overtakes itself.
    pub fn inject_in_order(&self, frames: impl Iterator<Item = Vec<u8>> + Send) {
        let sending = move || {
            sys::sched::pin(0).unwrap();
            for frame in frames {
                self.inject(&frame);
            }
        };
        std::thread::scope(|scope| scope.spawn(sending).join().unwrap());
    }

    /// Sends as a program does: the stack makes the headers and leaves the checksum to the device.
    pub fn send(&self, from: SocketAddr, to: SocketAddr, payload: &[u8], ttl: u8, tos: u8) {
        let mut outgoing = Outgoing::to(to);
        (outgoing.ttl, outgoing.tos) = (Some(ttl), Some(tos));
        let send = || {
            let socket = std::net::UdpSocket::bind(from).unwrap();
            sys::mmsg::send_one(&socket, payload, &outgoing, 0).unwrap()
        };
        assert_eq!(self.sender.run(send), payload.len());
    }

    /// Listens on the receivers' devices from now on.
    pub fn capture(&self) -> Capture {
        self.receivers.run(Capture::new)
    }
}

/// A datagram from the sender to the relay's ingest, to be changed before it is framed.
pub fn datagram(from: &str, to: &str, payload: impl Into<Vec<u8>>) -> Builder {
    udp(from.parse().unwrap(), to.parse().unwrap())
        .macs(SENDER_MAC, INGRESS_MAC)
        .payload(payload)
}

/// A stream that anyone may send.
pub fn stream(datapath: &str, listen: &str, subscribers: Vec<SubscriberSpec>) -> StreamSpec {
    let text = format!(
        "{{\"name\":\"s\",\"listen\":\"{listen}\",\"datapath\":\"{datapath}\",\"source\":\"any\"}}"
    );
    let mut spec: StreamSpec = serde_json::from_str(&text).unwrap();
    spec.subscribers = subscribers;
    spec
}

pub fn subscriber(name: &str, to: &str) -> SubscriberSpec {
    serde_json::from_str(&format!("{{\"name\":\"{name}\",\"to\":\"{to}\"}}")).unwrap()
}

/// Waits until the relay's counts satisfy `enough`, and returns them.
pub fn await_counts(core: &Core, enough: impl Fn(&StreamView) -> bool) -> StreamView {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let view = core.counters().remove(0);
        if enough(&view) {
            return view;
        }
        assert!(Instant::now() < deadline, "still {view:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What arrives at the receivers' devices.
pub struct Capture {
    socket: OwnedFd,
    devices: [usize; 2],
}

impl Capture {
    fn new() -> Self {
        let socket = packet_socket();
        sys::socket::receive_buffer(socket.as_fd(), 64 << 20).unwrap();
        let index = |name: &str| Netlink::new().unwrap().link_by_name(name).unwrap().index as usize;
        Self {
            devices: [index("c1"), index("c2")],
            socket,
        }
    }

    /// The next `count` relayed datagrams, in order of arrival; fewer when they do not come.
    pub fn take(&self, count: usize) -> Vec<ReceivedDatagram> {
        let deadline = Instant::now() + TIMEOUT;
        let mut taken = Vec::new();
        while taken.len() < count && Instant::now() < deadline {
            match self.next() {
                Some(delivered) => taken.push(delivered),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        taken
    }

    /// Everything that has arrived by now.
    pub fn rest(&self) -> Vec<ReceivedDatagram> {
        std::iter::from_fn(|| self.next()).collect()
    }

    fn next(&self) -> Option<ReceivedDatagram> {
        let mut frame = vec![0; 70_000];
        loop {
            let received = recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut frame[..]);
            let Ok((length, Some(from))) = received else {
                return None;
            };
            let device = self
                .devices
                .iter()
                .position(|index| *index == from.ifindex());
            if let Some(device) = device
                && let Some(mut delivered) = read(&frame[..length])
            {
                delivered.device = u8::try_from(device + 1).unwrap();
                return Some(delivered);
            }
        }
    }
}

/// A UDP datagram on its way to a receiver; everything else on the wire is none.
fn read(frame: &[u8]) -> Option<ReceivedDatagram> {
    let source_mac: [u8; 6] = frame.get(6..12)?.try_into().ok()?;
    if !EGRESS_MACS.contains(&source_mac) {
        return None;
    }
    let (source, destination, ttl, tos, whole, datagram): (IpAddr, IpAddr, _, _, _, _) =
        match frame.get(12..14)? {
            [8, 0] => {
                let ip = packet::ipv4::Packet::new_checked(frame.get(14..)?).ok()?;
                (ip.protocol() == 17).then_some(())?;
                assert!(
                    ip.verify_checksum(),
                    "every IPv4 header has a right checksum"
                );
                let header = 14 + ip.header_len();
                let end = 14 + ip.total_len();
                (
                    ip.source().into(),
                    ip.destination().into(),
                    ip.ttl(),
                    ip.tos(),
                    ip.dont_fragment(),
                    frame.get(header..end)?,
                )
            }
            [0x86, 0xdd] => {
                let ip = frame.get(14..54)?;
                (ip[6] == 17).then_some(())?;
                let tos = (ip[0] << 4) | (ip[1] >> 4);
                let label = u32::from_be_bytes([0, ip[1] & 0xf, ip[2], ip[3]]);
                assert_eq!(label, 0, "the flow label is 0");
                let address = |at: usize| {
                    IpAddr::from(<[u8; 16]>::try_from(&frame[14 + at..14 + at + 16]).unwrap())
                };
                let length = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
                (
                    address(8),
                    address(24),
                    ip[7],
                    tos,
                    true,
                    frame.get(54..54 + length)?,
                )
            }
            _ => return None,
        };
    let udp = packet::udp::Packet::new_checked(datagram).unwrap();
    assert!(
        udp.checksum() != 0 && udp.verify_checksum(source, destination),
        "every copy has a right checksum"
    );
    let port = |at: usize| u16::from_be_bytes([datagram[at], datagram[at + 1]]);
    Some(ReceivedDatagram {
        device: 0,
        source: SocketAddr::new(source, port(0)),
        destination: SocketAddr::new(destination, port(2)),
        ttl,
        tos,
        whole,
        payload: datagram.get(8..)?.to_vec(),
    })
}

fn wire_ingress(relay: &Space, sender: &Space) -> Injector {
    let near = LinkSpec::new("in0").mac(INGRESS_MAC).queues(2).up();
    let far = LinkSpec::new("s0").mac(SENDER_MAC).queues(2);
    let far = far.namespace(sender.namespace.as_fd());
    relay.netlink().add_veth(&near, &far).unwrap();
    relay.run(|| address("in0", "10.91.0.2", "fd91::2"));
    sender.run(|| address("s0", "10.91.0.1", "fd91::1"));
    relay.run(|| neighbour("in0", SENDER_MAC, "10.91.0.1", "fd91::1"));
    relay.await_running("in0");
    Injector::new(sender, "s0")
}

/// Wires out1 to c1, or out2 to c2.
fn wire_egress(relay: &Space, receivers: &Space, number: u8, mtu: Option<u32>) {
    let (ours, theirs) = (format!("out{number}"), format!("c{number}"));
    let at = usize::from(number - 1);
    let mut near = LinkSpec::new(&ours).mac(EGRESS_MACS[at]).up();
    if let Some(mtu) = mtu {
        near = near.mtu(mtu);
    }
    let far = LinkSpec::new(&theirs).mac(RECEIVER_MACS[at]);
    let far = far.namespace(receivers.namespace.as_fd());
    relay.netlink().add_veth(&near, &far).unwrap();
    // Superframes are cut and checksums made before the wire, as for a device that can do neither:
    // what is captured is what a receiver far away would get.
    let neither = [
        ("tx-udp-segmentation", false),
        ("tx-checksum-ip-generic", false),
    ];
    relay
        .run(|| Ethtool::open(&ours)?.set_features(&neither))
        .unwrap();
    let v4 = |host: u8| format!("10.91.{number}.{host}");
    let v6 = |host: u8| format!("fd91:0:0:{number}::{host}");
    relay.run(|| address(&ours, &v4(1), &v6(1)));
    receivers.run(|| address(&theirs, &v4(2), &v6(2)));
    // Without GRO a veth takes no frames that XDP redirects to it.
    let gro = [("rx-gro", true)];
    receivers
        .run(|| Ethtool::open(&theirs)?.set_features(&gro))
        .unwrap();
    relay.run(|| neighbour(&ours, RECEIVER_MACS[at], &v4(2), &v6(2)));
    relay.await_running(&ours);
}

/// Brings a device up, with both addresses.
fn address(device: &str, v4: &str, v6: &str) {
    let mut netlink = Netlink::new().unwrap();
    let index = netlink.link_by_name(device).unwrap().index;
    netlink.set_link(index, &LinkSpec::unnamed().up()).unwrap();
    add_addresses(&mut netlink, index, v4, v6);
}

/// The relay knows the receivers and the sender for good: no test waits for ARP.
fn neighbour(device: &str, mac: [u8; 6], v4: &str, v6: &str) {
    let mut netlink = Netlink::new().unwrap();
    let index = netlink.link_by_name(device).unwrap().index;
    let entries = [v4, v6].map(|address| (index, address.parse().unwrap(), mac));
    netlink
        .set_neighbours(&entries, NeighbourState::Permanent)
        .unwrap();
}
