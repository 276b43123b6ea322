//! Reads the first bytes of a payload: TLS ClientHello, also in QUIC, DNS name, entropy.
//!
//! This module only interprets bytes. The flow decides which payloads are read.

pub mod dns;
pub mod entropy;
pub mod quic;
pub mod tls;

mod cursor;
mod name;
