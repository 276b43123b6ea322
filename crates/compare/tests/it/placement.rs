//! Devices under test in containers and virtual machines.

mod exclusive;
