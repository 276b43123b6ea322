//! A topology brought up: hosts, links, addresses, and a record of everything that was set.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::time::{Duration, Instant};

use netdev::{NeighbourState, Route};
use serde_json::{Value, json};
use sys::owner::Owner;

use crate::environment::EnvironmentSpec;
use crate::error::{Error, at};
use crate::features::{active_features, clear_features, set_features};
use crate::host::{Host, Interface, Peer};
use crate::impairment::link::ImpairedLink;
use crate::names;
use crate::nic::{self, NicLease};
use crate::pause::PauseGuard;
use crate::plan::{self, End, EngineEnd};
use crate::settings::{LinkSettings, Neighbours};
use crate::topology::{LinkKind, LinkSpec, Topology};
use crate::vm::guest::Guest;
use crate::wiring::{Switch, Wiring};

/// The two ends of a real cable take their time to agree, and so does a kernel that removes other namespaces
/// meanwhile: it sets nothing else up until it is done.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Settings that all hosts share, and that no bed changes.
const GLOBALS: [&str; 5] = [
    "core/rmem_max",
    "core/wmem_max",
    "core/netdev_max_backlog",
    "core/netdev_budget",
    "core/netdev_budget_usecs",
];
const LOOPBACK: u32 = 1;

/// A running topology. Dropping it kills its programs and removes its namespaces and devices.
#[derive(Debug)]
pub struct Bed {
    // The order of the fields is the order of the teardown: programs end before wires do.
    hosts: BTreeMap<String, Host>,
    nics: Vec<NicLease>,
    impaired: Vec<ImpairedLink>,
    switches: Vec<Switch>,
    settings: BTreeMap<String, Value>,
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// The part of a bed that is still to be taken down. No other bed needs anything of it, so that it may be dropped on
/// another thread while the next bed comes up.
#[derive(Debug)]
pub struct Teardown(#[expect(dead_code, reason = "dropped")] Bed);

impl Bed {
    /// Brings a topology up. `run_id` (a-z, 0-9 and -) tells this process's beds apart.
    ///
    /// Returns when every link has a carrier and every address can be used. A bed outlives a
    /// process that is killed: [`crate::clean`] removes it then.
    pub fn up(topology: &Topology, run_id: &str) -> Result<Self, Error> {
        topology.check()?;
        check_run_id(run_id)?;
        let mut bed = Self {
            hosts: BTreeMap::new(),
            nics: Vec::new(),
            impaired: Vec::new(),
            switches: Vec::new(),
            settings: BTreeMap::new(),
        };
        let owner = Owner::current();
        for (name, spec) in &topology.host {
            let own = || topology.link.iter().filter(|link| link.ends.contains(name));
            let environment = spec.kind(name)?.up(EnvironmentSpec {
                name: &names::namespace(owner, run_id, name),
                cpus: &spec.cpus,
                capabilities: &spec.capabilities,
                huge_pages: spec.huge_pages,
                links: own().count(),
                publish: &own()
                    .flat_map(|link| link.publish.clone())
                    .collect::<Vec<_>>(),
            })?;
            let host = Host::new(name, environment, spec)?;
            bed.hosts.insert(name.clone(), host);
        }
        let ends = bed.ends(topology)?;
        bed.set_sysctls(topology)?;
        for (number, link) in topology.link.iter().enumerate() {
            let wiring = Wiring {
                hosts: &bed.hosts,
                link,
                ends: ends.iter().filter(|end| end.link == number).collect(),
            };
            bed.nics.extend(wiring.lease_nics()?);
            let switch =
                wiring.make(names::namespace(owner, run_id, &format!("switch{number}")))?;
            if let Some(switch) = switch {
                bed.set_switch(&link.name(), &switch, &link.settings)?;
                if let Some(impairment) = link.impairment {
                    let running = switch.impair(&link.name(), impairment)?;
                    bed.impaired.push(running);
                }
                bed.switches.push(switch);
            }
        }
        for name in topology.host.keys() {
            bed.set_host(topology, &ends, name)?;
        }
        bed.give_routes(topology, &ends)?;
        bed.wait_until_ready()?;
        bed.record_globals();
        Ok(bed)
    }

    /// Releases what the next bed may need: when this returns, guests and containers are in their pools, and devices of
    /// this machine are back.
    pub fn leave(mut self) -> Teardown {
        self.give_back();
        self.hosts.retain(|_, host| !host.is_reusable());
        Teardown(self)
    }

    /// Before the namespaces end that devices are in, or are plugged into.
    fn give_back(&mut self) {
        self.nics.clear();
        for guest in self.hosts.values().filter_map(Host::guest) {
            if let Err(error) = guest.unplug() {
                tracing::warn!("{error}");
            }
        }
        let hosts = self.hosts.values();
        for host in hosts.filter(|host| host.engine_network().is_some()) {
            self.remove_cables(host);
        }
    }

    /// Removes the cables to the network of a host's engine: the next bed's have the same addresses there.
    fn remove_cables(&self, to: &Host) {
        let links: Vec<usize> = to.interfaces.iter().map(|own| own.link).collect();
        let others = self
            .hosts
            .values()
            .filter(|host| host.engine_network().is_none());
        for host in others {
            let ends = host
                .interfaces
                .iter()
                .filter(|end| links.contains(&end.link));
            for end in ends {
                if let Err(error) = host.netlink().delete_link(end.ifindex) {
                    tracing::warn!("{}: {error}", host.name());
                }
            }
        }
    }

    /// The planned ends, with the devices that engines have made and those that exist already.
    fn ends(&self, topology: &Topology) -> Result<Vec<End>, Error> {
        let mut ends = plan::ends(topology);
        for end in &mut ends {
            let link = &topology.link[end.link];
            let nics = link.ends.iter().zip(&link.nics);
            if let Some((_, nic)) = nics.into_iter().find(|(host, _)| **host == end.host) {
                end.mac = nic::address(nic)?;
            }
            if link.kind == LinkKind::Published {
                let network = self.hosts[&end.host].engine_network();
                end.engine = network.map(|network| EngineEnd {
                    device: network.device.clone(),
                    v4: network.address,
                    published: network.published_address,
                });
            }
        }
        Ok(ends)
    }

    /// The host called `name` in the topology.
    pub fn host(&self, name: &str) -> Result<&Host, Error> {
        self.hosts
            .get(name)
            .ok_or_else(|| Error::NoHost(name.to_owned()))
    }

    /// Every host, by name.
    pub fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.hosts.values()
    }

    /// Everything that was set, as it was read back: `link.sender-relay.gro`,
    /// `host.relay.ipv4.ip_forward`, `device.relay.sender.features`.
    pub fn settings(&self) -> &BTreeMap<String, Value> {
        &self.settings
    }

    /// The settings, and what is known of each host's environment: `host.relay.kernel`. What a trial's
    /// record keeps.
    pub fn facts(&self) -> BTreeMap<String, Value> {
        let mut facts = self.settings.clone();
        for host in self.hosts.values() {
            for (fact, value) in host.facts() {
                facts.insert(format!("host.{}.{fact}", host.name()), value);
            }
        }
        facts
    }

    /// Pauses the virtual machines among the hosts until the guard is dropped: an idle one has a clock whose ticks
    /// disturb measurements.
    ///
    /// # Errors
    /// A virtual machine has ended.
    pub fn pause_guests(&self) -> Result<PauseGuard<'_>, Error> {
        let guests: Vec<&Guest> = self.hosts.values().filter_map(Host::guest).collect();
        PauseGuard::new(guests)
    }

