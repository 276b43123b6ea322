//! The interfaces that a fast path's program is attached to.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use datapath::Error;
use netdev::attach::{self, Attached, Direction};
use netdev::{Netlink, XdpMode};

/// A program and where it runs. Dropping it detaches.
#[derive(Debug)]
pub(crate) struct Attachments {
    name: &'static str,
    attach: Attach,
    attached: BTreeMap<u32, Attached>,
    program: OwnedFd,
}

type Attach = fn(BorrowedFd<'_>, u32) -> Result<Attached, netdev::Error>;

impl Attachments {
    /// In native XDP mode; nowhere yet. `name` is the datapath's.
    pub(crate) fn xdp(name: &'static str, program: OwnedFd) -> Self {
        Self::new(name, program, |program, ifindex| {
            attach::xdp(program, ifindex, XdpMode::Native)
        })
    }

    /// Where the network stack takes frames in; nowhere yet.
    pub(crate) fn tc(name: &'static str, program: OwnedFd) -> Self {
        Self::new(name, program, |program, ifindex| {
            attach::tc(program, ifindex, Direction::Ingress, attach::tc_via())
        })
    }

    fn new(name: &'static str, program: OwnedFd, attach: Attach) -> Self {
        Self {
            name,
            attach,
            attached: BTreeMap::new(),
            program,
        }
    }

    /// Attaches to those of these interfaces that are new, then detaches from all others.
    pub(crate) fn follow(&mut self, wanted: &BTreeSet<u32>) -> Result<(), Error> {
        for ifindex in wanted {
            if !self.attached.contains_key(ifindex) {
                let attached = (self.attach)(self.program.as_fd(), *ifindex).map_err(|error| {
                    Error::failed(format!("attaching the {} datapath", self.name), error)
                })?;
                self.attached.insert(*ifindex, attached);
            }
        }
        self.attached.retain(|ifindex, _| wanted.contains(ifindex));
        Ok(())
    }

    /// Which of the interfaces has disappeared, in words.
    pub(crate) fn gone(&self) -> Option<String> {
        let mut netlink = Netlink::new().ok()?;
        let mut interfaces = self.attached.keys();
        let index = interfaces.find(|index| netlink.link_by_index(**index).is_err())?;
        Some(format!("interface {index} has disappeared"))
    }

    /// Detaches everywhere.
    pub(crate) fn clear(&mut self) {
        self.attached.clear();
    }
}
