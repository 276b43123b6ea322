//! The kernel's tables followed by a plane in memory, which has the real lookup structures.
#![allow(clippy::unwrap_used, reason = "for tests")]

mod corpus;
mod daemons;
mod failover;
mod filtering;
mod given;
mod kernel;
mod lab;
mod plane;
#[path = "../common/programs.rs"]
#[expect(dead_code, reason = "each test uses its part")]
mod programs;
mod sharing;