    fn set_sysctls(&mut self, topology: &Topology) -> Result<(), Error> {
        for (name, spec) in &topology.host {
            let sysctls = spec.settings.sysctls();
            let host = &self.hosts[name];
            let files: Vec<(String, String)> = sysctls
                .iter()
                .map(|(key, value)| (format!("/proc/sys/net/{key}"), value.clone()))
                .collect();
            host.write_all(&files)?;
            for (key, value) in sysctls {
                let key = format!("host.{name}.{}", key.replace('/', "."));
                self.settings.insert(key, json!(value));
            }
            let neighbours = json!(spec.settings.neighbours);
            self.settings
                .insert(format!("host.{name}.neighbours"), neighbours);
            self.settings
                .insert(format!("host.{name}.cpus"), json!(spec.cpus));
            self.settings
                .insert(format!("host.{name}.env"), json!(spec.env));
        }
        Ok(())
    }

    /// Sets the devices of a switch as those of the hosts.
    fn set_switch(
        &mut self,
        link: &str,
        switch: &Switch,
        settings: &LinkSettings,
    ) -> Result<(), Error> {
        let names = switch.ports()?;
        switch.run(|| {
            names
                .iter()
                .try_for_each(|name| set_features(link, name, settings).map(drop))
        })?
    }

    /// Sets a host's devices up: features, addresses, neighbours.
    fn set_host(&mut self, topology: &Topology, ends: &[End], name: &str) -> Result<(), Error> {
        let own: Vec<&End> = ends.iter().filter(|end| end.host == name).collect();
        let host = &self.hosts[name];
        let interfaces = bring_up(host, &own, ends).map_err(at(name))?;
        // A veth takes up GRO's NAPI for certain only when GRO changes while it is up.
        let features = match host.guest() {
            // Its driver decides, with the device that is emulated for it.
            Some(_) => vec![Value::Null; own.len()],
            None => host.run(|| {
                own.iter()
                    .map(|end| self.features(name, end, &topology.link[end.link]))
                    .collect::<Result<Vec<_>, Error>>()
            })??,
        };
        if topology.host[name].settings.neighbours == Neighbours::Permanent {
            let made = own.iter().zip(&interfaces);
            let made = made.filter(|(end, _)| end.engine.is_none());
            introduce(host, made.map(|(_, interface)| interface)).map_err(at(name))?;
        }
        for end in &own {
            let made = end.engine.is_none() && topology.link[end.link].kind != LinkKind::Nic;
            if made && topology.link[end.link].settings.threaded_napi {
                host.write(&format!("/sys/class/net/{}/threaded", end.device), "1")?;
            }
        }
        for ((end, features), interface) in own.iter().zip(features).zip(&interfaces) {
            let device = format!("device.{name}.{}", interface.name);
            self.settings.insert(format!("{device}.features"), features);
            self.record_link(&topology.link[end.link]);
        }
        if let Some(host) = self.hosts.get_mut(name) {
            host.interfaces = interfaces;
        }
        Ok(())
    }

