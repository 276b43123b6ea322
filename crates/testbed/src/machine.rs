//! What of environments this machine has, as far as that is known without getting anything.

use datapath::Missing;

use crate::{KINDS, vm};

/// Every kind of environment, and what makes virtual machines fast; or what is missing.
pub fn machine() -> Vec<(&'static str, Result<(), Missing>)> {
    let kinds = KINDS.iter().map(|kind| (kind.name, (kind.look)()));
    kinds
        .chain([("kvm", vm::kvm()), ("vhost", vm::vhost())])
        .collect()
}
