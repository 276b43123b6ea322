//! The cost of a network path: streams, transactions and echoes between two ends. The [`client`] asks a [`server`]
//! for the other end of each test, drives the test and returns its result.

pub mod client;
mod flow;
pub mod json;
mod message;
mod options;
mod outcome;
mod pace;
pub mod server;
mod socket;
mod socket_options;
mod spec;
mod test;
mod token;

pub use flow::{Arrivals, LatencySummary};
pub use message::VERSION;
pub use options::{
    DEFAULT_DURATION, LOAD_FLOWS, LoadDirection, LoadPlan, LoadStreams, OptionError, Options, Plan,
};
pub use outcome::{
    Datagrams, End, Interval, Latency, Load, Outcome, Phase, Quantile, TcpStatistics, Transfer,
    fairness,
};
pub use socket::Source;
pub use spec::{Direction, Invalid, Spec};
pub use test::{
    DEFAULT_TESTS, ETHERNET_PAYLOAD, MAX_DATAGRAM, MAX_FLOWS, MAX_LOSS, MAX_MESSAGE, Test,
};
pub use token::{Token, TokenError};

/// The port of a server unless another is named.
pub const PORT: u16 = 7411;
