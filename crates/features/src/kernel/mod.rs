//! Flows counted and packets recorded in the kernel: loads and attaches the programs, and reads their results.
//!
//! The schemas define the features. A record of the kernel becomes a `Flow` like any other.

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

/// Maps an error of libbpf or `bpf`. Their own description of the failed operation is replaced.
fn failed<E: Into<libbpf_rs::Error>>(what: &'static str) -> impl FnOnce(E) -> Error {
    move |error| Error::failed(what, error.into())
}
