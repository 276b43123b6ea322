//! The devices that the program is attached to.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};

use netdev::XdpMode;
use netdev::attach::{self, Attached};

use super::Error;

/// Dropping it detaches.
#[derive(Debug)]
pub(super) struct Attachments {
    attached: BTreeMap<u32, Attached>,
    program: OwnedFd,
    mode: XdpMode,
}

impl Attachments {
    /// Nowhere yet.
    pub(super) fn new(program: OwnedFd, mode: XdpMode) -> Self {
        Self {
            attached: BTreeMap::new(),
            program,
            mode,
        }
    }

    /// Attaches to those of these devices that are new, then detaches from all others.
    pub(super) fn follow(&mut self, wanted: &BTreeSet<u32>) -> Result<(), Error> {
        for ifindex in wanted {
            if !self.attached.contains_key(ifindex) {
                let attached = attach::xdp(self.program.as_fd(), *ifindex, self.mode)
                    .map_err(Error::Attach)?;
                self.attached.insert(*ifindex, attached);
            }
        }
        self.attached.retain(|ifindex, _| wanted.contains(ifindex));
        Ok(())
    }

    /// Detaches everywhere.
    pub(super) fn clear(&mut self) {
        self.attached.clear();
    }
}
