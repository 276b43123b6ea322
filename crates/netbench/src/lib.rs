//! What a path costs: streams, transactions and echoes between two ends. The [`client`] asks a [`server`]
//! for the other end of each test, drives it, and says what it came to.

pub mod client;
mod flow;
pub mod json;
mod message;
mod outcome;
mod pace;
pub mod server;
mod socket;
mod spec;
mod token;

pub use message::VERSION;
pub use outcome::{End, Latency, Outcome, Transfer};
pub use spec::{
    Direction, Given, Invalid, LARGEST_DATAGRAM, LARGEST_MESSAGE, MOST_FLOWS, Spec, Test,
};
pub use token::{Token, TokenError};

/// Where a server listens unless told otherwise.
pub const PORT: u16 = 7411;
