//! What a file held, and what of it is not in the table.

use std::net::IpAddr;

use super::Format;
use crate::Place;

/// How a file became routes. Routes and everything counted here add up to what was read.
#[derive(Clone, Debug)]
pub struct Report {
    pub format: Format,
    /// Routes read, before duplicates were resolved.
    pub read: u64,
    pub duplicates: Duplicates,
    /// Routes within another one: no fault, longest-prefix match is for them.
    pub nested: u64,
    /// What is in the file and not in the table, by reason.
    pub left_out: Vec<LeftOut>,
    /// Whose paths the routes are, for dumps of several peers.
    pub peers: Vec<Peer>,
}

/// Prefixes that came again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Duplicates {
    /// With the same target.
    pub same: u64,
    /// With another target; the last counts.
    pub replaced: u64,
    /// With another target and behind the one that counts: the kernel uses the first that it lists.
    pub behind: u64,
    /// With a larger metric than another, which counts.
    pub worse: u64,
    /// Where the first of them is.
    pub first: Option<Place>,
}

/// Things of one kind that are not in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    pub why: String,
    pub count: u64,
    pub first: Place,
}

/// A peer of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub address: IpAddr,
    pub autonomous_system: u32,
    /// Prefixes whose path is this peer's, duplicates included.
    pub taken: u64,
}
