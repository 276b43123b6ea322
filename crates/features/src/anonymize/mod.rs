//! Pseudonyms for what identifies a host in rows, so that rows can be shared: prefix-preserving ones for IP addresses
//! (Crypto-PAn), keyed ones for hardware addresses, flows, tunnels and names. The other columns stay as they are.

mod crypto_pan;
mod key;
mod pseudonyms;
mod rows;

pub use key::{KEY_BYTES, Key, KeyError};
pub use pseudonyms::Pseudonyms;
pub use rows::RowAnonymizer;
