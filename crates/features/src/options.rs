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
    /// The packets to keep.
    pub selection: Selection,
}
