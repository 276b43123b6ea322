//! Devices of this machine are lent to hosts, and come back as they were, whatever becomes of the borrower.

#![allow(clippy::print_stdout, reason = "the child speaks to its test")]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use netdev::{Link, LinkSpec, Netlink};
use sys::netns::{self, Namespace};
use test_support::cleaning;
use testbed::{Bed, HostSpec, LinkKind, Topology};

use crate::bed_lock;

/// Set in a child: the machine whose devices it borrows.
const ROLE: &str = "LOWROAD_TEST_NIC_BORROWER";

/// The settings of a device, without counters and states that change by themselves.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DeviceState {
    name: String,
    mac: [u8; 6],
    mtu: u32,
    tx_queue_len: u32,
    up: bool,
    alias: Option<String>,
}

/// A machine of the test's own, with a cable between its two devices.
struct Machine {
    name: String,
    namespace: Namespace,
}

impl Machine {
    fn new(test: &str) -> Self {
        let name = format!("lr-test-nic-{}-{test}", std::process::id());
        let machine = Self {
            namespace: Namespace::create(&name).unwrap(),
            name,
        };
        machine.run(|netlink| {
            let one = LinkSpec::new("eth1").mtu(1400).tx_queue_len(77);
            let other = LinkSpec::new("eth2");
            netlink.add_veth(&one, &other).unwrap();
            let index = netlink.link_by_name("eth1").unwrap().index;
            let spec = LinkSpec::unnamed().alias("to the third rack").up();
            netlink.set_link(index, &spec).unwrap();
        });
        machine
    }

    fn run<T: Send>(&self, work: impl FnOnce(&mut Netlink) -> T + Send) -> T {
        let inside = || work(&mut Netlink::new().unwrap());
        self.namespace.run(inside).unwrap()
    }

    fn devices(&self) -> Vec<DeviceState> {
        let mut links = self.run(|netlink| netlink.links().unwrap());
        links.retain(|link| !link.loopback);
        let of = |link: Link| {
            let alias = link.alias.filter(|alias| !alias.is_empty());
            DeviceState {
                name: link.name,
                mac: link.mac,
                mtu: link.mtu,
                tx_queue_len: link.tx_queue_len,
                up: link.up,
                alias,
            }
        };
        let mut devices: Vec<_> = links.into_iter().map(of).collect();
        devices.sort();
        devices
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        netns::remove(&self.name).unwrap();
    }
}

fn wired(env: &str) -> Topology {
    let mut topology = Topology::default();
    for (name, env) in [("client", "native"), ("server", env)] {
        topology.host.insert(name.to_owned(), HostSpec::of(env));
    }
    let nics = ["eth1", "eth2"].map(str::to_owned);
    topology.link = vec![testbed::LinkSpec::nics(&["client", "server"], &nics)];
    topology
}

fn echoes(bed: &Bed) -> bool {
    let client = bed.host("client").unwrap();
    let server = bed.host("server").unwrap().interface("client").unwrap();
    [server.v4, server.v6].iter().all(|address| {
        let mut ping = Command::new("ping");
        ping.args(["-c", "1", "-W", "5", &address.to_string()]);
        ping.stdout(Stdio::null());
        client.spawn(ping).unwrap().wait().unwrap().success()
    })
}

#[test]
fn hosts_have_the_devices_meanwhile_and_they_come_back_as_they_were() {
    if !sys::require::root() {
        return;
    }
    let _beds = bed_lock::shared();
    let machine = Machine::new("meanwhile");
    let before = machine.devices();
    machine
        .namespace
        .run(|| {
            let bed = Bed::up(&wired("native"), "wired").unwrap();
            assert!(echoes(&bed));
            let client = bed.host("client").unwrap().interface("server").unwrap();
            assert_eq!((client.mac, client.mtu), (before[0].mac, 1500));
            let kind = &bed.settings()["link.client-server.kind"];
            assert_eq!(kind, &serde_json::json!(LinkKind::Nic));
            assert_eq!(machine.devices(), []);
        })
        .unwrap();
    assert_eq!(machine.devices(), before);
}

#[test]
fn what_the_machine_needs_itself_is_not_lent() {
    if !sys::require::root() {
        return;
    }
    let _beds = bed_lock::shared();
    let machine = Machine::new("needed");
    machine.run(|netlink| {
        let index = netlink.link_by_name("eth2").unwrap().index;
        let address = "192.0.2.1".parse().unwrap();
        netlink.add_addresses(&[(index, address, 24)]).unwrap();
        netlink.add_bridge(&LinkSpec::new("bridge")).unwrap();
    });
    let refused = |topology: &Topology| {
        let up = machine.namespace.run(|| Bed::up(topology, "needed"));
        up.unwrap().unwrap_err().to_string()
    };
    let why = refused(&wired("native"));
    assert!(why.contains("eth2") && why.contains("192.0.2.1"), "{why}");
    for (nic, said) in [("lo", "not an Ethernet device"), ("eth9", "eth9")] {
        let mut topology = wired("native");
        topology.link[0].nics[1] = nic.to_owned();
        let why = refused(&topology);
        assert!(why.contains(said), "{why}");
    }
    machine.run(|netlink| {
        let index = netlink.link_by_name("eth1").unwrap().index;
        let above = LinkSpec::new("above");
        netlink.add_macvlan(&above, index).unwrap();
    });
    let why = refused(&wired("native"));
    assert!(why.contains("above is made on it"), "{why}");
    machine.run(|netlink| {
        let above = netlink.link_by_name("above").unwrap().index;
        netlink.delete_link(above).unwrap();
        let bridge = netlink.link_by_name("bridge").unwrap().index;
        let index = netlink.link_by_name("eth1").unwrap().index;
        let port = LinkSpec::unnamed().controller(bridge);
        netlink.set_link(index, &port).unwrap();
    });
    let mut topology = wired("native");
    topology.link[0].nics.reverse();
    let why = refused(&topology);
    assert!(why.contains("eth1") || why.contains("192.0.2.1"), "{why}");
    assert_eq!(machine.devices().len(), 3, "nothing was moved");
}

#[test]
fn clean_gives_back_what_a_killed_borrower_has() {
    let test = "nic::clean_gives_back_what_a_killed_borrower_has";
    if let Ok(machine) = std::env::var(ROLE) {
        let machine = Namespace::named(&machine).unwrap();
        machine.enter().unwrap();
        let _bed = Bed::up(&wired("native"), "borrower").unwrap();
        println!("\nborrowed");
        loop {
            std::thread::park();
        }
    }
    if !sys::require::root() {
        return;
    }
    let machine = Machine::new("killed");
    let before = machine.devices();
    let mut borrower = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", test])
        .env(ROLE, &machine.name)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(borrower.stdout.take().unwrap()).lines();
    let told = said.by_ref().map_while(Result::ok);
    assert!(told.into_iter().any(|line| line == "borrowed"));
    let _turn = cleaning::turn();
    borrower.kill().unwrap();
    borrower.wait().unwrap();
    assert_eq!(machine.devices(), []);
    // From elsewhere they cannot be given back to where they are from: what holds them stays.
    testbed::clean().unwrap();
    let mark = format!("lr-bed-{}-", borrower.id());
    let left = || {
        netns::names()
            .into_iter()
            .filter(|name| name.starts_with(&mark))
            .count()
    };
    assert_eq!((machine.devices(), left()), (vec![], 2));
    let cleaned = machine.namespace.run(testbed::clean).unwrap().unwrap();
    assert_eq!(cleaned.nics, 2);
    assert_eq!(machine.devices(), before);
    assert_eq!(left(), 0);
}
