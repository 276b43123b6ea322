//! The devices, addresses, routes and neighbours of a namespace: the requests about them.
//!
//! `RouteSocket` takes the requests to the kernel; `link`, `address`, `route` and `neighbour` read and write its messages.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::{
    BridgeStpState, InfoBridge, InfoData, InfoKind, InfoMacVlan, InfoVeth, LinkAttribute, LinkInfo,
    LinkMessage, MacVlanMode,
};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourFlags, NeighbourMessage};
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use netlink_packet_route::route::{RouteAttribute, RouteMessage};
use sys::netns::Namespace;

use crate::address::{self, Address, family};
use crate::link::{Link, LinkSpec};
use crate::neighbour::{self, Neighbour, NeighbourState};
use crate::route::{self, Lookup, Route};
use crate::socket::{Carrier, Change, RouteSocket};
use crate::{Destination, Error};

/// A connection to the routing tables of the namespace in which the creating thread was.
///
/// It keeps talking to that namespace whichever thread uses it.
pub struct Netlink {
    pub(crate) socket: RouteSocket,
}

impl std::fmt::Debug for Netlink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Netlink").finish_non_exhaustive()
    }
}

impl Netlink {
    /// Opens a socket in the calling thread's namespace.
    pub fn new() -> Result<Self, Error> {
        let socket = RouteSocket::open()?;
        Ok(Self { socket })
    }

    /// Talks to the kernel at the other end of `carrier`.
    pub fn over(carrier: Box<dyn Carrier>) -> Self {
        Self {
            socket: RouteSocket::over(carrier),
        }
    }

