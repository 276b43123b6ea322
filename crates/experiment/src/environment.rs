//! The environments that a device under test can run in.

use testbed::{KINDS, Kind};

/// The environment of the generators and probes, and of the device under test where no other is named.
pub(crate) const NATIVE: &str = "native";

/// The environment of this name.
///
/// # Errors
/// With the names that there are.
pub(crate) fn find(name: &str) -> Result<String, String> {
    if Kind::find(name).is_some() {
        return Ok(name.to_owned());
    }
    let known: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
    Err(format!(
        "no environment {name:?}; there are: {}",
        known.join(", ")
    ))
}

/// Whether every trial starts the environment anew. Others serve all trials of a block, on CPUs that stay.
pub(crate) fn starts_each_trial(name: &str) -> bool {
    [NATIVE, "oci"].contains(&name)
}
