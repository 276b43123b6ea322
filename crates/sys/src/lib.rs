//! The unsafe corners of the system: namespaces, socket batches, ethtool, perf events, scheduling.
mod address;
pub mod caps;
pub mod child;
pub mod clock;
mod cmsg;
pub mod energy;
pub mod ethtool;
pub mod kernel;
pub mod mmap;
pub mod mmsg;
pub mod multicast;
pub mod netns;
pub mod owner;
pub mod perf;
pub mod rcu;
pub mod require;
pub mod sched;
pub mod socket;
