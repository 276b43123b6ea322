//! The kernel's tables followed by a plane in memory, which has the real lookup structures.

mod corpus;
mod daemons;
mod failover;
mod filtering;
mod kernel;
mod lab;
mod plane;
mod sharing;
mod shortage;
mod static_routes;
