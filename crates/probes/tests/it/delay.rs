//! The delay probes on real packets between namespaces.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use netdev::{LinkSpec, NeighbourState, Netlink};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::UdpGsoSegment;
use packet::payload::Header;
use probes::delay::{DelayConfig, DelayProbe, MatchKey, Point, StampFrom, Subscriber};
use sys::ethtool::Ethtool;
use sys::netns::{self, Namespace};

const RUN: u32 = 4711;
/// The addresses of the two ends of the cable.
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 8, 1], [2, 0, 0, 0, 8, 2]];
/// How long the tests wait for what must come, on a machine that has much else to do.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A namespace whose name is removed with it.
struct TestNamespace {
    name: String,
    namespace: Namespace,
}

impl TestNamespace {
    fn new(part: &str) -> Self {
        let name = format!("lr-{}-probes-{part}", std::process::id());
        let namespace = Namespace::create(&name).unwrap();
        let space = Self { name, namespace };
        // Local IPv6 routes need a loopback that is up.
        let up = LinkSpec::unnamed().up();
        space.netlink().set_link(1, &up).unwrap();
        space
    }

    fn netlink(&self) -> Netlink {
        self.namespace.run(|| Netlink::new().unwrap()).unwrap()
    }

    fn point(&self) -> Point {
        Point {
            namespace: self.namespace.try_clone().unwrap(),
            ifindex: self.netlink().link_by_name("eth0").unwrap().index,
        }
    }

    /// The kernel adds the local route of an IPv6 address some time after the address.
    fn wait_until_local(&self, address: IpAddr) {
        let mut netlink = self.netlink();
        let deadline = Instant::now() + TIMEOUT;
        while !netlink.route_to(address, None, None).unwrap().local {
            assert!(Instant::now() < deadline, "{address} takes no packets");
            std::thread::yield_now();
        }
    }

    fn socket(&self, address: &str) -> UdpSocket {
        let bind = || UdpSocket::bind(address).unwrap();
        self.namespace.run(bind).unwrap()
    }
}

impl Drop for TestNamespace {
    fn drop(&mut self) {
        let _ = netns::remove(&self.name);
    }
}

/// The addresses of one end of the cable.
fn addresses(host: usize) -> [IpAddr; 2] {
    [format!("10.8.0.{host}"), format!("fd08::{host}")].map(|text| text.parse().unwrap())
}

/// Two namespaces with a cable between their eth0: 10.8.0.1 and .2, fd08::1 and ::2. Each end knows
/// the other: what waits for an answer may be discarded.
fn cable(near: &TestNamespace, far: &TestNamespace) {
    let end = |mac| LinkSpec::new("eth0").mac(mac);
    near.netlink()
        .add_veth(
            &end(MACS[0]).up(),
            &end(MACS[1]).namespace(far.namespace.as_fd()),
        )
        .unwrap();
    for (space, host) in [(near, 1), (far, 2)] {
        let index = space.point().ifindex;
        let mut netlink = space.netlink();
        netlink.set_link(index, &LinkSpec::unnamed().up()).unwrap();
        let [v4, v6] = addresses(host);
        netlink
            .add_addresses(&[(index, v4, 24), (index, v6, 64)])
            .unwrap();
    }
    for (space, host) in [(near, 1), (far, 2)] {
        let index = space.point().ifindex;
        let other = addresses(3 - host).map(|address| (index, address, MACS[2 - host]));
        space
            .netlink()
            .set_neighbours(&other, NeighbourState::Permanent)
            .unwrap();
        space.wait_until_local(addresses(host)[1]);
    }
}

fn send(socket: &UdpSocket, to: SocketAddr, flow: u32, sequences: std::ops::Range<u64>) {
    for sequence in sequences {
        let mut payload = [0; 200];
        let header = Header {
            run: RUN,
            flow,
            sequence,
            intended_ns: 0,
            sent_ns: 0,
        };
        header.write(&mut payload);
        socket.send_to(&payload, to).unwrap();
    }
}

fn config(
    near: &TestNamespace,
    far: &TestNamespace,
    v4: SocketAddr,
    v6: SocketAddr,
) -> DelayConfig {
    DelayConfig {
        sender: Some(near.point()),
        receivers: vec![far.point()],
        key: MatchKey::Lowroad { run: RUN },
        stamp: StampFrom::Egress,
        subscribers: [(v4, 0), (v6, 1)]
            .map(|(address, flow)| Subscriber { address, flow })
            .to_vec(),
        capacity: 1_000,
        window: 1_024,
        split_histograms: true,
        null: false,
    }
}