    /// Sets an end's features and returns those that are active. A tap has what the guest behind it asks for,
    /// what an engine has made is as it makes it, and a device of this machine as it is.
    fn features(&self, place: &str, end: &End, link: &LinkSpec) -> Result<Value, Error> {
        if let Some(engine) = &end.engine {
            return active_features(place, &engine.device);
        }
        let guest = |host: &String| self.hosts[host].guest().is_some();
        let tap = link.kind == LinkKind::Direct && link.ends.iter().any(guest);
        match link.kind {
            LinkKind::Nic => active_features(place, &end.device),
            // The guest limits the features of a tap; this kernel may do the others in software.
            _ if tap => clear_features(place, &end.device, &link.settings),
            _ => set_features(place, &end.device, &link.settings),
        }
    }

    fn record_link(&mut self, link: &LinkSpec) {
        let name = link.name();
        self.settings
            .insert(format!("link.{name}.kind"), json!(link.kind));
        if let Some(impairment) = link.impairment {
            let key = format!("link.{name}.impairment");
            self.settings.insert(key, json!(impairment));
        }
        if let Value::Object(settings) = json!(link.settings) {
            for (key, value) in settings {
                self.settings.insert(format!("link.{name}.{key}"), value);
            }
        }
    }

    fn give_routes(&self, topology: &Topology, ends: &[End]) -> Result<(), Error> {
        let hops = plan::hops(topology, ends);
        for (name, host) in &self.hosts {
            let routes: Vec<Route> = hops
                .iter()
                .filter(|hop| hop.host == *name)
                .map(|hop| Route {
                    destination: hop.to.address,
                    prefix_len: hop.to.prefix_len,
                    gateway: Some(hop.gateway),
                    ifindex: None,
                    mtu: None,
                })
                .collect();
            let routes = routes.into_iter().chain(to_published(host, ends));
            let routes: Vec<Route> = routes.collect();
            host.netlink().add_routes(&routes).map_err(at(name))?;
        }
        Ok(())
    }

