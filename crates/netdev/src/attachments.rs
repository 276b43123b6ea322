//! One program on a set of devices that changes.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};

use datapath::Detachment;

use crate::attach::{self, Attachment, Direction};
use crate::{Error, Netlink, XdpMode};

/// Where on a device a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    Xdp(XdpMode),
    /// By tcx, or by clsact where the kernel has no tcx.
    Tc(Direction),
}

/// A program and the devices that it is attached to. Dropping it detaches the program everywhere.
///
/// Its methods belong on threads of one network namespace.
#[derive(Debug)]
pub struct Attachments {
    hook: Hook,
    attached: BTreeMap<u32, Attachment>,
    /// Devices that other programs have detached it from. Those with an error are not in `attached`.
    detachments: BTreeMap<u32, Detachment>,
    program: OwnedFd,
}

impl Attachments {
    /// The program is attached to no device yet.
    pub fn new(program: OwnedFd, hook: Hook) -> Self {
        Self {
            hook,
            attached: BTreeMap::new(),
            detachments: BTreeMap::new(),
            program,
        }
    }

    /// Attaches to those of these devices that are new, then detaches from all others.
    ///
    /// # Errors
    /// A device that the program cannot be attached to: nothing was detached then.
    pub fn follow(&mut self, devices: &BTreeSet<u32>) -> Result<(), Error> {
        for ifindex in devices {
            self.attach(*ifindex)?;
        }
        self.detach_from(|ifindex| !devices.contains(&ifindex));
        Ok(())
    }

    /// As [`Self::follow`], but passes over devices that the program cannot be attached to, and returns why.
    pub fn follow_each(&mut self, devices: &BTreeSet<u32>) -> BTreeMap<u32, Error> {
        let mut refused = BTreeMap::new();
        for ifindex in devices {
            if let Err(error) = self.attach(*ifindex) {
                refused.insert(*ifindex, error);
            }
        }
        self.detach_from(|ifindex| !devices.contains(&ifindex));
        refused
    }

    /// Attaches to a device, unless the program is attached to it.
    ///
    /// # Errors
    /// As [`attach::xdp`] and [`attach::tc`].
    pub fn attach(&mut self, ifindex: u32) -> Result<(), Error> {
        if self.contains(ifindex) {
            return Ok(());
        }
        let program = self.program.as_fd();
        let attached = match self.hook {
            Hook::Xdp(mode) => attach::xdp(program, ifindex, mode)?,
            Hook::Tc(direction) => attach::tc(program, ifindex, direction, attach::tc_via())?,
        };
        self.attached.insert(ifindex, attached);
        Ok(())
    }

    /// Attaches again where another program has detached this one, unless the device is gone. Returns what was detached,
    /// and what could not be attached again for another reason than before.
    pub fn reattach(&mut self) -> Vec<Detachment> {
        let attached = self.attached.iter_mut();
        let detached =
            attached.filter_map(|(ifindex, one)| (!one.is_attached()).then_some(*ifindex));
        let mut detached: BTreeSet<u32> = detached.collect();
        let failed = self.detachments.iter();
        let failed = failed.filter(|(_, detachment)| detachment.error.is_some());
        detached.extend(failed.map(|(ifindex, _)| *ifindex));
        let mut changes = Vec::new();
        for ifindex in detached {
            let found = Netlink::new().and_then(|mut netlink| netlink.link_by_index(ifindex));
            let Ok(link) = found else {
                self.detachments.remove(&ifindex);
                continue;
            };
            // Dropped first: a filter is removed by its place, which the next one takes.
            let is_new = self.attached.remove(&ifindex).is_some();
            let error = self.attach(ifindex).err().map(|error| error.to_string());
            let before = self.detachments.get(&ifindex);
            let count = before.map_or(0, |before| before.count) + u64::from(is_new);
            let detachment = Detachment {
                device: link.name,
                count,
                error,
            };
            if before != Some(&detachment) {
                changes.push(detachment.clone());
            }
            self.detachments.insert(ifindex, detachment);
        }
        changes
    }

    /// What other programs have detached this one from.
    pub fn detachments(&self) -> Vec<Detachment> {
        self.detachments.values().cloned().collect()
    }

    /// Detaches from the devices that `leaves` selects, and returns them.
    pub fn detach_from(&mut self, leaves: impl Fn(u32) -> bool) -> Vec<u32> {
        self.detachments.retain(|ifindex, _| !leaves(*ifindex));
        let left = self.attached.extract_if(.., |ifindex, _| leaves(*ifindex));
        left.map(|(ifindex, _)| ifindex).collect()
    }

    /// Detaches everywhere.
    pub fn clear(&mut self) {
        self.detachments.clear();
        self.attached.clear();
    }

    pub fn contains(&self, ifindex: u32) -> bool {
        self.attached.contains_key(&ifindex)
    }

    pub fn devices(&self) -> impl Iterator<Item = u32> + '_ {
        self.attached.keys().copied()
    }

    /// Puts the program of `other` in the place of this one's on a device, which stays this one's until
    /// [`Self::adopt`]. Each frame meets one of both.
    ///
    /// # Errors
    /// As [`Attachment::replace`].
    pub fn replace(&self, ifindex: u32, other: &Self) -> Result<(), Error> {
        match self.attached.get(&ifindex) {
            Some(attached) => attached.replace(other.program.as_fd()),
            None => Ok(()),
        }
    }

    /// Takes over the devices of another, whose program was replaced by this one's everywhere.
    pub fn adopt(&mut self, before: &mut Self) {
        self.attached.append(&mut before.attached);
    }
}
