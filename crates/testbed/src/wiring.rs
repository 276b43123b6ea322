//! Making the devices of a topology, each end in its host's namespace.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use netdev::{NeighbourState, Netlink};
use sys::netns::{self, Namespace};

use crate::error::{Error, at};
use crate::features::set_features;
use crate::host::Host;
use crate::impairment::Impairment;
use crate::impairment::link::ImpairedLink;
use crate::names;
use crate::nic::{self, NicLease};
use crate::plan::End;
use crate::settings::LinkSettings;
use crate::topology::{LinkKind, LinkSpec};
use crate::vm::guest::Guest;

/// Tells a bridge's port from the device behind it, which has the rest of its address.
const OWN: u8 = 0x40;

/// A namespace that holds a bridge or a macvlan parent, and no programs.
#[derive(Debug)]
pub(crate) struct Switch {
    name: String,
    namespace: Namespace,
    netlink: Netlink,
}

impl Switch {
    fn up(name: String) -> Result<Self, Error> {
        let namespace = Namespace::create(&name)?;
        let opened = namespace.run(Netlink::new);
        let netlink = match opened {
            Ok(Ok(netlink)) => netlink,
            Ok(Err(source)) => {
                netns::remove(&name)?;
                return Err(at(&name)(source));
            }
            Err(error) => {
                netns::remove(&name)?;
                return Err(error.into());
            }
        };
        Ok(Self {
            name,
            namespace,
            netlink,
        })
    }

    /// The names of its devices except the bridge, which inherits their features.
    pub(crate) fn ports(&self) -> Result<Vec<String>, Error> {
        let links = self
            .namespace
            .run(|| Netlink::new()?.links())?
            .map_err(at(&self.name))?;
        Ok(links
            .into_iter()
            .filter(|link| link.kind.as_deref() == Some("veth"))
            .map(|link| link.name)
            .collect())
    }

    /// Joins its two devices by a thread that impairs the frames between them.
    pub(crate) fn impair(&self, link: &str, impairment: Impairment) -> Result<ImpairedLink, Error> {
        self.namespace.run(|| {
            let mut netlink = Netlink::new().map_err(at(&self.name))?;
            let mut port = |name| Ok::<_, netdev::Error>(netlink.link_by_name(name)?.index);
            let ports = [
                port("port0").map_err(at(&self.name))?,
                port("port1").map_err(at(&self.name))?,
            ];
            ImpairedLink::start(link, ports, impairment)
        })?
    }

    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        Ok(self.namespace.run(work)?)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if let Err(error) = netns::remove(&self.name) {
            tracing::warn!("{error}");
        }
    }
}

/// The hosts and ends of one link.
pub(crate) struct Wiring<'a> {
    pub(crate) hosts: &'a BTreeMap<String, Host>,
    pub(crate) link: &'a LinkSpec,
    pub(crate) ends: Vec<&'a End>,
}

