//! The devices that the program is attached to.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use bpf::Map;
use datapath::Detachment;
use netdev::{Hook, XdpMode};

use super::Error;

/// Dropping it detaches.
#[derive(Debug)]
pub(super) struct Attachments {
    attached: netdev::Attachments,
    /// The same devices, for the programs that see what is lost.
    known: Map<u32, u32>,
}

impl Attachments {
    /// Nowhere yet.
    pub(super) fn new(program: OwnedFd, mode: XdpMode, known: Map<u32, u32>) -> Self {
        Self {
            attached: netdev::Attachments::new(program, Hook::Xdp(mode)),
            known,
        }
    }

    /// Attaches to those of these devices that are new, then detaches from all others.
    pub(super) fn follow(&mut self, wanted: &BTreeSet<u32>) -> Result<(), Error> {
        for ifindex in wanted {
            if !self.attached.contains(*ifindex) {
                self.known.set(ifindex, &1)?;
                self.attached.attach(*ifindex).map_err(Error::Attach)?;
            }
        }
        for ifindex in self.attached.detach_from(|one| !wanted.contains(&one)) {
            self.known.remove(&ifindex)?;
        }
        Ok(())
    }

    /// As [`netdev::Attachments::reattach`].
    pub(super) fn reattach(&mut self) -> Vec<Detachment> {
        self.attached.reattach()
    }

    pub(super) fn detachments(&self) -> Vec<Detachment> {
        self.attached.detachments()
    }

    /// Puts this program in the place of `before`'s, where that is attached. What cannot be done
    /// everywhere is done nowhere.
    pub(super) fn take_over(&mut self, before: &mut Self) -> Result<(), Error> {
        for ifindex in before.attached.devices() {
            if let Err(error) = self.replace(before, before, ifindex) {
                for ifindex in before.attached.devices() {
                    if let Err(error) = before.replace(self, before, ifindex) {
                        tracing::error!("{error}");
                    }
                }
                return Err(error);
            }
        }
        self.attached.adopt(&mut before.attached);
        Ok(())
    }

    /// Puts this program in the place of `other`'s on a device of `owner`. Of what is lost in between
    /// nobody says that it was: said twice, it would be counted twice.
    fn replace(&self, other: &Self, owner: &Self, ifindex: u32) -> Result<(), Error> {
        owner
            .attached
            .replace(ifindex, &self.attached)
            .map_err(Error::Attach)?;
        // Where both were undone already there is none.
        let _known = other.known.remove(&ifindex);
        Ok(self.known.set(&ifindex, &1)?)
    }

    /// Detaches everywhere.
    pub(super) fn clear(&mut self) {
        self.attached.clear();
    }
}
