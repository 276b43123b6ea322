//! Virtual machines: which one a host lives in, how its links are plugged in, and how long it is kept.
//!
//! A guest takes seconds to boot, emulated ones ten: it is kept from one bed to the next while somebody
//! holds [`crate::Kept`]. What a bed set in it is undone by [`Guest::reset`]; one that does not answer is not kept.

mod accelerator;
mod contained;
mod machine;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use boot::{Flavour, Kernel};
use datapath::Missing;
use netdev::{LinkSpec, Netlink};
use serde_json::{Value, json};
use sys::netns::Namespace;

use self::accelerator::Accelerator;
pub(crate) use self::accelerator::{kvm, vhost};
pub(crate) use self::contained::KIND as OCI_KIND;
pub(crate) use self::machine::Machine;
use self::machine::Shape;
use crate::Error;
use crate::clean;
use crate::environment::{Child, Environment, Kind, Network, Program, Wanted, find, root};
use crate::error::at;
use crate::kept::{self, Waiting};
use crate::served::{self, Served};
use crate::topology::HostSpec;

pub(crate) const KIND: Kind = Kind {
    name: "vm",
    guest: true,
    probe: || probe(Flavour::Cloud),
    look,
    up: |wanted| up(Flavour::Cloud, wanted),
};

pub(crate) const RT_KIND: Kind = Kind {
    name: "vm-rt",
    guest: true,
    probe: || probe(Flavour::Rt),
    look,
    up: |wanted| up(Flavour::Rt, wanted),
};

/// A guest that is emulated may take so long to boot beside other work.
const BOOT: Duration = Duration::from_secs(90);
const LOOPBACK: u32 = 1;

/// Those that wait for their next bed.
pub(crate) static WAITING: Waiting<Machine> = Waiting::new();

fn probe(flavour: Flavour) -> Result<(), Missing> {
    look()?;
    Kernel::available(flavour)
        .map(drop)
        .map_err(|error| Missing::new(format!("no kernel for a guest: {error}"), "apt-get update"))
}

/// Whether there is what a guest needs beside a kernel, which is got when it is wanted.
fn look() -> Result<(), Missing> {
    root()?;
    if find(Path::new("qemu-system-x86_64")).is_none() {
        let what = "virtual machines need qemu-system-x86_64";
        return Err(Missing::new(what, "apt-get install qemu-system-x86"));
    }
    if !Path::new("/dev/net/tun").exists() {
        return Err(Missing::new("there is no /dev/net/tun", "modprobe tun"));
    }
    served::agent().map(drop)
}

fn up(flavour: Flavour, wanted: Wanted<'_>) -> Result<Box<dyn Environment>, Error> {
    Ok(Box::new(Vm::up(flavour, wanted)?))
}

/// Whether there is room for a virtual machine's memory in this machine's huge pages.
pub fn huge_pages() -> Result<(), Missing> {
    let pages = machine::MEMORY / 2;
    let told = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let number = |name| {
        let line = told.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u32>().ok()
    };
    match (number("Hugepagesize:"), number("HugePages_Free:")) {
        (Some(2048), Some(free)) if free >= pages => Ok(()),
        (Some(2048), free) => Err(Missing::new(
            format!(
                "{} of {pages} huge pages of 2 MiB are free",
                free.unwrap_or(0)
            ),
            format!("sysctl vm.nr_hugepages={pages}"),
        )),
        _ => Err(Missing::new(
            "this machine's huge pages are none of 2 MiB",
            "leave the arm out",
        )),
    }
}

impl Vm {
    fn up(flavour: Flavour, wanted: Wanted<'_>) -> Result<Self, Error> {
        let shape = Shape {
            flavour,
            cpus: wanted.cpus.to_vec(),
            links: wanted.links,
            huge_pages: wanted.huge_pages,
        };
        let machine = match take(&shape) {
            Some(machine) => machine,
            None => boot(shape)?,
        };
        Ok(Self {
            guest: Guest {
                machine: Some(machine),
                plugged: Mutex::default(),
            },
        })
    }
}

fn boot(shape: Shape) -> Result<Machine, Error> {
    probe(shape.flavour)?;
    Machine::boot(shape, Accelerator::usable(), &clean::unique("vm"), BOOT)
}

/// Boots the virtual machines that these hosts will want, each with so many links, all at once and each kind once:
/// they wait for the beds to come while somebody holds [`crate::Kept`]. Of one that does not boot its bed tells.
pub fn boot_ahead<'a>(hosts: impl IntoIterator<Item = &'a HostSpec>, links: usize) {
    let mut shapes: Vec<Shape> = Vec::new();
    for host in hosts {
        let Some(flavour) = flavour(&host.env) else {
            continue;
        };
        let shape = Shape {
            flavour,
            cpus: host.cpus.clone(),
            links,
            huge_pages: host.huge_pages,
        };
        if !shapes.contains(&shape) {
            shapes.push(shape);
        }
    }
    thread::scope(|scope| {
        for shape in shapes {
            scope.spawn(|| match boot(shape).and_then(asleep) {
                Ok(machine) => WAITING.keep(machine),
                Err(error) => tracing::debug!("{error}"),
            });
        }
    });
}

fn asleep(machine: Machine) -> Result<Machine, Error> {
    machine.sleep().map_err(|error| Error::Guest {
        name: machine.kernel.clone(),
        what: error.to_string(),
    })?;
    Ok(machine)
}