    fn wait_until_ready(&self) -> Result<(), Error> {
        let until = Instant::now() + READY_TIMEOUT;
        for (name, host) in &self.hosts {
            while !is_ready(host).map_err(at(name))? {
                if Instant::now() > until {
                    return Err(Error::NotReady(name.clone(), READY_TIMEOUT.as_secs()));
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        Ok(())
    }

    fn record_globals(&mut self) {
        for key in GLOBALS {
            if let Ok(value) = fs::read_to_string(Path::new("/proc/sys/net").join(key)) {
                let key = format!("machine.{}", key.replace('/', "."));
                self.settings.insert(key, json!(value.trim()));
            }
        }
    }
}

/// Every device has a carrier, and every address accepts packets: the kernel adds the local routes
/// of IPv6 addresses some time after the addresses.
fn is_ready(host: &Host) -> Result<bool, netdev::Error> {
    let mut netlink = host.netlink();
    for interface in &host.interfaces {
        if !netlink.link_by_index(interface.ifindex)?.carrier {
            return Ok(false);
        }
        let addresses = [interface.v4, interface.v6].into_iter();
        for address in addresses.filter(|address| !address.is_unspecified()) {
            if !netlink.route_to(address, None, None)?.local {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Brings the loopback and the devices of `own` up and gives them their addresses.
fn bring_up(host: &Host, own: &[&End], ends: &[End]) -> Result<Vec<Interface>, netdev::Error> {
    let mut netlink = host.netlink();
    let links = netlink.links()?;
    let up = netdev::LinkSpec::unnamed().up();
    netlink.set_link(LOOPBACK, &up)?;
    let mut interfaces = Vec::with_capacity(own.len());
    let mut addresses = Vec::with_capacity(2 * own.len());
    for end in own {
        let engine = end.engine.as_ref();
        let device = engine.map_or(&end.device, |engine| &engine.device);
        let link = links
            .iter()
            .find(|link| link.name == *device)
            .ok_or_else(|| netdev::Error::NoInterface(device.clone()))?;
        if engine.is_none() {
            netlink.set_link(link.index, &up)?;
            addresses.push((link.index, end.v4, end.v4_prefix_len));
            addresses.push((link.index, end.v6, end.v6_prefix_len));
        }
        interfaces.push(Interface {
            name: device.clone(),
            ifindex: link.index,
            mac: end.mac,
            v4: engine.map_or(end.v4, |engine| engine.v4),
            v6: engine.map_or(end.v6, |_| Ipv6Addr::UNSPECIFIED.into()),
            mtu: link.mtu,
            link: end.link,
            peers: peers(end, ends),
        });
    }
    netlink.add_addresses(&addresses)?;
    Ok(interfaces)
}

fn peers(end: &End, ends: &[End]) -> Vec<Peer> {
    ends.iter()
        .filter(|other| other.link == end.link && other.host != end.host)
        .map(|other| Peer {
            host: other.host.clone(),
            mac: other.mac,
            v4: other.reached_at(),
            v6: other.v6,
        })
        .collect()
}

/// Published addresses are those of the machine at a cable's other end.
fn to_published(host: &Host, ends: &[End]) -> Vec<Route> {
    let mut routes = Vec::new();
    for end in ends {
        let interfaces = host.interfaces.iter();
        let near = interfaces.filter(|interface| interface.link == end.link);
        if let Some(engine) = end.engine.as_ref().filter(|_| end.host != host.name()) {
            routes.extend(near.map(|interface| Route {
                destination: engine.published,
                prefix_len: 32,
                gateway: None,
                ifindex: Some(interface.ifindex),
                mtu: None,
            }));
        }
    }
    routes
}

/// Tells a host the link-layer addresses of everybody on its links.
fn introduce<'a>(
    host: &Host,
    interfaces: impl Iterator<Item = &'a Interface>,
) -> Result<(), netdev::Error> {
    let neighbours: Vec<(u32, IpAddr, [u8; 6])> = interfaces
        .flat_map(|interface| {
            interface.peers.iter().flat_map(|peer| {
                let of = |address| (interface.ifindex, address, peer.mac);
                [of(peer.v4), of(peer.v6)]
            })
        })
        .collect();
    host.netlink()
        .set_neighbours(&neighbours, NeighbourState::Permanent)
}

fn check_run_id(run_id: &str) -> Result<(), Error> {
    let usable = !run_id.is_empty()
        && run_id.len() <= 64
        && run_id
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if usable {
        return Ok(());
    }
    Err(Error::Topology(format!(
        "run id {run_id:?}: 1 to 64 of a-z, 0-9 and -"
    )))
}
