//! The integration tests of `features`: one program, one module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

mod cic_defects;
mod collectors;
mod common;
mod connection;
mod expressions;
mod files;
mod filter_tcpdump;
mod identity;
mod ipfix;
mod kafka;
mod kernel;
mod kernel_dissect;
mod kernel_filter;
mod kernel_flows;
mod kernel_models;
mod kernel_numa;
mod kernel_packets;
mod kernel_steer;
mod kernel_traffic;
mod live;
mod live_selection;
mod model;
mod nats;
mod nfstream;
mod overload;
mod packet_rows;
mod parallel;
mod payload;
mod queue;
mod recording;
mod scoring;
mod shared_sink;
mod stream;
mod tshark;
