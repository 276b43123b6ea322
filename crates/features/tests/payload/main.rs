//! What payloads tell: made by hand, damaged at random, and from real captures beside tshark.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod captures;
mod dns;
mod entropy;
mod flows;
mod fuzz;
mod hello;
mod ja4;
mod stream;
mod tshark;
