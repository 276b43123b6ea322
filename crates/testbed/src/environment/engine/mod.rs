//! Container engines as their users run them, by their command lines: what docker and podman have in common.
//!
//! The image is made here, of the agent alone. A container starts once, stays for the next bed while somebody
//! holds an [`crate::InstancePool`], and runs what each bed asks its agent for.

mod bridge;
pub(super) mod cli;
pub(crate) mod container;
pub(super) mod environment;
pub(crate) mod image;
pub(crate) mod orphans;
