//! The contents of the kernel's tables, as plain values.

use std::net::IpAddr;

use crate::{Address, Link, Neighbour};

/// An entry that is there, or no longer.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    pub gone: bool,
    pub entry: Entry<'a>,
}

#[derive(Clone, Copy, Debug)]
pub enum Entry<'a> {
    Link(&'a Link),
    Rule(PolicyRule),
    NextHop(NextHopObject<'a>),
    Neighbour(&'a Neighbour),
    Address(Address),
    Route(TableRoute<'a>),
}

/// A route of any table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableRoute<'a> {
    /// The network's address, of the route's family.
    pub destination: IpAddr,
    pub prefix_len: u8,
    pub table: u32,
    pub kind: Kind,
    /// The type of service that the route is for; 0 for all.
    pub tos: u8,
    /// The sources it is for, where not all.
    pub sources: Option<(IpAddr, u8)>,
    /// The smaller the better.
    pub metric: u32,
    /// Where it goes, unless by `object`.
    pub hops: &'a [Hop],
    /// The next-hop object it goes by; `hops` is then what the object was.
    pub object: Option<u32>,
    /// The address that packets of this machine get.
    pub source: Option<IpAddr>,
    /// The route's own limit, in bytes of IP packet.
    pub mtu: Option<u32>,
    /// Packets are wrapped or rewritten on the way.
    pub encapsulated: bool,
    pub position: Position,
}

/// Where a route stands among those of the same prefix and metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    First,
    Last,
    /// It takes the first one's place.
    Replacing,
}

/// How a route treats packets (`RTN_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Unicast,
    /// For this machine: local, broadcast, anycast, multicast.
    Local,
    Blackhole,
    Unreachable,
    Prohibit,
    /// Ends the search in its table.
    Throw,
    /// None of these.
    Other,
}

/// One way of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hop {
    /// None: the destination itself is a neighbour.
    pub gateway: Option<IpAddr>,
    pub ifindex: u32,
    /// Its part of the traffic, from 1.
    pub weight: u16,
}

/// A next hop that routes name by number (`ip nexthop`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHopObject<'a> {
    pub id: u32,
    pub meaning: ObjectMeaning<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectMeaning<'a> {
    Hop(Hop),
    Blackhole,
    /// Other objects by number, with weights.
    Group(&'a [(u32, u16)]),
    /// Work that only the kernel can do: wrapping, a resilient group's buckets, bridge entries.
    Kernel,
}

/// A policy rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyRule {
    pub v6: bool,
    pub priority: u32,
    pub table: u32,
    /// One of the three that every system has: local, main, default.
    pub usual: bool,
}
