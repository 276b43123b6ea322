//! Pseudonyms for addresses and identifiers, so that rows can be given away: prefix-preserving ones for IP addresses
//! (Crypto-PAn), others for hardware addresses and flows. What a row says beside these stays as it is.

mod crypto_pan;
mod pseudonyms;
mod rows;

pub use pseudonyms::Pseudonyms;
pub use rows::RowAnonymizer;

/// Bytes of a key: half of it is AES's, the other half fills blocks.
pub const KEY_BYTES: usize = 32;
