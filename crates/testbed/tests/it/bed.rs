//! Beds of each kind of link carry packets, say what they set, and leave nothing.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use testbed::{Bed, Host, LinkKind, LinkSpec, Neighbours, Topology};

use crate::bed_lock;

const TIMEOUT: Duration = Duration::from_secs(10);

fn hosts(names: &[&str]) -> Topology {
    let mut topology = Topology::default();
    for &name in names {
        let native = testbed::HostSpec::native();
        topology.host.insert(name.to_owned(), native);
    }
    topology
}

fn line(kind: LinkKind) -> Topology {
    let mut topology = hosts(&["sender", "relay", "receiver"]);
    topology.link = vec![
        LinkSpec::new(kind, &["sender", "relay"]),
        LinkSpec::new(kind, &["relay", "receiver"]),
    ];
    topology
}

fn namespaces_of(run: &str) -> Vec<String> {
    let mark = format!("-{run}-");
    let mut names = sys::netns::names();
    names.retain(|name| name.contains(&mark) && name.contains(&std::process::id().to_string()));
    names
}

/// Sends a datagram from one host to an address of another, which must get it.
fn datagram(from: &Host, to: &Host, address: IpAddr) {
    let receiver = to
        .run(|| UdpSocket::bind(SocketAddr::new(address, 0)).unwrap())
        .unwrap();
    receiver.set_read_timeout(Some(TIMEOUT)).unwrap();
    let target = receiver.local_addr().unwrap();
    let any: SocketAddr = if address.is_ipv4() {
        "0.0.0.0:0".parse().unwrap()
    } else {
        "[::]:0".parse().unwrap()
    };
    from.run(|| {
        let sender = UdpSocket::bind(any).unwrap();
        sender.send_to(b"over the wire", target).unwrap();
    })
    .unwrap();
    let mut buffer = [0; 32];
    let length = receiver.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"over the wire");
}

fn both_families(bed: &Bed, from: &str, to: &str) {
    let (sender, receiver) = (bed.host(from).unwrap(), bed.host(to).unwrap());
    let interface = receiver.interface(from).unwrap();
    datagram(sender, receiver, interface.v4);
    datagram(sender, receiver, interface.v6);
}

#[test]
fn every_kind_of_link_carries_both_families_both_ways_at_once() {
    if !sys::require::root() {
        return;
    }
    let _beds = bed_lock::shared();
    for (kind, run) in [
        (LinkKind::Direct, "direct"),
        (LinkKind::Bridge, "bridge"),
        (LinkKind::Macvlan, "macvlan"),
    ] {
        let bed = Bed::up(&line(kind), run).unwrap();
        both_families(&bed, "sender", "relay");
        both_families(&bed, "receiver", "relay");
        both_families(&bed, "relay", "receiver");
        assert!(namespaces_of(run).len() >= 3);
        drop(bed);
        assert_eq!(namespaces_of(run), Vec::<String>::new());
    }
}

#[test]
fn a_bridge_joins_many_and_neighbours_are_found_by_asking() {
    if !sys::require::root() {
        return;
    }
    let _beds = bed_lock::shared();
    let mut topology = hosts(&["a", "b", "c"]);
    for host in topology.host.values_mut() {
        host.settings.neighbours = Neighbours::Dynamic;
    }
    topology.link = vec![LinkSpec::new(LinkKind::Bridge, &["a", "b", "c"])];
    let bed = Bed::up(&topology, "many").unwrap();
    both_families(&bed, "a", "b");
    both_families(&bed, "c", "a");
    assert_eq!(bed.host("a").unwrap().interfaces()[0].peers.len(), 2);
}

#[test]
fn packets_pass_a_forwarding_host_only() {
    if !sys::require::root() {
        return;
    }
    let _beds = bed_lock::shared();
    let mut topology = line(LinkKind::Direct);
    topology.host.get_mut("relay").unwrap().settings.forward = true;
    let bed = Bed::up(&topology, "forward").unwrap();
    let (sender, receiver) = (bed.host("sender").unwrap(), bed.host("receiver").unwrap());
    let interface = receiver.interface("relay").unwrap();
    datagram(sender, receiver, interface.v4);
    datagram(sender, receiver, interface.v6);
}

