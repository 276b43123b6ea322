//! Control socket, HTTP API, metrics, configuration files, and quantities as users write them.
//!
//! It decides how a request reaches a program and how an answer leaves it; what a method does
//! belongs to the handler that the program passes in.

mod client;
pub mod config;
mod error;
pub mod http;
pub mod limits;
pub mod metrics;
mod places;
pub mod ready;
mod serve;
pub mod shutdown;
mod token;
pub mod units;
pub mod unix;

pub use client::Client;
pub use error::{Error, Kind};
pub use serve::{Limits, Request, StartError};
