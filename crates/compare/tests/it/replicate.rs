//! Experiments of replicate.

mod exclusive;
