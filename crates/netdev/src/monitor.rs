//! The kernel's tables read as they are and followed as they change: routes, next-hop objects,
//! neighbours, links, addresses, rules. What they mean together is the caller's.
//!
//! Changes come by one socket, in the kernel's order; a dump by another, a datagram at a time, so
//! that a caller can take changes first while a long dump runs.

mod attributes;
mod message;
mod read;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::sys::socket::{setsockopt, sockopt};

use crate::Error;
use crate::netlink::Netlink;
use crate::socket::split;

pub use message::{
    Entry, Hop, Kind, Message, NextHopObject, ObjectMeaning, PolicyRule, Position, TableRoute,
};
use read::Reader;

/// Links, neighbours, addresses, routes and rules of both families, and next-hop objects
/// (`RTNLGRP_*`).
const GROUPS: [u32; 9] = [1, 3, 5, 7, 8, 9, 11, 19, 32];
/// The kernel fills at most 32 KiB of a dump at a time.
const DATAGRAM_BYTES: usize = 64 << 10;
/// Receive buffer for the changes that a routing daemon makes while earlier ones are applied, in bytes:
/// the kernel charges about 1 KiB for a message.
pub const RECV_BUFFER_BYTES: usize = 128 << 20;

/// A table of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Links,
    Rules,
    NextHops,
    Neighbours,
    Addresses,
    Routes4,
    Routes6,
}

impl Table {
    /// All of them, what others refer to first.
    pub const ALL: [Self; 7] = [
        Self::Links,
        Self::Rules,
        Self::NextHops,
        Self::Neighbours,
        Self::Addresses,
        Self::Routes4,
        Self::Routes6,
    ];
}

/// How far reading came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing more for now.
    Empty,
    /// A datagram was read.
    Read,
    /// The end of a dump: the table is complete.
    Done,
    /// The kernel's buffer was full, and some changes are lost. Everything that waited was thrown
    /// away: a dump from now on is newer.
    Overrun,
}

/// Changes and dumps of the namespace that the opening thread is in.
pub struct Monitor {
    changes: Socket,
    dump: Socket,
    requests: Netlink,
    sequence: u32,
    buffer: Vec<u8>,
    reader: Reader,
}

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}

impl Monitor {
    /// Collects changes from now on, in a receive buffer of `room` bytes ([`RECV_BUFFER_BYTES`]).
    ///
    /// # Errors
    /// No netlink.
    pub fn open(room: usize) -> Result<Self, Error> {
        Ok(Self {
            changes: subscribe(room).map_err(Error::Socket)?,
            dump: for_dumps().map_err(Error::Socket)?,
            requests: Netlink::new()?,
            sequence: 0,
            buffer: vec![0; DATAGRAM_BYTES],
            reader: Reader::default(),
        })
    }

    /// Readable when there are changes.
    pub fn changes(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }

