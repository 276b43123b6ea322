//! What traffic control does with the packets of a device: programs and filters of others, and queueing disciplines.

use std::collections::{BTreeMap, BTreeSet};
use std::{fmt, io};

use netlink_sys::protocols::NETLINK_ROUTE;

use super::Verdict;
use super::dump::{Client, is_absent};
use super::nftables::attribute::{find, string};
use crate::attach::{Direction, tcx_programs};
use crate::{Error, Link, Netlink, clsact, program};

/// Disciplines that the kernel or a distribution gives every device. They order packets and drop what does not fit.
const ORDINARY: [&str; 6] = ["noqueue", "noop", "pfifo_fast", "pfifo", "bfifo", "mq"];
/// How often a dump that a change interrupts is begun again.
const ATTEMPTS: usize = 8;

/// Reads the traffic control of the network namespace in which it was made.
pub(super) struct Reader {
    client: Client,
    netlink: Netlink,
    /// Devices that were read, each time counted.
    device_reads: u64,
}

/// The traffic control of a network namespace at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TrafficControl {
    /// What decides about packets, by index of the device.
    ingress: BTreeMap<u32, String>,
    egress: BTreeMap<u32, String>,
    /// The devices by which packets of a VLAN device, a bridge or a bond come and go.
    below: BTreeMap<u32, Vec<u32>>,
}

/// A discipline of a device.
enum Discipline {
    /// Where filters are: no queue. One called `ingress` has none for what leaves.
    Filters {
        is_shared: bool,
        has_egress: bool,
    },
    Queue(String),
    /// `fq_codel`, which may have filters that classify and drop.
    FairQueue {
        handle: u32,
    },
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl Reader {
    /// Opens sockets in the calling thread's namespace.
    pub(super) fn open() -> Result<Self, Error> {
        Ok(Self {
            client: Client::new(NETLINK_ROUTE).map_err(Error::Socket)?,
            netlink: Netlink::new()?,
            device_reads: 0,
        })
    }

    pub(super) fn device_reads(&self) -> u64 {
        self.device_reads
    }

    /// Reads what is on these links. Given `known`, it reads again only what is on these devices and those below them.
    pub(super) fn read(
        &mut self,
        links: &[Link],
        known: Option<(&TrafficControl, &BTreeSet<u32>)>,
    ) -> Result<TrafficControl, Error> {
        let mut control = TrafficControl::default();
        for link in links {
            if let (Some(_), Some(lower)) = (link.vlan, link.link) {
                control.below.entry(link.index).or_default().push(lower);
            }
            if let Some(controller) = link.controller {
                let ports = control.below.entry(controller).or_default();
                ports.push(link.index);
            }
        }
        let read_again = known.map(|(before, devices)| (before, control.with_lower(devices)));
        let disciplines = self.disciplines()?;
        for link in links {
            if let Some((before, devices)) = &read_again
                && !devices.contains(&link.index)
            {
                control.keep(before, link.index);
                continue;
            }
            self.device_reads += 1;
            let of_link = disciplines.iter().filter(|(index, _)| *index == link.index);
            let of_link: Vec<&Discipline> = of_link.map(|(_, discipline)| discipline).collect();
            for direction in [Direction::Ingress, Direction::Egress] {
                if let Some(what) = self.decides(link, direction, &of_link)? {
                    let what = format!("{what} of {}", link.name);
                    control.side_mut(direction).insert(link.index, what);
                }
            }
        }
        Ok(control)
    }

    /// The first thing that decides about packets on one side of a device.
    fn decides(
        &mut self,
        link: &Link,
        direction: Direction,
        disciplines: &[&Discipline],
    ) -> Result<Option<String>, Error> {
        let ids = match tcx_programs(link.index, direction) {
            Ok(ids) => ids,
            // A kernel without tcx has nothing attached by it, and a device that is gone neither.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENODEV)) => {
                Vec::new()
            }
            Err(error) => return Err(Error::refused("listing tcx programs", error)),
        };
        for id in ids {
            if !program::is_own(id) {
                let name = program::name(id).unwrap_or_else(|| id.to_string());
                return Ok(Some(format!("the tc program {name}")));
            }
        }
        for discipline in disciplines {
            let what = match discipline {
                Discipline::Filters {
                    has_egress: false, ..
                } if direction == Direction::Egress => continue,
                Discipline::Filters {
                    is_shared: true, ..
                } => "a shared block of filters".to_owned(),
                Discipline::Filters { .. } => {
                    match clsact::foreign(&mut self.netlink, link.index, direction)? {
                        Some(kind) => format!("a tc filter ({kind})"),
                        None => continue,
                    }
                }
                Discipline::Queue(kind) if direction == Direction::Egress => {
                    format!("the queueing discipline {kind}")
                }
                Discipline::FairQueue { handle } if direction == Direction::Egress => {
                    if !self.has_filters(link.index, *handle)? {
                        continue;
                    }
                    "filters of the queueing discipline fq_codel".to_owned()
                }
                Discipline::Queue(_) | Discipline::FairQueue { .. } => continue,
            };
            return Ok(Some(what));
        }
        Ok(None)
    }

