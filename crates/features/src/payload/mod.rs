//! What the first bytes of a payload tell: TLS client, also in QUIC, DNS name, entropy.
//!
//! It reads bytes and decides what they are; which payloads are worth a look, the flow decides.

pub mod dns;
pub mod entropy;
pub mod quic;
pub mod tls;

mod cursor;
mod name;