    /// Readable when there is more of the dump.
    pub fn dumped(&self) -> BorrowedFd<'_> {
        self.dump.as_fd()
    }

    /// Reads one datagram of changes, if there is one.
    ///
    /// # Errors
    /// Netlink itself.
    pub fn read_changes(&mut self, take: impl FnMut(&Message<'_>)) -> Result<Progress, Error> {
        match receive(&self.changes, &mut self.buffer) {
            Ok(None) => Ok(Progress::Empty),
            Ok(Some(length)) => {
                self.reader.read(&self.buffer[..length], take);
                Ok(Progress::Read)
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                self.throw_away()?;
                Ok(Progress::Overrun)
            }
            Err(error) => Err(Error::Socket(error)),
        }
    }

    /// Asks for a table. What is still unread of another one is forgotten.
    ///
    /// # Errors
    /// Netlink itself.
    pub fn start_dump(&mut self, table: Table) -> Result<(), Error> {
        // A socket has one dump at a time: a new one leaves the rest of the old behind.
        if self.sequence != 0 {
            self.dump = for_dumps().map_err(Error::Socket)?;
        }
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(table, self.sequence);
        self.dump
            .send(&request, 0)
            .map(drop)
            .map_err(|cause| Error::refused(format!("listing {table:?}"), cause))
    }

    /// Reads one datagram of the dump, if there is one.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn read_dump(&mut self, mut take: impl FnMut(&Message<'_>)) -> Result<Progress, Error> {
        let read = receive(&self.dump, &mut self.buffer).map_err(Error::Socket)?;
        let Some(length) = read else {
            return Ok(Progress::Empty);
        };
        let datagram = &self.buffer[..length];
        for bytes in split(datagram) {
            match end_of_dump(bytes) {
                None => {}
                Some(0) => {
                    self.reader.read(datagram, &mut take);
                    return Ok(Progress::Done);
                }
                Some(errno) => {
                    let cause = io::Error::from_raw_os_error(errno);
                    return Err(Error::refused("listing a table", cause));
                }
            }
        }
        self.reader.read(datagram, take);
        Ok(Progress::Read)
    }

    /// Has the kernel ask for a neighbour, or confirm a stale one.
    ///
    /// # Errors
    /// The device is gone.
    pub fn probe(&mut self, ifindex: u32, neighbour: IpAddr) -> Result<(), Error> {
        self.requests.probe_neighbour(ifindex, neighbour)
    }

    /// After an overrun the kernel adds nothing until all that waits has been read.
    fn throw_away(&mut self) -> Result<(), Error> {
        loop {
            match receive(&self.changes, &mut self.buffer) {
                Ok(None) => return Ok(()),
                Err(error) if error.raw_os_error() != Some(libc::ENOBUFS) => {
                    return Err(Error::Socket(error));
                }
                Ok(Some(_)) | Err(_) => {}
            }
        }
    }
}

fn subscribe(room: usize) -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.set_non_blocking(true)?;
    // Beyond the system's limit where that is allowed.
    if setsockopt(&socket.as_fd(), sockopt::RcvBufForce, &room).is_err() {
        setsockopt(&socket.as_fd(), sockopt::RcvBuf, &room)?;
    }
    for group in GROUPS {
        socket.add_membership(group)?;
    }
    Ok(socket)
}

fn for_dumps() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.set_non_blocking(true)?;
    socket.set_netlink_get_strict_chk(true)?;
    Ok(socket)
}

/// None when nothing waits.
fn receive(socket: &Socket, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        // By nix: netlink-sys advances slices that it is given.
        match nix::sys::socket::recv(
            socket.as_raw_fd(),
            buffer,
            nix::sys::socket::MsgFlags::empty(),
        ) {
            Ok(length) => return Ok(Some(length)),
            Err(nix::errno::Errno::EAGAIN) => return Ok(None),
            Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// A dump request: the header of netlink, and the table's own, which is all zero but for a family.
fn request(table: Table, sequence: u32) -> Vec<u8> {
    const HEADER: usize = 16;
    // RTM_GET*, the length of ifinfomsg, fib_rule_hdr, nhmsg, ndmsg, ifaddrmsg, rtmsg, the family.
    let (kind, length, family): (u16, usize, i32) = match table {
        Table::Links => (18, 16, libc::AF_UNSPEC),
        Table::Rules => (34, 12, libc::AF_UNSPEC),
        Table::NextHops => (106, 8, libc::AF_UNSPEC),
        Table::Neighbours => (30, 12, libc::AF_UNSPEC),
        Table::Addresses => (22, 8, libc::AF_UNSPEC),
        Table::Routes4 => (26, 12, libc::AF_INET),
        Table::Routes6 => (26, 12, libc::AF_INET6),
    };
    let mut request = Vec::with_capacity(HEADER + length);
    request.extend_from_slice(&u32::try_from(HEADER + length).unwrap_or(0).to_ne_bytes());
    request.extend_from_slice(&kind.to_ne_bytes());
    request.extend_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    request.extend_from_slice(&sequence.to_ne_bytes());
    request.resize(HEADER + length, 0);
    request[HEADER] = u8::try_from(family).unwrap_or(0);
    request
}

/// The result in the message that ends a dump: 0, or an errno.
fn end_of_dump(message: &[u8]) -> Option<i32> {
    const ERROR: u16 = 2;
    const DONE: u16 = 3;
    let kind = u16::from_ne_bytes(message.get(4..6)?.try_into().ok()?);
    if kind != ERROR && kind != DONE {
        return None;
    }
    let code = message.get(16..20).and_then(|code| code.try_into().ok());
    Some(code.map_or(0, |code| -i32::from_ne_bytes(code)))
}
