//! UDP sockets with the options that packet work needs. The kernel's defaults stay unless asked.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use crate::address::Name;
pub use crate::cmsg::Family;

/// `SO_RCVMARK`, since Linux 5.19; newer than some C libraries.
const SO_RCVMARK: libc::c_int = 75;
/// `SO_PREFER_BUSY_POLL` and `SO_BUSY_POLL_BUDGET`, since Linux 5.11.
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;

/// `IPV6_AUTOFLOWLABEL`, of linux/in6.h.
const IPV6_AUTOFLOWLABEL: libc::c_int = 70;
/// The number of values that `SO_MEMINFO` returns (linux/sock_diag.h).
const SK_MEMINFO_VARS: usize = 9;
const SK_MEMINFO_DROPS: usize = 8;

/// An unbound UDP socket, for options that must be set before `bind`.
///
/// # Errors
/// The error of `socket`: too many open files, no such family.
pub fn unbound(family: Family) -> io::Result<UdpSocket> {
    let domain = match family {
        Family::V4 => libc::AF_INET,
        Family::V6 => libc::AF_INET6,
    };
    // SAFETY: no pointer is passed.
    let fd = unsafe { libc::socket(domain, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    check(fd)?;
    // SAFETY: `fd` is open, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
}

/// An AF_XDP socket without memory, rings or a device. Needs `CAP_NET_RAW`.
///
/// # Errors
/// The kernel has no such family ([`is_no_family`]), or the process has no such right.
pub fn af_xdp() -> io::Result<OwnedFd> {
    // SAFETY: no pointer is passed.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    check(fd)?;
    // SAFETY: `fd` is open, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether the kernel refused a socket because it has no such family.
pub fn is_no_family(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EAFNOSUPPORT)
}

/// A socket that sends whole Ethernet frames out of a device, through its queueing discipline, and
/// receives nothing. Needs `CAP_NET_RAW`.
///
/// # Errors
/// The device does not exist, or is down.
pub fn raw_sender(ifindex: u32) -> io::Result<OwnedFd> {
    // Protocol 0: no frame is delivered to it.
    // SAFETY: no pointer is passed.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    check(fd)?;
    // SAFETY: `fd` is open, and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let address = libc::sockaddr_ll {
        #[expect(clippy::cast_possible_truncation, reason = "17")]
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0,
        sll_ifindex: i32::try_from(ifindex).map_err(io::Error::other)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    #[expect(clippy::cast_possible_truncation, reason = "20")]
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `address` is `len` bytes and outlives the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
    Ok(socket)
}

/// Binds a socket that [`unbound`] made.
///
/// # Errors
/// The address is taken, or not this machine's.
pub fn bind(socket: impl AsFd, address: SocketAddr) -> io::Result<()> {
    let mut name = Name::empty();
    let len = name.write(address);
    // SAFETY: `name` holds `len` bytes of a socket address and outlives the call.
    check(unsafe { libc::bind(socket.as_fd().as_raw_fd(), name.0.as_ptr().cast(), len) }).map(drop)
}

/// Bytes written to a TCP socket that its peer has not acknowledged; also of a connection that has died.
///
/// # Errors
/// The socket is not TCP, or still connecting.
pub fn unacknowledged(socket: impl AsFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: `SIOCOUTQ`, which is `TIOCOUTQ`, writes one int, and `bytes` outlives the call.
    check(unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    u64::try_from(bytes).map_err(io::Error::other)
}

/// Lets another socket bind the same address; for multicast receivers.
pub fn reuse_address(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)
}

/// Spreads flows over all sockets bound to the same address.
pub fn reuse_port(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)
}

/// Keeps an IPv6 socket to IPv6.
pub fn v6_only(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)
}

/// Binds to a device by name.
pub fn bind_to_device(socket: impl AsFd, device: &str) -> io::Result<()> {
    set_bytes(
        socket,
        libc::SOL_SOCKET,
        libc::SO_BINDTODEVICE,
        device.as_bytes(),
    )
}

/// Sets DF on everything sent and refuses what exceeds the path MTU with `EMSGSIZE`.
pub fn never_fragment(socket: impl AsFd, family: Family) -> io::Result<()> {
    match family {
        Family::V4 => set(
            socket,
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_DO,
        ),
        Family::V6 => set(
            socket,
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DO,
        ),
    }
}

/// TTL or hop limit of unicast datagrams.
pub fn ttl(socket: impl AsFd, family: Family, ttl: u8) -> io::Result<()> {
    per_family(
        socket,
        family,
        libc::IP_TTL,
        libc::IPV6_UNICAST_HOPS,
        i32::from(ttl),
    )
}

/// TOS or traffic class byte of everything sent.
pub fn tos(socket: impl AsFd, family: Family, tos: u8) -> io::Result<()> {
    per_family(
        socket,
        family,
        libc::IP_TOS,
        libc::IPV6_TCLASS,
        i32::from(tos),
    )
}

/// Fills [`crate::mmsg::RecvInfo`]'s `ttl`.
pub fn receive_ttl(socket: impl AsFd, family: Family) -> io::Result<()> {
    per_family(socket, family, libc::IP_RECVTTL, libc::IPV6_RECVHOPLIMIT, 1)
}

/// Fills [`crate::mmsg::RecvInfo`]'s `tos`.
pub fn receive_tos(socket: impl AsFd, family: Family) -> io::Result<()> {
    per_family(socket, family, libc::IP_RECVTOS, libc::IPV6_RECVTCLASS, 1)
}

