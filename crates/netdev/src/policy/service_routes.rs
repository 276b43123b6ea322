//! IPv4 routes for packets of one type of service, which a route lookup without one does not find.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::{fmt, io};

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;

use super::changes::subscribe;
use super::dump::{Client, is_absent};
use super::nftables::attribute::find;
use crate::Error;
use crate::socket::split;

/// Links and IPv4 routes (`RTNLGRP_*`): that a route goes with its device is not announced.
const GROUPS: [u32; 2] = [1, 7];
/// How often a dump that a change interrupts is begun again.
const ATTEMPTS: usize = 8;

/// Follows these routes of the network namespace in which it was made.
pub(super) struct ServiceRoutes {
    client: Client,
    changes: Socket,
    /// The error is why they cannot be read.
    routes: Result<BTreeSet<ServiceRoute>, String>,
    is_stale: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ServiceRoute {
    destination: Ipv4Addr,
    length: u8,
    service: u8,
}

impl fmt::Debug for ServiceRoutes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceRoutes")
            .field("routes", &self.routes)
            .finish_non_exhaustive()
    }
}

impl ServiceRoutes {
    /// Opens sockets in the calling thread's namespace.
    pub(super) fn open() -> Result<Self, Error> {
        let mut routes = Self {
            client: Client::new(NETLINK_ROUTE).map_err(Error::Socket)?,
            changes: subscribe(NETLINK_ROUTE, &GROUPS).map_err(Error::Socket)?,
            routes: Ok(BTreeSet::new()),
            is_stale: true,
        };
        routes.refresh();
        Ok(routes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.routes.as_ref().is_ok_and(BTreeSet::is_empty)
    }

    /// One whose packets may go to this destination.
    pub(super) fn find(&self, destination: IpAddr) -> Option<String> {
        let IpAddr::V4(destination) = destination else {
            return None;
        };
        match &self.routes {
            Ok(routes) => {
                let found = routes.iter().find(|route| route.contains(destination))?;
                Some(format!("the route {found}"))
            }
            Err(error) => Some(error.clone()),
        }
    }

    /// Reads them again where one has changed; whether they are others now.
    pub(super) fn refresh(&mut self) -> bool {
        self.drain();
        if !self.is_stale {
            return false;
        }
        let before = self.routes.clone();
        self.routes = self
            .read()
            .map_err(|error| format!("the routes of types of service cannot be read: {error}"));
        self.is_stale = self.routes.is_err();
        before != self.routes
    }

    /// Looks whether what the kernel announced is about such a route.
    fn drain(&mut self) {
        const HEADER: usize = 16;
        /// `RTM_NEWLINK`, `RTM_DELLINK`
        const OF_LINKS: [u8; 2] = [16, 17];
        let may_go = !self.is_empty();
        let mut buffer = vec![0; 32 << 10];
        loop {
            match self.changes.recv(&mut &mut buffer[..], 0) {
                Ok(length) => {
                    let mut messages = split(&buffer[..length]);
                    self.is_stale |= messages.any(|message| match message.get(4) {
                        Some(kind) if OF_LINKS.contains(kind) => may_go,
                        _ => message.get(HEADER..).and_then(ServiceRoute::read).is_some(),
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // More came than fits.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => self.is_stale = true,
                Err(_) => return,
            }
        }
    }

    fn read(&mut self) -> io::Result<BTreeSet<ServiceRoute>> {
        /// `RTM_GETROUTE`
        const GET: u16 = 26;
        /// `struct rtmsg` of IPv4
        const REQUEST: [u8; 12] = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for _ in 0..ATTEMPTS {
            let mut routes = BTreeSet::new();
            let each = |body: Vec<u8>| routes.extend(ServiceRoute::read(&body));
            match self.client.for_each(GET, &REQUEST, each) {
                Ok(()) => return Ok(routes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_absent(&error) => return Ok(routes),
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("they change faster than they can be read"))
    }
}

impl ServiceRoute {
    /// `struct rtmsg` (family, lengths of destination and source, type of service, table, protocol, scope, type, flags) and
    /// its attributes (`RTA_*`); none where the type of service is any.
    fn read(body: &[u8]) -> Option<Self> {
        const HEADER: usize = 12;
        const IPV4: u8 = 2;
        const DESTINATION: u16 = 1;
        let header = body.get(..HEADER)?;
        if header[0] != IPV4 || header[3] == 0 {
            return None;
        }
        let destination = find(&body[HEADER..], DESTINATION).and_then(|bytes| bytes.first_chunk());
        Some(Self {
            destination: destination
                .map_or(Ipv4Addr::UNSPECIFIED, |bytes: &[u8; 4]| (*bytes).into()),
            length: header[1],
            service: header[3],
        })
    }

    fn contains(&self, address: Ipv4Addr) -> bool {
        let differing = self.destination.to_bits() ^ address.to_bits();
        differing
            .checked_shr(32 - u32::from(self.length))
            .unwrap_or(0)
            == 0
    }
}

impl fmt::Display for ServiceRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (destination, length) = (self.destination, self.length);
        write!(f, "{destination}/{length} tos {:#x}", self.service)
    }
}
