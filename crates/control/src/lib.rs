//! Control socket, HTTP API, metrics, configuration files.
//!
//! It decides how a request reaches a program and how an answer leaves it; what a method does
//! belongs to the handler that the program passes in.

mod client;
pub mod config;
mod connection_limit;
mod error;
pub mod http;
pub mod metrics;
pub mod ready;
mod serve;
mod token;
pub mod unix;

pub use client::Client;
pub use error::{Error, Kind};
pub use serve::{Limits, Request, StartError};