/// Fills [`crate::mmsg::RecvInfo`]'s `destination` and `ifindex`.
pub fn packet_info(socket: impl AsFd, family: Family) -> io::Result<()> {
    per_family(socket, family, libc::IP_PKTINFO, libc::IPV6_RECVPKTINFO, 1)
}

/// Fills [`crate::mmsg::RecvInfo`]'s `dropped`.
pub fn count_drops(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)
}

/// Fills [`crate::mmsg::RecvInfo`]'s `mark`.
pub fn receive_mark(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, SO_RCVMARK, 1)
}

/// Lets the kernel hand over trains of equal datagrams; fills [`crate::mmsg::RecvInfo`]'s `segment`.
pub fn udp_gro(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::SOL_UDP, libc::UDP_GRO, 1)
}

/// Lets a send fail with `ENOBUFS` when the device or its queue dropped the datagram, instead of
/// succeeding silently. ICMP errors then fail a later send, once, whether connected or not.
pub fn report_drops(socket: impl AsFd, family: Family) -> io::Result<()> {
    per_family(socket, family, libc::IP_RECVERR, libc::IPV6_RECVERR, 1)
}

/// Marks everything sent, for routing rules and filters. Needs `CAP_NET_ADMIN`.
pub fn mark(socket: impl AsFd, mark: u32) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_MARK, mark.cast_signed())
}

/// Busy-polls the device for this many microseconds in each receive, `budget` packets at a time,
/// and asks for the device's interrupts to stay off meanwhile. Needs `CAP_NET_ADMIN`.
pub fn busy_poll(socket: impl AsFd, microseconds: u16, budget: u16) -> io::Result<()> {
    let fd = socket.as_fd();
    set(fd, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, 1)?;
    set(
        fd,
        libc::SOL_SOCKET,
        libc::SO_BUSY_POLL,
        i32::from(microseconds),
    )?;
    set(fd, libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, i32::from(budget))
}

/// Keeps an IPv6 socket from inventing flow labels: they stay 0.
pub fn no_flow_label(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, 0)
}

/// Whether there is something to receive, now or within this time, which is not rounded to the kernel's ticks.
///
/// # Errors
/// The error of `ppoll`; a signal counts as a timeout.
pub fn readable(socket: impl AsFd, within: Duration) -> io::Result<bool> {
    let mut asked = libc::pollfd {
        fd: socket.as_fd().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let within = libc::timespec {
        tv_sec: within.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: within.subsec_nanos().into(),
    };
    // SAFETY: one descriptor is asked for; it and the time outlive the call, and signals stay as they are.
    let ready = unsafe { libc::ppoll(&raw mut asked, 1, &raw const within, ptr::null()) };
    match check(ready) {
        Ok(_) => Ok(ready > 0),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(error) => Err(error),
    }
}

/// Datagrams the kernel has dropped at this socket since it was opened (wraps): its receive queue
/// was full, or the checksum was wrong.
pub fn drops(socket: impl AsFd) -> io::Result<u32> {
    let mut values = [0_u32; SK_MEMINFO_VARS];
    let mut len = libc::socklen_t::try_from(size_of_val(&values)).map_err(io::Error::other)?;
    // SAFETY: `values` has the bytes that `len` says, and both outlive the call.
    check(unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut len,
        )
    })?;
    Ok(values[SK_MEMINFO_DROPS])
}

/// Asks for a receive buffer beyond the system's limit where allowed, else up to it, and returns
/// the bytes in effect (the kernel doubles a request for its own overhead).
pub fn receive_buffer(socket: impl AsFd, bytes: usize) -> io::Result<usize> {
    buffer(socket, bytes, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)
}

/// As [`receive_buffer`], for sending.
pub fn send_buffer(socket: impl AsFd, bytes: usize) -> io::Result<usize> {
    buffer(socket, bytes, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)
}

fn buffer(
    socket: impl AsFd,
    bytes: usize,
    force: libc::c_int,
    ordinary: libc::c_int,
) -> io::Result<usize> {
    let fd = socket.as_fd();
    let wanted = i32::try_from(bytes).unwrap_or(i32::MAX / 2);
    set(fd, libc::SOL_SOCKET, force, wanted)
        .or_else(|_| set(fd, libc::SOL_SOCKET, ordinary, wanted))?;
    let in_effect = get(fd, libc::SOL_SOCKET, ordinary)?;
    Ok(usize::try_from(in_effect).unwrap_or(0))
}

fn per_family(
    socket: impl AsFd,
    family: Family,
    v4: libc::c_int,
    v6: libc::c_int,
    value: i32,
) -> io::Result<()> {
    match family {
        Family::V4 => set(socket, libc::IPPROTO_IP, v4, value),
        Family::V6 => set(socket, libc::IPPROTO_IPV6, v6, value),
    }
}

pub(crate) fn set(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: i32,
) -> io::Result<()> {
    set_bytes(socket, level, name, &value.to_ne_bytes())
}

pub(crate) fn set_bytes(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &[u8],
) -> io::Result<()> {
    let len = libc::socklen_t::try_from(value.len()).map_err(io::Error::other)?;
    // SAFETY: `value` holds `len` bytes and outlives the call, which only reads it.
    check(unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            len,
        )
    })
    .map(drop)
}

fn get(socket: impl AsFd, level: libc::c_int, name: libc::c_int) -> io::Result<i32> {
    let mut value: i32 = 0;
    let mut len: libc::socklen_t = 4;
    // SAFETY: `value` has the four bytes that `len` says, and both outlive the call.
    check(unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut len,
        )
    })?;
    Ok(value)
}

pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}
