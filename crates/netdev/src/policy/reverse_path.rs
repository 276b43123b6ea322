//! Whether the kernel finds the source of IPv4 packets where it wants it (`rp_filter`, RFC 3704).

use std::net::{IpAddr, Ipv4Addr};

use netlink_sys::protocols::NETLINK_ROUTE;

use super::dump::Client;
use super::nftables::attribute::attributes;
use super::routing::ReversePath;
use crate::Error;

/// Routes that are looked at. With more, every source is the kernel's to check.
const MAX_ROUTES: usize = 10_000;
/// Refreshes between two looks at a table that is larger.
const PAUSE: u32 = 60;
const LOCAL_TABLE: u32 = 255;

/// Follows the IPv4 routes of the network namespace in which it was made.
#[derive(Debug)]
pub(super) struct SourceRoutes {
    client: Client,
    /// `None` where there are too many, or they cannot be read.
    routes: Option<Vec<SourceRoute>>,
    pause: u32,
}

/// Where packets to a prefix go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SourceRoute {
    address: u32,
    length: u8,
    /// Packets are sent by it. A blackhole, for example, drops them.
    unicast: bool,
    /// The only device it leads to.
    ifindex: Option<u32>,
}

impl SourceRoutes {
    /// Opens a socket in the calling thread's namespace.
    pub(super) fn open() -> Result<Self, Error> {
        let client = Client::new(NETLINK_ROUTE).map_err(Error::Socket)?;
        Ok(Self {
            client,
            routes: Some(Vec::new()),
            pause: 0,
        })
    }

    /// Reads the routes again, or forgets them where no device asks for them; whether they have changed.
    pub(super) fn refresh(&mut self, wanted: bool) -> bool {
        if !wanted {
            self.pause = 0;
            return self.routes.replace(Vec::new()) != Some(Vec::new());
        }
        if self.pause > 0 {
            self.pause -= 1;
            return false;
        }
        let routes = self.read();
        if routes.is_none() {
            self.pause = PAUSE;
        }
        let before = std::mem::replace(&mut self.routes, routes);
        before != self.routes
    }

    fn read(&mut self) -> Option<Vec<SourceRoute>> {
        /// `RTM_GETROUTE`
        const GET_ROUTES: u16 = 26;
        /// `struct rtmsg` of IPv4
        const REQUEST: [u8; 12] = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let bodies = self.client.dump(GET_ROUTES, &REQUEST).ok()?;
        let routes: Vec<_> = bodies
            .iter()
            .filter_map(|body| SourceRoute::read(body))
            .collect();
        (routes.len() <= MAX_ROUTES).then_some(routes)
    }

    /// Whether the kernel accepts every packet from a prefix that comes by a device. Not asked for the addresses of this
    /// machine and the broadcast addresses of its networks, which the local table has.
    pub(super) fn accept(&self, source: (IpAddr, u8), ifindex: u32, mode: ReversePath) -> bool {
        let (IpAddr::V4(address), length) = source else {
            return true;
        };
        if mode == ReversePath::Off {
            return true;
        }
        let Some(routes) = &self.routes else {
            return false;
        };
        let address = u32::from(address);
        let covers = |route: &&SourceRoute| {
            route.length <= length && cut(address, route.length) == route.address
        };
        let Some(longest) = routes.iter().filter(covers).map(|route| route.length).max() else {
            return false;
        };
        let concerned = routes.iter().filter(|route| {
            let within =
                route.length > length && cut(route.address, length) == cut(address, length);
            within || (route.length == longest && covers(route))
        });
        concerned.into_iter().all(|route| {
            let there = mode == ReversePath::Loose || route.ifindex == Some(ifindex);
            route.unicast && there
        })
    }
}

impl SourceRoute {
    /// `struct rtmsg` (family, two lengths, type of service, table, protocol, scope, type, flags) and its attributes
    /// (`RTA_*`); none for routes of the local table.
    fn read(body: &[u8]) -> Option<Self> {
        const HEADER: usize = 12;
        const UNICAST: u8 = 1;
        let header = body.get(..HEADER)?;
        let mut table = u32::from(header[4]);
        let (mut address, mut ifindex) = (0, None);
        for (kind, value) in attributes(&body[HEADER..]) {
            match kind {
                1 => address = u32::from(Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?)),
                4 => ifindex = Some(u32::from_ne_bytes(*value.first_chunk()?)),
                15 => table = u32::from_ne_bytes(*value.first_chunk()?),
                _ => {}
            }
        }
        (table != LOCAL_TABLE).then_some(Self {
            address,
            length: header[1],
            unicast: header[7] == UNICAST,
            ifindex,
        })
    }
}

/// The first address of the prefix of this length that an address is in.
fn cut(address: u32, length: u8) -> u32 {
    let host = 32 - u32::from(length.min(32));
    address
        .checked_shr(host)
        .map_or(0, |network| network << host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(list: &[(&str, u8, Option<u32>)]) -> SourceRoutes {
        let mut routes = SourceRoutes::open().unwrap();
        let route = |(address, length, ifindex): &(&str, u8, Option<u32>)| SourceRoute {
            address: u32::from(address.parse::<Ipv4Addr>().unwrap()),
            length: *length,
            unicast: ifindex.is_some(),
            ifindex: *ifindex,
        };
        routes.routes = Some(list.iter().map(route).collect());
        routes
    }

    #[test]
    fn every_source_of_a_prefix_has_to_be_where_it_is_wanted() {
        let any = ("0.0.0.0".parse().unwrap(), 0);
        let near = ("10.1.0.0".parse().unwrap(), 16);
        let host = ("10.2.0.9".parse().unwrap(), 32);
        let table = routes(&[
            ("0.0.0.0", 0, Some(2)),
            ("10.1.0.0", 16, Some(2)),
            ("10.2.0.0", 16, Some(3)),
        ]);
        for (source, ifindex, mode, accepted) in [
            (any, 2, ReversePath::Strict, false),
            (any, 2, ReversePath::Loose, true),
            (near, 2, ReversePath::Strict, true),
            (near, 3, ReversePath::Strict, false),
            (host, 3, ReversePath::Strict, true),
            (host, 2, ReversePath::Strict, false),
            (host, 2, ReversePath::Off, true),
        ] {
            assert_eq!(
                table.accept(source, ifindex, mode),
                accepted,
                "{source:?} {ifindex} {mode:?}"
            );
        }
        let closed = routes(&[("0.0.0.0", 0, Some(2)), ("10.3.0.0", 16, None)]);
        assert!(!closed.accept(any, 2, ReversePath::Loose));
        assert!(closed.accept(near, 2, ReversePath::Loose));
        assert!(!routes(&[]).accept(near, 2, ReversePath::Loose));
    }
}
