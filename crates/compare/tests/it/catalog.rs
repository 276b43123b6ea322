//! The experiments of the repository, with short trials.

mod exclusive;