#[test]
fn every_packet_over_a_cable_is_timed_and_nothing_stays_attached() {
    if !sys::require::root() {
        return;
    }
    let (near, far) = (TestNamespace::new("near"), TestNamespace::new("far"));
    cable(&near, &far);
    let sinks = [far.socket("10.8.0.2:0"), far.socket("[fd08::2]:0")];
    let [v4, v6] = [0, 1].map(|sink: usize| sinks[sink].local_addr().unwrap());
    let probe = DelayProbe::attach(&config(&near, &far, v4, v6)).unwrap();
    let senders = [near.socket("10.8.0.1:0"), near.socket("[fd08::1]:0")];
    send(&senders[0], v4, 0, 0..900);
    // Both flows at once are more than a CPU's queue has room for.
    probe.settle(900, TIMEOUT).unwrap();
    send(&senders[1], v6, 1, 0..400);
    let other = SocketAddr::new(v4.ip(), v4.port() ^ 1);
    send(&senders[0], other, 0, 900..910);

    assert_eq!(probe.settle(1_310, TIMEOUT).unwrap(), 1_310);
    let report = probe.report(None).unwrap();
    assert_eq!(report.sent, [910, 400]);
    let [first, second] = report.subscribers.as_slice() else {
        panic!("{report:?}");
    };
    assert_eq!(
        (first.unique, first.missing, first.longest_loss),
        (900, 10, 10)
    );
    assert_eq!((second.unique, second.missing), (400, 0));
    assert_eq!(report.receivers[0].foreign, 10);
    assert_eq!(report.delay.count(), 1_300);
    assert_eq!(report.delay.min().map(|ns| ns > 0), Some(true));
    assert_eq!(report.violations(), Vec::<String>::new());

    drop(probe);
    let again = DelayProbe::attach(&config(&near, &far, v4, v6)).unwrap();
    send(&senders[0], v4, 0, 0..5);
    again.settle(5, TIMEOUT).unwrap();
    let report = again.report(None).unwrap();
    assert_eq!((report.sent[0], report.delay.count()), (5, 5));
}

/// A relay's GSO leaves segments whose payload is in pages, where the sender's was linear.
#[test]
fn a_payload_is_the_same_in_pages_as_in_one_piece() {
    const PAYLOAD: usize = 1_316;
    if !sys::require::root() {
        return;
    }
    let (near, far) = (TestNamespace::new("whole"), TestNamespace::new("pages"));
    cable(&near, &far);
    let segment_here = || {
        let ethtool = Ethtool::open("eth0").unwrap();
        ethtool.set_features(&[("tx-udp-segmentation", false)])
    };
    near.namespace.run(segment_here).unwrap().unwrap();
    let loopback = Point {
        namespace: near.namespace.try_clone().unwrap(),
        ifindex: 1,
    };
    let sink = far.socket("10.8.0.2:0");
    let to = sink.local_addr().unwrap();
    let unused = "10.8.0.2:9".parse().unwrap();
    let probe = DelayProbe::attach(&DelayConfig {
        sender: Some(loopback),
        key: MatchKey::PayloadHash,
        subscribers: vec![Subscriber {
            address: to,
            flow: 0,
        }],
        ..config(&near, &far, to, unused)
    })
    .unwrap();

    let payloads: Vec<u8> = (0..30)
        .flat_map(|i| [[i; PAYLOAD / 2], [0xff; PAYLOAD / 2]].concat())
        .collect();
    let stamped = near.socket("127.0.0.1:0");
    for payload in payloads.chunks(PAYLOAD) {
        stamped.send_to(payload, "127.0.0.1:9").unwrap();
    }
    let relay = near.socket("10.8.0.1:0");
    setsockopt(&relay, UdpGsoSegment, &i32::try_from(PAYLOAD).unwrap()).unwrap();
    relay.send_to(&payloads, to).unwrap();

    probe.settle(30, TIMEOUT).unwrap();
    let report = probe.report(None).unwrap();
    let only = &report.subscribers[0];
    assert_eq!((report.sent[0], only.unique, only.foreign), (30, 30, 0));
    assert_eq!(report.violations(), Vec::<String>::new());
}

#[test]
fn an_empty_wait_ends_and_a_device_that_is_not_there_is_an_error() {
    if !sys::require::root() {
        return;
    }
    let (near, far) = (TestNamespace::new("empty"), TestNamespace::new("other"));
    cable(&near, &far);
    let v4 = "10.8.0.2:9".parse().unwrap();
    let v6 = "[fd08::2]:9".parse().unwrap();
    let mut config = config(&near, &far, v4, v6);
    let probe = DelayProbe::attach(&config).unwrap();
    assert_eq!(probe.settle(1, Duration::from_millis(1)).unwrap(), 0);
    config.receivers[0].ifindex = 9_999;
    assert!(DelayProbe::attach(&config).is_err());
}
