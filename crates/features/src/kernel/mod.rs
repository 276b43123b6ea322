//! Flows that the kernel counts, and packets that it records: loading and attaching the programs, and reading what they leave.
//!
//! What a feature is, the schemas say: a record of the kernel becomes a `Flow` like any other.

mod account;
mod bell;
mod calls;
mod classes;
mod clock;
mod columns;
mod fanout;
mod flows;
mod hand_over;
mod image;
mod kernel_rows;
mod memory;
mod merge;
mod models;
mod packets;
mod record;
mod rings;
mod selection;
mod settings;
mod skel;
mod steer;
mod sweep;
mod tables;
mod trial;
mod wakeup;

pub use account::{Account, REFUSALS};
pub(crate) use fanout::chooser;
pub use flows::FlowPlane;
pub(crate) use hand_over::HandOver;
pub use image::Image;
pub use models::{Answers, ModelSlot};
pub use packets::PacketPlane;
pub use rings::PacketRings;
pub use settings::{Clock, Settings, Verdict};
pub use sweep::SweepProgress;
pub use trial::{RunTime, Subject, Trial};
pub use wakeup::{LATENCY, Pause, Wakeup};

use datapath::Error;

/// For `map_err` of libbpf and of `bpf`, whose own words for the attempt are dropped.
fn failed<E: Into<libbpf_rs::Error>>(what: &'static str) -> impl FnOnce(E) -> Error {
    move |error| Error::failed(what, error.into())
}
