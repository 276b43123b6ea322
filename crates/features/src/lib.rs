//! Packets to flow features for machine learning: one definition of every feature, on every datapath.
//!
//! A frame is dissected, its packet is counted in a flow, and each ended flow becomes a row of a schema.
//! The datapaths supply the frames, and the sinks write the rows.

pub mod anonymize;
pub mod batch;
pub mod column;
mod column_builder;
pub mod counters;
pub mod dissect;
pub mod element;
mod extractor;
pub mod filter;
pub mod flow;
pub mod kernel;
mod key;
pub mod labels;
pub mod live;
pub mod model;
mod options;
pub mod packets;
pub mod payload;
pub mod pcap;
mod pipeline;
pub mod recording;
pub mod row_file;
mod rows;
pub mod schema;
pub mod sink;
pub mod stream;
mod text;

pub use extractor::{Extractor, PacketReader};
pub use key::{Endpoint, Key, Sender};
pub use options::Options;
pub use pipeline::{FlowOutput, FlowStage, Stage, arrow_schema};
pub use rows::RowWriter;
