//! The options of extraction: how packets become flows.

use crate::dissect::Tunnels;
use crate::filter::Selection;
use crate::flow::{Limits, Timers};

/// The options of an extractor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub timers: Timers,
    pub limits: Limits,
    pub tunnels: Tunnels,
    /// Distinguish flows by their outermost VLAN id.
    pub by_vlan: bool,
    /// Count all echoes between two hosts as one flow, whatever their ICMP identifiers.
    pub ignore_icmp_id: bool,
    /// The packets to keep.
    pub selection: Selection,
}
