//! Notifications of the kernel that a namespace's policy may have changed.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE, NETLINK_XFRM};
use netlink_sys::{Socket, SocketAddr};

use super::dump::is_absent;
use crate::Error;

/// Links, traffic control, policy rules and device settings of both IP versions (`RTNLGRP_*`).
const ROUTE_GROUPS: [u32; 6] = [1, 4, 8, 19, 24, 25];
/// `NFNLGRP_NFTABLES`
const NFTABLES_GROUP: [u32; 1] = [7];
/// `XFRMNLGRP_POLICY`
const IPSEC_GROUP: [u32; 1] = [4];

/// Tells when to ask [`PolicyMonitor`](super::PolicyMonitor) and [`Routing`](super::Routing) again.
///
/// Not every change is announced: tables of iptables-legacy and some settings have to be looked at from time to time.
pub struct PolicyChanges {
    sockets: Vec<Socket>,
}

impl fmt::Debug for PolicyChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyChanges").finish_non_exhaustive()
    }
}

impl PolicyChanges {
    /// Follows the calling thread's namespace.
    pub fn follow() -> Result<Self, Error> {
        let mut sockets = Vec::new();
        for (protocol, groups) in [
            (NETLINK_ROUTE, &ROUTE_GROUPS[..]),
            (NETLINK_NETFILTER, &NFTABLES_GROUP),
            (NETLINK_XFRM, &IPSEC_GROUP),
        ] {
            match subscribe(protocol, groups) {
                Ok(socket) => sockets.push(socket),
                // A kernel without netfilter or IPsec changes nothing of them.
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(Error::Socket(error)),
            }
        }
        Ok(Self { sockets })
    }

    /// Readable when something may have changed.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd)
    }

    /// Forgets what has come; whether anything had.
    pub fn drain(&mut self) -> bool {
        let mut buffer = vec![0; 8 << 10];
        let mut any = false;
        for socket in &self.sockets {
            loop {
                match socket.recv(&mut &mut buffer[..], 0) {
                    Ok(_) => any = true,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // More came than fits: the buffer is empty now.
                    Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => any = true,
                    Err(_) => break,
                }
            }
        }
        any
    }
}

pub(super) fn subscribe(protocol: isize, groups: &[u32]) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind(&SocketAddr::new(0, 0))?;
    socket.set_non_blocking(true)?;
    for group in groups {
        socket.add_membership(*group)?;
    }
    Ok(socket)
}
