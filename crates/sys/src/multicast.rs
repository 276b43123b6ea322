//! Joining and sending to multicast groups, any-source and source-specific, IPv4 and IPv6.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use crate::address::Name;
use crate::cmsg::Family;
use crate::socket::{set, set_bytes};

/// `sockaddr_storage`, which the group requests embed.
const STORAGE: usize = size_of::<libc::sockaddr_storage>();
/// `struct group_req` begins with the interface, padded to the alignment of a pointer.
const INTERFACE: usize = align_of::<libc::group_req>();

/// The group and source to receive from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Membership {
    pub group: IpAddr,
    /// Only from this sender (IGMPv3, MLDv2).
    pub source: Option<IpAddr>,
    pub ifindex: u32,
}

/// Joins; the socket leaves when it is closed.
///
/// # Errors
/// `EADDRINUSE` when already joined, `EINVAL` when the group is not one, `ENODEV` for the interface.
pub fn join(socket: impl AsFd, membership: &Membership) -> io::Result<()> {
    match membership.source {
        None => request(socket, membership, libc::MCAST_JOIN_GROUP),
        Some(_) => request(socket, membership, libc::MCAST_JOIN_SOURCE_GROUP),
    }
}

/// Leaves what [`join`] joined.
///
/// # Errors
/// `EADDRNOTAVAIL` when it was not joined.
pub fn leave(socket: impl AsFd, membership: &Membership) -> io::Result<()> {
    match membership.source {
        None => request(socket, membership, libc::MCAST_LEAVE_GROUP),
        Some(_) => request(socket, membership, libc::MCAST_LEAVE_SOURCE_GROUP),
    }
}

/// The interface that datagrams to groups leave by.
pub fn send_by(socket: impl AsFd, family: Family, ifindex: u32) -> io::Result<()> {
    match family {
        Family::V4 => {
            // `struct ip_mreqn`: group, address, interface; only the last counts here.
            let mut request = [0; 12];
            request[8..12].copy_from_slice(&ifindex.to_ne_bytes());
            set_bytes(socket, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &request)
        }
        Family::V6 => set(
            socket,
            libc::IPPROTO_IPV6,
            libc::IPV6_MULTICAST_IF,
            ifindex.cast_signed(),
        ),
    }
}

/// TTL or hop limit of datagrams to groups (the kernel's default is 1).
pub fn ttl(socket: impl AsFd, family: Family, ttl: u8) -> io::Result<()> {
    match family {
        Family::V4 => set(
            socket,
            libc::IPPROTO_IP,
            libc::IP_MULTICAST_TTL,
            i32::from(ttl),
        ),
        Family::V6 => set(
            socket,
            libc::IPPROTO_IPV6,
            libc::IPV6_MULTICAST_HOPS,
            i32::from(ttl),
        ),
    }
}

/// Whether members on this machine receive what it sends.
pub fn loop_back(socket: impl AsFd, family: Family, on: bool) -> io::Result<()> {
    match family {
        Family::V4 => set(
            socket,
            libc::IPPROTO_IP,
            libc::IP_MULTICAST_LOOP,
            i32::from(on),
        ),
        Family::V6 => set(
            socket,
            libc::IPPROTO_IPV6,
            libc::IPV6_MULTICAST_LOOP,
            i32::from(on),
        ),
    }
}

/// Receives only groups this socket joined, not those any socket of the machine joined (which is
/// the kernel's default).
pub fn only_own_groups(socket: impl AsFd, family: Family) -> io::Result<()> {
    match family {
        Family::V4 => set(socket, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0),
        Family::V6 => set(socket, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL, 0),
    }
}

/// `struct group_req` or, with a source, `struct group_source_req`.
fn request(socket: impl AsFd, membership: &Membership, option: libc::c_int) -> io::Result<()> {
    let level = match membership.group {
        IpAddr::V4(_) => libc::IPPROTO_IP,
        IpAddr::V6(_) => libc::IPPROTO_IPV6,
    };
    let mut bytes = [0; INTERFACE + 2 * STORAGE];
    bytes[0..4].copy_from_slice(&membership.ifindex.to_ne_bytes());
    put(&mut bytes[INTERFACE..], membership.group);
    let mut used = INTERFACE + STORAGE;
    if let Some(source) = membership.source {
        put(&mut bytes[used..], source);
        used += STORAGE;
    }
    set_bytes(socket, level, option, &bytes[..used])
}

fn put(storage: &mut [u8], ip: IpAddr) {
    let mut name = Name::empty();
    name.write(SocketAddr::new(ip, 0));
    storage[..name.0.len()].copy_from_slice(&name.0);
}
