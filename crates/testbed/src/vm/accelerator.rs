//! The means of executing a guest's instructions and moving its frames.

use std::path::Path;

use datapath::Missing;

/// The executor of a guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accelerator {
    Kvm,
    /// QEMU's emulator: a measurement in there shows the emulator's speed, not a virtual machine's.
    Tcg,
}

impl Accelerator {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    pub(super) fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Tcg => ["-accel", "tcg", "-cpu", "max"],
        }
    }
}

/// Why this machine's kernel moves no frames of a guest: qemu does it then.
pub(crate) fn vhost() -> Result<(), Missing> {
    match Path::new("/dev/vhost-net").exists() {
        true => Ok(()),
        false => Err(Missing::new(
            "there is no /dev/vhost-net",
            "modprobe vhost_net",
        )),
    }
}
