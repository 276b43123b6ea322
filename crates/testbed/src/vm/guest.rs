//! A running guest: its routing tables, its files, and the taps that plug it into links.

use std::fmt::Display;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use netdev::{LinkSpec, Netlink};
use sys::netns::Namespace;

use super::machine::{Machine, tap};
use super::machines::MACHINES;
use crate::error::{Error, at};
use crate::pool;

const LOOPBACK: u32 = 1;

/// A guest whose ends of links are its own devices.
#[derive(Debug)]
pub struct Guest {
    /// There until dropped.
    machine: Option<Machine>,
    /// Where each of its taps is, from the first.
    plugged: Mutex<Vec<(Namespace, String)>>,
}

impl Guest {
    pub(super) fn new(machine: Machine) -> Self {
        Self {
            machine: Some(machine),
            plugged: Mutex::default(),
        }
    }

    /// Its routing tables.
    pub(crate) fn netlink(&self) -> Netlink {
        Netlink::over(Box::new(self.machine().agent.carrier()))
    }

    /// Writes a file of the guest, such as a setting of its kernel.
    pub(crate) fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        self.machine().agent.write(path, 0o644, text.as_bytes())
    }

    /// Writes several files; an error comes with the place of the file among them.
    pub(crate) fn write_all(&self, files: &[(&Path, &str)]) -> Result<(), (usize, io::Error)> {
        self.machine().agent.write_all(files)
    }

    /// Reads a file of the guest.
    pub(crate) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.machine().agent.read(path)
    }

    pub(crate) fn pause(&self) -> Result<(), Error> {
        self.machine().pause().map_err(|error| self.error(&error))
    }

    pub(crate) fn resume(&self) -> Result<(), Error> {
        self.machine().resume().map_err(|error| self.error(&error))
    }

    fn error(&self, what: &dyn Display) -> Error {
        Error::Guest {
            name: self.machine().kernel.clone(),
            what: what.to_string(),
        }
    }

    /// How many CPUs it has.
    pub(crate) fn cpus(&self) -> usize {
        self.machine().shape.count()
    }

    /// Plugs its next device into a link: `outer` is what the tap becomes in `place`, `inner` what the
    /// device becomes in the guest, where it stays down.
    pub(crate) fn plug(
        &self,
        place: &Namespace,
        outer_name: &str,
        outer: LinkSpec<'_>,
        inner: &LinkSpec<'_>,
    ) -> Result<(), Error> {
        let mut plugged = self.plugged();
        let number = plugged.len();
        let link = self.device(number)?;
        self.netlink()
            .set_link(link, inner)
            .map_err(at("a virtual machine"))?;
        let port = (place.try_clone()?, outer_name.to_owned());
        let home = self.machine().network.namespace();
        home.run(|| {
            let mut netlink = Netlink::new()?;
            let tap = netlink.link_by_name(&tap(number))?.index;
            netlink.set_link(tap, &outer.namespace(place.as_fd()))
        })?
        .map_err(at(outer_name))?;
        plugged.push(port);
        Ok(())
    }

    /// The index, in the guest, of its device of this number.
    fn device(&self, number: usize) -> Result<u32, Error> {
        let links = self.netlink().links().map_err(at("a virtual machine"))?;
        let mut devices: Vec<u32> = links.iter().map(|link| link.index).collect();
        devices.retain(|&index| index != LOOPBACK);
        devices.sort_unstable();
        let device = devices.get(number).copied();
        device.ok_or_else(|| self.error(&format_args!("it has no device {number}")))
    }

    /// Takes its taps out of their links: a namespace that ends would destroy them.
    pub(crate) fn unplug(&self) -> Result<(), Error> {
        let home = self.machine().network.namespace();
        for (number, (place, name)) in self.plugged().drain(..).enumerate() {
            place
                .run(|| {
                    let mut netlink = Netlink::new()?;
                    let index = netlink.link_by_name(&name)?.index;
                    let tap = tap(number);
                    let spec = LinkSpec::new(&tap).down();
                    netlink.set_link(index, &spec.namespace(home.as_fd()))
                })?
                .map_err(at(&name))?;
        }
        Ok(())
    }

    /// Undoes the settings of a bed, and ends its programs.
    fn reset(&self) -> Result<(), Error> {
        self.unplug()?;
        let cleared = self.machine().agent.clear();
        cleared.map_err(|error| self.error(&error))?;
        let mut netlink = self.netlink();
        let mut undo = || {
            for address in netlink.addresses()? {
                if address.ifindex != LOOPBACK {
                    netlink.delete_address(address.ifindex, address.address, address.prefix_len)?;
                }
            }
            for link in netlink.links()? {
                if !link.loopback {
                    let name = format!("port{}", link.index);
                    // A device that is up keeps its name.
                    netlink.set_link(link.index, &LinkSpec::unnamed().down())?;
                    netlink.set_link(link.index, &LinkSpec::new(&name))?;
                }
            }
            Ok(())
        };
        undo().map_err(at("a virtual machine"))
    }

    pub(super) fn machine(&self) -> &Machine {
        self.machine.as_ref().expect("it is there until dropped")
    }

    fn plugged(&self) -> MutexGuard<'_, Vec<(Namespace, String)>> {
        self.plugged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let clean = pool::is_held()
            && self
                .reset()
                .inspect_err(|error| tracing::warn!("{error}"))
                .is_ok();
        // A machine that cannot be paused ends here.
        if let Some(machine) = self.machine.take()
            && clean
            && machine.pause().is_ok()
        {
            MACHINES.put(machine);
        }
    }
}
