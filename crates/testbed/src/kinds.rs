//! The list of environments, and which of them this machine has.

use datapath::Missing;

use crate::environment::{Kind, docker, native, oci, podman};
use crate::vm::accelerator::vhost;
use crate::vm::container;
use crate::vm::environment::{KIND as VM_KIND, RT_KIND};
use crate::vm::kvm::kvm;

/// Every kind of environment.
pub const KINDS: &[Kind] = &[
    native::KIND,
    oci::KIND,
    docker::KIND,
    podman::KIND,
    VM_KIND,
    RT_KIND,
    container::KIND,
];

impl Kind {
    /// The kind that a topology calls `name`.
    pub fn find(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }
}

/// The names of all kinds, for messages.
pub(crate) fn names() -> String {
    KINDS
        .iter()
        .map(|kind| kind.name)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Every kind of environment and what makes virtual machines fast, each with what it lacks on this machine, as far as
/// that is known without downloading anything.
pub fn machine() -> Vec<(&'static str, Result<(), Missing>)> {
    let kinds = KINDS.iter().map(|kind| (kind.name, (kind.look)()));
    kinds.chain([("kvm", kvm()), ("vhost", vhost())]).collect()
}