#[test]
fn settings_are_set_and_said() {
    if !sys::require::root() {
        return;
    }
    let _beds = bed_lock::shared();
    let mut topology = line(LinkKind::Direct);
    let settings = &mut topology.link[0].settings;
    settings.queues = 2;
    settings.mtu = 1400;
    settings.tx_queue_len = 77;
    settings.tx_checksum = false;
    settings.tso = false;
    settings.udp_segmentation = false;
    settings.rx_udp_gro_forwarding = true;
    settings.threaded_napi = true;
    topology.link[1].settings.gro = false;
    let bed = Bed::up(&topology, "settings").unwrap();
    let relay = bed.host("relay").unwrap();
    let near = relay.interface("sender").unwrap();
    let link = relay.netlink().link_by_index(near.ifindex).unwrap();
    assert_eq!((link.mtu, link.tx_queue_len), (1400, 77));
    assert_eq!((link.rx_queues, link.tx_queues), (2, 2));
    let active = relay
        .run(|| {
            let open = |name| sys::ethtool::Ethtool::open(name).unwrap();
            let features = |name| open(name).features().unwrap();
            (features("sender"), features("receiver"))
        })
        .unwrap();
    assert!(active.0["rx-udp-gro-forwarding"].active && !active.1["rx-udp-gro-forwarding"].active);
    assert!(!active.0["tx-checksum-ip-generic"].active);
    assert!(active.0["rx-gro"].active && !active.1["rx-gro"].active);
    let threaded = relay
        .namespace()
        .run_with_sysfs(|| std::fs::read_to_string("/sys/class/net/sender/threaded").unwrap())
        .unwrap();
    assert_eq!(threaded.trim(), "1");
    let said = bed.settings();
    assert_eq!(said["link.sender-relay.mtu"], json!(1400));
    assert_eq!(said["link.sender-relay.threaded-napi"], json!(true));
    assert_eq!(said["host.relay.ipv4.ip_forward"], json!("0"));
    let features = said["device.relay.sender.features"].as_array().unwrap();
    assert!(features.contains(&json!("rx-gro")) && !features.contains(&json!("rx-gro-list")));
}

#[test]
fn programs_run_inside_on_their_cpus_and_die_with_the_bed() {
    if !sys::require::root() {
        return;
    }
    let _beds = bed_lock::shared();
    let mut topology = line(LinkKind::Direct);
    topology.host.get_mut("relay").unwrap().cpus = vec![0];
    let bed = Bed::up(&topology, "programs").unwrap();
    let relay = bed.host("relay").unwrap();
    let mut shell = Command::new("sh");
    shell
        .args([
            "-c",
            "ip -o link | wc -l; grep Cpus_allowed_list /proc/self/status; sleep 60",
        ])
        .stdout(std::process::Stdio::piped());
    let mut child = relay.spawn(shell).unwrap();
    let output = std::io::BufReader::new(child.stdout().unwrap());
    let mut lines = std::io::BufRead::lines(output).map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "3", "lo and one device per link");
    assert_eq!(lines.next().unwrap(), "Cpus_allowed_list:\t0");
    let allowed = relay
        .run(|| std::fs::read_to_string("/proc/thread-self/status").unwrap())
        .unwrap();
    assert!(allowed.contains("Cpus_allowed_list:\t0\n"), "{allowed}");
    assert!(child.try_wait().unwrap().is_none());
    drop(bed);
    assert!(!child.wait().unwrap().success());
    // The shell's own child had the pipe open as well: its end shows as the end of the output.
    assert_eq!(lines.next(), None);
}

#[test]
fn a_program_asked_to_stop_may_say_goodbye_and_one_that_will_not_is_killed() {
    if !sys::require::root() {
        return;
    }
    let _beds = bed_lock::shared();
    let bed = Bed::up(&hosts(&["alone"]), "stop").unwrap();
    let alone = bed.host("alone").unwrap();
    for (trap, code) in [("trap 'exit 7' TERM", Some(7)), ("trap '' TERM", None)] {
        let mut shell = Command::new("sh");
        shell
            .args([
                "-c",
                &format!("{trap}; echo ready; while :; do sleep 0.01; done"),
            ])
            .stdout(std::process::Stdio::piped());
        let mut child = alone.spawn(shell).unwrap();
        let mut line = String::new();
        let mut output = std::io::BufReader::new(child.stdout().unwrap());
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        let patience = Duration::from_millis(if code.is_some() { 10_000 } else { 50 });
        assert_eq!(child.stop(patience).unwrap().code(), code);
    }
    assert!(alone.spawn(Command::new("/no/such/program")).is_err());
}

#[test]
fn a_bed_that_fails_half_way_leaves_nothing() {
    if !sys::require::root() {
        return;
    }
    let _beds = bed_lock::shared();
    let mut topology = line(LinkKind::Bridge);
    // More than a veth can have: found out only when it is made.
    topology.link[1].settings.queues = 100_000;
    let error = Bed::up(&topology, "half").unwrap_err().to_string();
    assert!(error.contains("relay-receiver"), "{error}");
    assert_eq!(namespaces_of("half"), Vec::<String>::new());
    let panicked = std::panic::catch_unwind(|| {
        let _bed = Bed::up(&line(LinkKind::Bridge), "panic").unwrap();
        panic!("on purpose");
    });
    assert!(panicked.is_err());
    assert_eq!(namespaces_of("panic"), Vec::<String>::new());
    assert!(Bed::up(&line(LinkKind::Direct), "No/Such").is_err());
}

#[test]
fn what_a_bed_leaves_is_in_no_other_beds_way() {
    if !sys::require::root() {
        return;
    }
    let _beds = bed_lock::shared();
    let remains = Bed::up(&line(LinkKind::Bridge), "leaves").unwrap().leave();
    assert!(!namespaces_of("leaves").is_empty(), "it stands yet");
    let next = std::thread::scope(|scope| {
        scope.spawn(|| drop(remains));
        Bed::up(&line(LinkKind::Bridge), "comes").unwrap()
    });
    assert_eq!(namespaces_of("leaves"), Vec::<String>::new());
    both_families(&next, "sender", "relay");
}