impl Wiring<'_> {
    /// Makes the link's devices; in the hosts they are still down. Returns the switch, which is
    /// called `name`, of a link that has one.
    pub(crate) fn make(&self, name: String) -> Result<Option<Switch>, Error> {
        let guests = self.ends.iter().any(|end| self.guest(end).is_some());
        match self.link.kind {
            LinkKind::Macvlan | LinkKind::Impaired | LinkKind::Published | LinkKind::Nic
                if guests =>
            {
                Err(self.refusal("a virtual machine has direct links and bridges"))
            }
            LinkKind::Direct => self.direct().map(|()| None),
            LinkKind::Bridge => self.bridge(name).map(Some),
            LinkKind::Macvlan => self.macvlan(name).map(Some),
            LinkKind::Impaired => self.two_cables(name).map(Some),
            LinkKind::Published => self.published().map(|()| None),
            // The bed moves these and returns them.
            LinkKind::Nic => Ok(None),
        }
    }

    /// Moves the devices that the link names to its ends.
    pub(crate) fn lease_nics(&self) -> Result<Vec<NicLease>, Error> {
        let named = self.ends.iter().zip(&self.link.nics);
        named
            .map(|(end, nic)| match self.guest(end) {
                None => {
                    let place = self.hosts[&end.host].namespace();
                    nic::lease(nic, place, &end.device, &self.link.settings)
                }
                Some(_) => Err(self.refusal("a virtual machine has no device of this one")),
            })
            .collect()
    }

    fn direct(&self) -> Result<(), Error> {
        let &[one, other] = self.ends.as_slice() else {
            return Err(Error::Topology("a direct link has two ends".to_owned()));
        };
        let (inner, outer) = match (self.guest(one), self.guest(other)) {
            (None, None) => {
                let mut netlink = self.hosts[&one.host].netlink();
                return netlink
                    .add_veth(&self.end(one), &self.end(other))
                    .map_err(at(&self.link.name()));
            }
            (Some(_), Some(_)) => {
                return Err(self.refusal("two virtual machines have a bridge between them"));
            }
            (Some(_), None) => (one, other),
            (None, Some(_)) => (other, one),
        };
        // The tap is the other host's own device: nothing is between them.
        let spec = device(&outer.device, &self.link.settings).mac(outer.mac);
        self.plug(
            inner,
            self.hosts[&outer.host].namespace(),
            &outer.device,
            spec,
        )
    }

    fn guest(&self, end: &End) -> Option<&Guest> {
        self.hosts[&end.host].guest()
    }

    fn refusal(&self, why: &str) -> Error {
        Error::Topology(format!("link {}: {why}", self.link.name()))
    }

    /// Plugs a virtual machine in: its tap becomes `outer`, called `name`, in `place`.
    fn plug(
        &self,
        end: &End,
        place: &Namespace,
        name: &str,
        outer: netdev::LinkSpec<'_>,
    ) -> Result<(), Error> {
        let inner = device(&end.device, &self.link.settings).mac(end.mac);
        self.guest(end)
            .map_or(Ok(()), |guest| guest.plug(place, name, outer, &inner))
    }

    fn bridge(&self, name: String) -> Result<Switch, Error> {
        let mut switch = Switch::up(name)?;
        let index = self
            .make_bridge(&mut switch.netlink)
            .map_err(at(&self.link.name()))?;
        for (number, end) in self.ends.iter().enumerate() {
            let name = format!("port{number}");
            let port = device(&name, &self.link.settings).controller(index).up();
            if self.guest(end).is_some() {
                // On a direct link the tap had another host's: the bridge would keep that one's frames.
                let mut mac = end.mac;
                mac[0] |= OWN;
                self.plug(end, &switch.namespace, &name, port.mac(mac))?;
                continue;
            }
            switch
                .netlink
                .add_veth(&port, &self.end(end))
                .map_err(at(&self.link.name()))?;
        }
        Ok(switch)
    }

    fn make_bridge(&self, netlink: &mut Netlink) -> Result<u32, netdev::Error> {
        let bridge = device("bridge", &self.link.settings).queues(1).up();
        netlink.add_bridge(&bridge)?;
        Ok(netlink.link_by_name("bridge")?.index)
    }

    fn two_cables(&self, name: String) -> Result<Switch, Error> {
        let mut switch = Switch::up(name)?;
        for (number, end) in self.ends.iter().enumerate() {
            let name = format!("port{number}");
            let port = device(&name, &self.link.settings).up();
            switch
                .netlink
                .add_veth(&port, &self.end(end))
                .map_err(at(&self.link.name()))?;
        }
        Ok(switch)
    }

    /// A cable to where the engine is: from there on it is the engine's network.
    fn published(&self) -> Result<(), Error> {
        let (inner, others): (Vec<&End>, Vec<&End>) =
            self.ends.iter().partition(|end| end.engine.is_some());
        let (&[inner], &[other]) = (inner.as_slice(), others.as_slice()) else {
            return Err(self.refusal("one of its ends is published by an engine, as docker's"));
        };
        let Some(network) = self.hosts[&inner.host].engine_network() else {
            return Err(self.refusal("its engine publishes nothing"));
        };
        let name = names::device();
        let outside = &network.namespace;
        let outer = device(&name, &self.link.settings).mac(inner.mac);
        self.hosts[&other.host]
            .netlink()
            .add_veth(&self.end(other), &outer.namespace(outside.as_fd()))
            .map_err(at(&self.link.name()))?;
        outside.run(|| {
            let set = || {
                let mut netlink = Netlink::new()?;
                let index = netlink.link_by_name(&name)?.index;
                netlink.set_link(index, &netdev::LinkSpec::unnamed().up())?;
                netlink.add_addresses(&[(index, inner.v4, inner.v4_prefix_len)])?;
                let known = [(index, other.v4, other.mac)];
                netlink.set_neighbours(&known, NeighbourState::Permanent)
            };
            set().map_err(at(&name))?;
            set_features(&self.link.name(), &name, &self.link.settings).map(drop)
        })?
    }

    fn macvlan(&self, name: String) -> Result<Switch, Error> {
        let mut switch = Switch::up(name)?;
        self.make_macvlans(&mut switch.netlink)
            .map_err(at(&self.link.name()))?;
        Ok(switch)
    }

    fn make_macvlans(&self, netlink: &mut Netlink) -> Result<(), netdev::Error> {
        let parent = device("parent", &self.link.settings).up();
        netlink.add_veth(&parent, &device("uplink", &self.link.settings))?;
        let uplink = netlink.link_by_name("uplink")?.index;
        netlink.set_link(uplink, &netdev::LinkSpec::unnamed().up())?;
        let parent = netlink.link_by_name("parent")?.index;
        for end in &self.ends {
            netlink.add_macvlan(&self.end(end), parent)?;
        }
        Ok(())
    }

    /// The device of an end, in its host's namespace.
    fn end<'a>(&'a self, end: &'a End) -> netdev::LinkSpec<'a> {
        let namespace = self.hosts[&end.host].namespace();
        device(&end.device, &self.link.settings)
            .mac(end.mac)
            .namespace(namespace.as_fd())
    }
}

fn device<'a>(name: &'a str, settings: &LinkSettings) -> netdev::LinkSpec<'a> {
    netdev::LinkSpec::new(name)
        .mtu(settings.mtu)
        .queues(settings.queues)
        .tx_queue_len(settings.tx_queue_len)
}