/// Of the kind of environment that is called so.
fn flavour(env: &str) -> Option<Flavour> {
    let kinds = [
        (KIND.name, Flavour::Cloud),
        (OCI_KIND.name, Flavour::Cloud),
        (RT_KIND.name, Flavour::Rt),
    ];
    let found = kinds.into_iter().find(|(name, _)| *name == env);
    found.map(|(_, flavour)| flavour)
}

/// The name that the guest's tap of this number has while it is not plugged in.
fn tap(number: usize) -> String {
    format!("tap{number}")
}

/// A host's virtual machine.
#[derive(Debug)]
struct Vm {
    guest: Guest,
}

impl Environment for Vm {
    fn network(&self) -> &Network {
        &self.guest.machine().network
    }

    fn start(&self, program: Program) -> io::Result<Child> {
        self.guest.machine().start(program)
    }

    fn guest(&self) -> Option<&Guest> {
        Some(&self.guest)
    }

    fn served(&self) -> Option<&Served> {
        Some(&self.guest.machine().served)
    }

    fn facts(&self) -> BTreeMap<&'static str, Value> {
        let machine = self.guest.machine();
        BTreeMap::from([
            ("kernel", json!(machine.kernel)),
            ("accelerator", json!(machine.accelerator.name())),
            ("vhost", json!(machine.vhost)),
            ("emulated", json!(machine.accelerator == Accelerator::Tcg)),
            ("huge_pages", json!(machine.shape.huge_pages)),
            ("ready_after_s", json!(machine.ready_after.as_secs_f64())),
        ])
    }
}

/// A guest whose ends of links are its own devices.
#[derive(Debug)]
pub struct Guest {
    /// There until dropped.
    machine: Option<Machine>,
    /// Where each of its taps is, from the first.
    plugged: Mutex<Vec<(Namespace, String)>>,
}

impl Guest {
    /// Its routing tables.
    pub(crate) fn netlink(&self) -> Netlink {
        Netlink::over(Box::new(self.machine().served.carrier()))
    }

    /// Writes what a file of it says, such as a setting of its kernel.
    pub(crate) fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        self.machine().served.write(path, 0o644, text.as_bytes())
    }

    /// The same of several.
    pub(crate) fn write_all(&self, files: &[(&Path, &str)]) -> Result<(), (usize, io::Error)> {
        self.machine().served.write_all(files)
    }

    /// What a file of it says.
    pub(crate) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.machine().served.read(path)
    }

    pub(crate) fn sleep(&self) -> Result<(), Error> {
        self.machine().sleep().map_err(|error| self.strange(&error))
    }

    pub(crate) fn wake(&self) -> Result<(), Error> {
        self.machine().wake().map_err(|error| self.strange(&error))
    }

    fn strange(&self, what: &dyn Display) -> Error {
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
        let kept = (place.try_clone()?, outer_name.to_owned());
        let home = self.machine().network.namespace();
        home.run(|| {
            let mut netlink = Netlink::new()?;
            let tap = netlink.link_by_name(&tap(number))?.index;
            netlink.set_link(tap, &outer.namespace(std::os::fd::AsFd::as_fd(place)))
        })?
        .map_err(at(outer_name))?;
        plugged.push(kept);
        Ok(())
    }

    /// The index, in the guest, of its device of this number.
    fn device(&self, number: usize) -> Result<u32, Error> {
        let links = self.netlink().links().map_err(at("a virtual machine"))?;
        let mut devices: Vec<u32> = links.iter().map(|link| link.index).collect();
        devices.retain(|&index| index != LOOPBACK);
        devices.sort_unstable();
        let device = devices.get(number).copied();
        device.ok_or_else(|| self.strange(&format_args!("it has no device {number}")))
    }

    /// Takes its taps out of their links: a namespace that ends takes with it what is inside.
    pub(crate) fn unplug(&self) -> Result<(), Error> {
        let home = self.machine().network.namespace();
        for (number, (place, name)) in self.plugged().drain(..).enumerate() {
            place
                .run(|| {
                    let mut netlink = Netlink::new()?;
                    let index = netlink.link_by_name(&name)?.index;
                    let tap = tap(number);
                    let spec = LinkSpec::new(&tap).down();
                    netlink.set_link(index, &spec.namespace(std::os::fd::AsFd::as_fd(home)))
                })?
                .map_err(at(&name))?;
        }
        Ok(())
    }

    /// Undoes what a bed set in it, and ends what it started.
    fn reset(&self) -> Result<(), Error> {
        self.unplug()?;
        let cleared = self.machine().served.clear();
        cleared.map_err(|error| self.strange(&error))?;
        let mut netlink = self.netlink();
        let undo = || {
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
        let mut undo = undo;
        undo().map_err(at("a virtual machine"))
    }

    fn machine(&self) -> &Machine {
        self.machine.as_ref().expect("it is there until dropped")
    }

    fn plugged(&self) -> MutexGuard<'_, Vec<(Namespace, String)>> {
        self.plugged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let clean = kept::wanted()
            && self
                .reset()
                .inspect_err(|error| tracing::warn!("{error}"))
                .is_ok();
        // Who asleep cannot be woken is of no use: it ends here.
        if let Some(machine) = self.machine.take()
            && clean
            && machine.sleep().is_ok()
        {
            WAITING.keep(machine);
        }
    }
}

/// One that waits and still answers.
fn take(shape: &Shape) -> Option<Machine> {
    loop {
        let machine = WAITING.take(|machine| machine.shape == *shape)?;
        if machine.wake().is_ok() && machine.served.ping().is_ok() {
            return Some(machine);
        }
    }
}