    /// Whether a discipline has filters of its own.
    fn has_filters(&mut self, ifindex: u32, handle: u32) -> Result<bool, Error> {
        /// `RTM_GETTFILTER`
        const GET: u16 = 46;
        // One without a handle can be no filter's parent.
        if handle == 0 {
            return Ok(false);
        }
        // `struct tcmsg`: family and padding, device, handle, parent, information.
        let request = [0, ifindex, 0, handle, 0].map(u32::to_ne_bytes).concat();
        match self.client.dump(GET, &request) {
            Ok(filters) => Ok(!filters.is_empty()),
            // The device or the discipline is gone.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EINVAL)) => {
                Ok(false)
            }
            Err(error) => Err(Error::refused("listing tc filters", error)),
        }
    }

    /// Those that are not ordinary, with the devices that they are on.
    fn disciplines(&mut self) -> Result<Vec<(u32, Discipline)>, Error> {
        /// `RTM_GETQDISC`
        const GET: u16 = 38;
        /// `struct tcmsg` of any device
        const REQUEST: [u8; 20] = [0; 20];
        let action = "listing queueing disciplines";
        for _ in 0..ATTEMPTS {
            match self.client.dump(GET, &REQUEST) {
                Ok(objects) => {
                    let read = |body: &Vec<u8>| Discipline::read(body);
                    return Ok(objects.iter().filter_map(read).collect());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A kernel without traffic control.
                Err(error) if is_absent(&error) => return Ok(Vec::new()),
                Err(error) => return Err(Error::refused(action, error)),
            }
        }
        let cause = io::Error::other("they change faster than they can be read");
        Err(Error::refused(action, cause))
    }
}

impl Discipline {
    /// `struct tcmsg` (family, padding, device, handle, parent, information) and its attributes (`TCA_*`).
    fn read(body: &[u8]) -> Option<(u32, Self)> {
        const HEADER: usize = 20;
        const KIND: u16 = 1;
        const INGRESS_BLOCK: u16 = 13;
        const EGRESS_BLOCK: u16 = 14;
        let ifindex = u32::from_ne_bytes(*body.get(4..)?.first_chunk()?);
        let attributes = body.get(HEADER..)?;
        let kind = string(attributes, KIND)?;
        let is_shared = [INGRESS_BLOCK, EGRESS_BLOCK]
            .into_iter()
            .any(|block| find(attributes, block).is_some());
        match kind.as_str() {
            "clsact" | "ingress" => {
                let has_egress = kind == "clsact";
                let filters = Self::Filters {
                    is_shared,
                    has_egress,
                };
                Some((ifindex, filters))
            }
            ordinary if ORDINARY.contains(&ordinary) => None,
            "fq_codel" => {
                let handle = u32::from_ne_bytes(*body.get(8..)?.first_chunk()?);
                Some((ifindex, Self::FairQueue { handle }))
            }
            "fq" if !limits_rate(attributes) => None,
            _ => Some((ifindex, Self::Queue(kind))),
        }
    }
}

/// Whether `fq` limits the rate of each flow (`TCA_FQ_FLOW_MAX_RATE`).
fn limits_rate(attributes: &[u8]) -> bool {
    const OPTIONS: u16 = 2;
    const MAX_RATE: u16 = 7;
    let rate = find(attributes, OPTIONS).and_then(|options| find(options, MAX_RATE));
    rate.is_some_and(|rate| rate.iter().any(|byte| *byte != 0xff))
}

impl TrafficControl {
    pub(super) fn is_empty(&self) -> bool {
        self.ingress.is_empty() && self.egress.is_empty()
    }

    /// What it does with packets on one side of a device and of those below it.
    pub(super) fn at(&self, direction: Direction, ifindex: u32) -> Verdict {
        let side = self.side(direction);
        let devices = self.with_lower(&BTreeSet::from([ifindex]));
        match devices.iter().find_map(|device| side.get(device)) {
            Some(what) => Verdict::Kernel(what.clone()),
            None => Verdict::Accept,
        }
    }

    /// These devices and all below them.
    fn with_lower(&self, devices: &BTreeSet<u32>) -> BTreeSet<u32> {
        let mut waiting: Vec<u32> = devices.iter().copied().collect();
        let mut found = BTreeSet::new();
        while let Some(ifindex) = waiting.pop() {
            if found.insert(ifindex) {
                waiting.extend(self.below.get(&ifindex).into_iter().flatten());
            }
        }
        found
    }

    /// Takes over what was on a device.
    fn keep(&mut self, before: &Self, ifindex: u32) {
        for direction in [Direction::Ingress, Direction::Egress] {
            if let Some(what) = before.side(direction).get(&ifindex) {
                self.side_mut(direction).insert(ifindex, what.clone());
            }
        }
    }

    fn side(&self, direction: Direction) -> &BTreeMap<u32, String> {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        }
    }

    fn side_mut(&mut self, direction: Direction) -> &mut BTreeMap<u32, String> {
        match direction {
            Direction::Ingress => &mut self.ingress,
            Direction::Egress => &mut self.egress,
        }
    }
}