    /// Every device of the namespace.
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self.socket.dump(&request, "listing interfaces")?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewLink(message) => Some(Link::from(message)),
                _ => None,
            })
            .collect())
    }

    /// The device called `name`.
    pub fn link_by_name(&mut self, name: &str) -> Result<Link, Error> {
        let mut request = LinkMessage::default();
        request
            .attributes
            .push(LinkAttribute::IfName(name.to_owned()));
        self.link(request, name)
    }

    /// The device with this index.
    pub fn link_by_index(&mut self, index: u32) -> Result<Link, Error> {
        let mut request = LinkMessage::default();
        request.header.index = index;
        self.link(request, &index.to_string())
    }

    /// The device with this index in the namespace of this number.
    pub(crate) fn link_elsewhere(&mut self, index: u32, namespace: i32) -> Result<Link, Error> {
        let mut request = LinkMessage::default();
        request.header.index = index;
        request.attributes.push(LinkAttribute::IfNetnsId(namespace));
        self.link(request, &format!("{index} of namespace {namespace}"))
    }

    fn link(&mut self, request: LinkMessage, name: &str) -> Result<Link, Error> {
        let action = format!("reading interface {name}");
        match self
            .socket
            .get(RouteNetlinkMessage::GetLink(request), &action)
        {
            Ok(RouteNetlinkMessage::NewLink(message)) => Ok(Link::from(message)),
            Ok(_) => Err(Error::Answer {
                action,
                detail: "not a link".to_owned(),
            }),
            Err(error) if error.errno() == Some(libc::ENODEV) => {
                Err(Error::NoInterface(name.to_owned()))
            }
            Err(error) => Err(error),
        }
    }

    /// A pair of virtual Ethernet devices, each end in its own namespace.
    ///
    /// `other` comes up later, by `set_link` in its namespace: the kernel refuses (ENOTCONN) to
    /// bring it up before the pair is complete.
    pub fn add_veth(&mut self, one: &LinkSpec<'_>, other: &LinkSpec<'_>) -> Result<(), Error> {
        let peer = InfoData::Veth(InfoVeth::Peer(other.message()));
        self.add_link(one, InfoKind::Veth, Some(peer), None)
    }

    /// A bridge that forwards at once: no spanning tree, no multicast snooping.
    pub fn add_bridge(&mut self, spec: &LinkSpec<'_>) -> Result<(), Error> {
        let data = InfoData::Bridge(vec![
            InfoBridge::StpState(BridgeStpState::Disabled),
            InfoBridge::ForwardDelay(0),
            InfoBridge::MulticastSnooping(false),
        ]);
        self.add_link(spec, InfoKind::Bridge, Some(data), None)
    }

    /// A macvlan in bridge mode on the device `lower` of the socket's namespace.
    pub fn add_macvlan(&mut self, spec: &LinkSpec<'_>, lower: u32) -> Result<(), Error> {
        let data = InfoData::MacVlan(vec![InfoMacVlan::Mode(MacVlanMode::Bridge)]);
        self.add_link(spec, InfoKind::MacVlan, Some(data), Some(lower))
    }

    fn add_link(
        &mut self,
        spec: &LinkSpec<'_>,
        kind: InfoKind,
        data: Option<InfoData>,
        lower: Option<u32>,
    ) -> Result<(), Error> {
        let action = format!("adding {kind} {}", spec.name());
        let mut message = spec.message();
        message.attributes.extend(lower.map(LinkAttribute::Link));
        let mut info = vec![LinkInfo::Kind(kind)];
        info.extend(data.map(LinkInfo::Data));
        message.attributes.push(LinkAttribute::LinkInfo(info));
        self.socket.apply(vec![Change {
            message: RouteNetlinkMessage::NewLink(message),
            flags: NLM_F_CREATE | NLM_F_EXCL,
            action,
        }])
    }

    /// Changes what `spec` sets of the device with this index; a name in it renames the device.
    pub fn set_link(&mut self, index: u32, spec: &LinkSpec<'_>) -> Result<(), Error> {
        let mut message = spec.message();
        message.header.index = index;
        self.socket.apply(vec![Change {
            message: RouteNetlinkMessage::SetLink(message),
            flags: 0,
            action: format!("changing interface {index}"),
        }])
    }

    /// Removes a device; a veth takes its other end with it.
    pub fn delete_link(&mut self, index: u32) -> Result<(), Error> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.socket.apply(vec![Change {
            message: RouteNetlinkMessage::DelLink(message),
            flags: 0,
            action: format!("deleting interface {index}"),
        }])
    }

    /// This namespace's number for another one; none where it has not given it one.
    pub fn namespace_id(&mut self, namespace: &Namespace) -> Result<Option<i32>, Error> {
        let mut request = NsidMessage::default();
        let fd = namespace.as_fd().as_raw_fd().cast_unsigned();
        request.attributes.push(NsidAttribute::Fd(fd));
        let request = RouteNetlinkMessage::GetNsId(request);
        match self
            .socket
            .get(request, "asking for a namespace's number")?
        {
            RouteNetlinkMessage::NewNsId(answer) => {
                Ok(answer.attributes.iter().find_map(|a| match a {
                    NsidAttribute::Id(id) => Some(*id).filter(|id| *id >= 0),
                    _ => None,
                }))
            }
            _ => Ok(None),
        }
    }

    /// Every address of the namespace.
    pub fn addresses(&mut self) -> Result<Vec<Address>, Error> {
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self.socket.dump(&request, "listing addresses")?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewAddress(message) => address::read(&message),
                _ => None,
            })
            .collect())
    }

    /// Gives devices their addresses, as (index, address, prefix length).
    ///
    /// Duplicate address detection is left out. Even so the kernel adds the local route of an IPv6
    /// address a moment later, and until `route_to` calls it local, packets to it are not accepted.
    pub fn add_addresses(&mut self, addresses: &[(u32, IpAddr, u8)]) -> Result<(), Error> {
        let changes = addresses
            .iter()
            .map(|&(ifindex, address, prefix_len)| Change {
                message: RouteNetlinkMessage::NewAddress(address::message(
                    ifindex, address, prefix_len,
                )),
                flags: NLM_F_CREATE | NLM_F_EXCL,
                action: format!("adding address {address}/{prefix_len} to interface {ifindex}"),
            })
            .collect();
        self.socket.apply(changes)
    }

    /// Takes an address away.
    pub fn delete_address(
        &mut self,
        ifindex: u32,
        address: IpAddr,
        prefix_len: u8,
    ) -> Result<(), Error> {
        self.socket.apply(vec![Change {
            message: RouteNetlinkMessage::DelAddress(address::message(
                ifindex, address, prefix_len,
            )),
            flags: 0,
            action: format!("removing address {address}/{prefix_len} from interface {ifindex}"),
        }])
    }

    /// Adds routes, replacing those to the same destinations.
    pub fn add_routes(&mut self, routes: &[Route]) -> Result<(), Error> {
        let changes = routes.iter().map(|route| Change {
            message: RouteNetlinkMessage::NewRoute(route.message()),
            flags: NLM_F_CREATE | NLM_F_REPLACE,
            action: format!("adding route {}/{}", route.destination, route.prefix_len),
        });
        self.socket.apply(changes.collect())
    }

    /// Removes a route.
    pub fn delete_route(&mut self, route: &Route) -> Result<(), Error> {
        self.socket.apply(vec![Change {
            message: RouteNetlinkMessage::DelRoute(route.message()),
            flags: 0,
            action: format!("deleting route {}/{}", route.destination, route.prefix_len),
        }])
    }

    /// The unicast routes of the main table, of both families.
    pub fn routes(&mut self) -> Result<Vec<Route>, Error> {
        let request = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        let answers = self.socket.dump(&request, "listing routes")?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewRoute(message) => Route::read(&message),
                _ => None,
            })
            .collect())
    }

    /// Which way a packet of this machine to `destination` goes, rules and policy included.
    ///
    /// `oif` confines it to a device, `mark` is the packet's.
    pub fn route_to(
        &mut self,
        destination: IpAddr,
        oif: Option<u32>,
        mark: Option<u32>,
    ) -> Result<Lookup, Error> {
        let attributes = [oif.map(RouteAttribute::Oif), mark.map(RouteAttribute::Mark)];
        self.look_up(destination, attributes)
    }

    /// Which way a packet of this machine goes, as [`Self::route_to`], sent from the destination's source address.
    ///
    /// # Errors
    /// The kernel knows no route, or this machine does not have the source address (`EINVAL`).
    pub fn route_for(&mut self, destination: Destination) -> Result<Lookup, Error> {
        let source = destination.source.map(route::attribute);
        let attributes = [
            destination.ifindex.map(RouteAttribute::Oif),
            source.map(RouteAttribute::Source),
        ];
        self.look_up(destination.address, attributes)
    }

    fn look_up(
        &mut self,
        destination: IpAddr,
        attributes: [Option<RouteAttribute>; 2],
    ) -> Result<Lookup, Error> {
        let mut request = RouteMessage::default();
        request.header.address_family = family(destination);
        request.header.destination_prefix_length = route::bits(destination);
        request
            .attributes
            .push(RouteAttribute::Destination(route::attribute(destination)));
        for attribute in attributes.into_iter().flatten() {
            if let RouteAttribute::Source(_) = attribute {
                request.header.source_prefix_length = route::bits(destination);
            }
            request.attributes.push(attribute);
        }
        let action = format!("looking up the route to {destination}");
        match self
            .socket
            .get(RouteNetlinkMessage::GetRoute(request), &action)?
        {
            RouteNetlinkMessage::NewRoute(message) => {
                Lookup::read(&message).ok_or_else(|| Error::Refused {
                    action,
                    cause: std::io::Error::from_raw_os_error(libc::ENETUNREACH),
                    said: None,
                })
            }
            _ => Err(Error::Answer {
                action,
                detail: "not a route".to_owned(),
            }),
        }
    }

    /// Every neighbour of both families.
    pub fn neighbours(&mut self) -> Result<Vec<Neighbour>, Error> {
        let request = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        let answers = self.socket.dump(&request, "listing neighbours")?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewNeighbour(message) => Neighbour::read(&message),
                _ => None,
            })
            .collect())
    }

    /// One entry; none when the table has no such neighbour.
    pub fn neighbour(&mut self, ifindex: u32, address: IpAddr) -> Result<Option<Neighbour>, Error> {
        let request = RouteNetlinkMessage::GetNeighbour(neighbour::message(ifindex, address));
        match self
            .socket
            .get(request, &format!("reading neighbour {address}"))
        {
            Ok(RouteNetlinkMessage::NewNeighbour(message)) => Ok(Neighbour::read(&message)),
            Ok(_) => Ok(None),
            // ENODEV: the device went away, and its neighbours with it.
            Err(error) if matches!(error.errno(), Some(libc::ENOENT | libc::ENODEV)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets neighbours, as (index, address, link-layer address); `state` is `Permanent` (never
    /// asked for again) or `Reachable` (until its time is over).
    pub fn set_neighbours(
        &mut self,
        neighbours: &[(u32, IpAddr, [u8; 6])],
        state: NeighbourState,
    ) -> Result<(), Error> {
        let changes = neighbours.iter().map(|&(ifindex, address, mac)| {
            let mut message = neighbour::message(ifindex, address);
            message.header.state = state;
            message
                .attributes
                .push(NeighbourAttribute::LinkLayerAddress(mac.to_vec()));
            Change {
                message: RouteNetlinkMessage::NewNeighbour(message),
                flags: NLM_F_CREATE | NLM_F_REPLACE,
                action: format!("setting neighbour {address} of interface {ifindex}"),
            }
        });
        self.socket.apply(changes.collect())
    }

    /// Has the kernel treat the neighbour as used: an unknown one is asked for, a stale one is
    /// confirmed. Returns at once.
    pub fn probe_neighbour(&mut self, ifindex: u32, address: IpAddr) -> Result<(), Error> {
        let mut message = neighbour::message(ifindex, address);
        message.header.flags = NeighbourFlags::Use;
        self.socket.apply(vec![Change {
            message: RouteNetlinkMessage::NewNeighbour(message),
            flags: NLM_F_CREATE | NLM_F_REPLACE,
            action: format!("probing neighbour {address} of interface {ifindex}"),
        }])
    }

    /// Forgets a neighbour.
    pub fn delete_neighbour(&mut self, ifindex: u32, address: IpAddr) -> Result<(), Error> {
        self.socket.apply(vec![Change {
            message: RouteNetlinkMessage::DelNeighbour(neighbour::message(ifindex, address)),
            flags: 0,
            action: format!("deleting neighbour {address} of interface {ifindex}"),
        }])
    }
}
