//! The devices that the program is attached to.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::{MapCore, MapHandle};
use netdev::XdpMode;
use netdev::attach::{self, Attached};

use super::Error;
use super::object::{erase, write};

/// Dropping it detaches.
#[derive(Debug)]
pub(super) struct Attachments {
    attached: BTreeMap<u32, Attached>,
    /// The same devices, for the programs that see what is lost.
    known: MapHandle,
    program: OwnedFd,
    mode: XdpMode,
}

impl Attachments {
    /// Nowhere yet.
    pub(super) fn new(program: OwnedFd, mode: XdpMode, known: MapHandle) -> Self {
        Self {
            attached: BTreeMap::new(),
            known,
            program,
            mode,
        }
    }

    /// Attaches to those of these devices that are new, then detaches from all others.
    pub(super) fn follow(&mut self, wanted: &BTreeSet<u32>) -> Result<(), Error> {
        for ifindex in wanted {
            if !self.attached.contains_key(ifindex) {
                write(&self.known, &ifindex.to_ne_bytes(), &1_u32.to_ne_bytes())?;
                let attached = attach::xdp(self.program.as_fd(), *ifindex, self.mode)
                    .map_err(Error::Attach)?;
                self.attached.insert(*ifindex, attached);
            }
        }
        let gone = |ifindex: &u32| !wanted.contains(ifindex);
        for (ifindex, attached) in self.attached.extract_if(.., |ifindex, _| gone(ifindex)) {
            drop(attached);
            erase(&self.known, &ifindex.to_ne_bytes())?;
        }
        Ok(())
    }

    /// Puts this program in the place of `before`'s, where that is attached. What cannot be done
    /// everywhere is done nowhere.
    pub(super) fn take_over(&mut self, before: &mut Self) -> Result<(), Error> {
        for attached in before.attached.values() {
            if let Err(error) = self.replace(before, attached) {
                for attached in before.attached.values() {
                    if let Err(error) = before.replace(self, attached) {
                        tracing::error!("{error}");
                    }
                }
                return Err(error);
            }
        }
        self.attached = std::mem::take(&mut before.attached);
        Ok(())
    }

    /// Of what is lost in between nobody says that it was: said twice, it would be counted twice.
    fn replace(&self, before: &Self, attached: &Attached) -> Result<(), Error> {
        let device = attached.ifindex.to_ne_bytes();
        attached
            .replace(self.program.as_fd())
            .map_err(Error::Attach)?;
        // Where both were undone already there is none.
        let _known = before.known.delete(&device);
        write(&self.known, &device, &1_u32.to_ne_bytes())
    }

    /// Detaches everywhere.
    pub(super) fn clear(&mut self) {
        self.attached.clear();
    }
}
