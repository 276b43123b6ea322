//! Packets to flow features for machine learning: one definition of every feature, on every datapath.
//!
//! A frame is dissected, its packet is counted under a flow, and an ended flow is a row of a schema.
//! Where frames come from is the datapaths' business, where rows go is the sinks'.

pub mod batch;
pub mod column;
pub mod counters;
pub mod dissect;
pub mod element;
mod extractor;
pub mod filter;
pub mod flow;
mod grow;
mod keep;
pub mod kernel;
mod key;
pub mod live;
pub mod model;
pub mod packets;
pub mod payload;
pub mod pcap;
pub mod recording;
mod rows;
pub mod saved;
pub mod schema;
pub mod sink;
pub mod stream;
mod text;
mod work;

pub use extractor::{Extractor, Options, PacketReader};
pub use keep::arrow_schema;
pub use key::{Endpoint, Key, Sender};
pub use rows::RowWriter;
