//! Experiments with servers on other machines.

mod exclusive;
