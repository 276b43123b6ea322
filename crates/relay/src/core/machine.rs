//! What the machine gives a relay: next hops, interfaces, its own addresses, and sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Weak};

use control::Error;
use netdev::{Address, Destination, Link, Netlink, NextHop, NextHopTracker, UnresolvedReason};

use super::sockets;

/// The relay's namespace: next hops are followed, links and addresses are those of the last [`Machine::refresh`].
#[derive(Debug)]
pub(super) struct Machine {
    tracker: NextHopTracker,
    netlink: Netlink,
    /// The error is why they cannot be read.
    devices: Result<Devices, String>,
    refreshes: u64,
    sockets: BTreeMap<SocketAddr, Weak<UdpSocket>>,
}

/// The links and addresses at one moment.
#[derive(Debug, Default)]
struct Devices {
    links: Vec<Link>,
    addresses: Vec<Address>,
}

impl Machine {
    /// `on_change` is called, from another thread, when a next hop has changed.
    pub(super) fn new(on_change: impl Fn() + Send + 'static) -> Result<Self, Error> {
        let tracker = NextHopTracker::start(move |_, _| on_change()).map_err(Error::failed)?;
        let mut machine = Self {
            tracker,
            netlink: Netlink::new().map_err(Error::failed)?,
            devices: Ok(Devices::default()),
            refreshes: 0,
            sockets: BTreeMap::new(),
        };
        machine.refresh();
        Ok(machine)
    }

    /// Reads the links and addresses again, once for all streams and subscribers that are looked at next.
    pub(super) fn refresh(&mut self) {
        self.refreshes += 1;
        self.devices = self.read().map_err(|error| error.to_string());
    }

    /// How often links and addresses were read.
    #[cfg(test)]
    pub(super) fn refreshes(&self) -> u64 {
        self.refreshes
    }

    fn read(&mut self) -> Result<Devices, netdev::Error> {
        Ok(Devices {
            links: self.netlink.links()?,
            addresses: self.netlink.addresses()?,
        })
    }

    fn devices(&self) -> Result<&Devices, Error> {
        self.devices.as_ref().map_err(Error::failed)
    }

    fn link(&self, ifindex: u32) -> Option<&Link> {
        let links = &self.devices.as_ref().ok()?.links;
        links.iter().find(|link| link.index == ifindex)
    }

    /// The name of a device, or its index if it is gone.
    pub(super) fn name(&self, ifindex: u32) -> String {
        let link = self.link(ifindex);
        link.map_or_else(|| format!("interface {ifindex}"), |link| link.name.clone())
    }

    /// The way to a destination, followed from now on.
    pub(super) fn next_hop(&self, destination: Destination) -> NextHop {
        if let Some(known) = self.tracker.next_hop(&destination) {
            return known;
        }
        self.tracker.watch(destination).unwrap_or_else(|error| {
            tracing::warn!(address = %destination.address, %error, "no next hop");
            NextHop::Unresolved(UnresolvedReason::NoRoute)
        })
    }

    /// Follows a destination no longer.
    pub(super) fn forget(&self, destination: &Destination) {
        self.tracker.forget(destination);
    }

    /// The socket a stream comes in by. What it has received up to now, as another stream's sender, is dropped.
    pub(super) fn ingest(&mut self, listen: SocketAddr) -> Result<Arc<UdpSocket>, Error> {
        let is_open = self.sockets.get(&listen).and_then(Weak::upgrade).is_some();
        let socket = self.sender(listen)?;
        if is_open {
            sockets::discard(&socket);
        }
        Ok(socket)
    }

    /// The socket bound to an address, which streams share: as senders, and as the one that comes in by it.
    pub(super) fn sender(&mut self, address: SocketAddr) -> Result<Arc<UdpSocket>, Error> {
        if let Some(socket) = self.sockets.get(&address).and_then(Weak::upgrade) {
            return Ok(socket);
        }
        let socket = sockets::sender(address)?;
        self.sockets.retain(|_, socket| socket.strong_count() > 0);
        self.sockets.insert(address, Arc::downgrade(&socket));
        Ok(socket)
    }

    pub(super) fn interface(&self, name: &str) -> Result<u32, Error> {
        let links = &self.devices()?.links;
        let link = links.iter().find(|link| link.name == name);
        link.map(|link| link.index)
            .ok_or_else(|| Error::bad_request(format!("there is no interface \"{name}\"")))
    }

    /// The link-layer address of an interface, if it is there.
    pub(super) fn mac(&self, ifindex: u32) -> Option<[u8; 6]> {
        self.link(ifindex).map(|link| link.mac)
    }

    /// The interfaces a stream comes in by when it names none: those that have one of its ingest
    /// addresses, or every one that is up when none has; and the loopback, by which this machine's
    /// own datagrams come.
    pub(super) fn interfaces(&self, ingest: &[SocketAddr]) -> Result<Vec<u32>, Error> {
        let Devices { links, addresses } = self.devices()?;
        let usable: Vec<u32> = links
            .iter()
            .filter(|link| link.up && !link.loopback)
            .map(|link| link.index)
            .collect();
        let holds = |index: &u32| {
            addresses
                .iter()
                .any(|own| own.ifindex == *index && ingest.iter().any(|at| at.ip() == own.address))
        };
        let holding: Vec<u32> = usable.iter().copied().filter(holds).collect();
        let loopback = links.iter().filter(|link| link.loopback);
        let mut interfaces = if holding.is_empty() { usable } else { holding };
        interfaces.extend(loopback.map(|link| link.index));
        Ok(interfaces)
    }

    /// The machine's IPv4 addresses, and the first and last ones of their networks, which are broadcast addresses.
    pub(super) fn kernel_sources(&self) -> Result<BTreeSet<Ipv4Addr>, Error> {
        let mut sources = BTreeSet::new();
        for own in &self.devices()?.addresses {
            let IpAddr::V4(address) = own.address else {
                continue;
            };
            sources.insert(address);
            if own.prefix_len < 31 {
                let host = u32::MAX >> own.prefix_len;
                sources.insert(Ipv4Addr::from(u32::from(address) & !host));
                sources.insert(Ipv4Addr::from(u32::from(address) | host));
            }
        }
        Ok(sources)
    }

    /// The machine's own addresses that a wildcard of this family stands for.
    pub(super) fn own_addresses(&self, v4: bool) -> Result<Vec<IpAddr>, Error> {
        let addresses = &self.devices()?.addresses;
        let mut own: Vec<_> = addresses
            .iter()
            .filter(|own| own.address.is_ipv4() == v4 && !own.tentative)
            .map(|own| own.address)
            .collect();
        own.sort_unstable();
        own.dedup();
        Ok(own)
    }
}

/// The address the kernel would send from, when there is a way at all.
pub(super) fn preferred_source(to: SocketAddr, next_hop: &NextHop) -> Option<IpAddr> {
    if let NextHop::Ready { source, .. } = next_hop
        && !source.is_unspecified()
    {
        return Some(*source);
    }
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Connecting a datagram socket sends nothing: it asks the routing table.
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    socket.local_addr().ok().map(|local| local.ip())
}
