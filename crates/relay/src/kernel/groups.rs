//! Versions of groups: each change of a stream's subscribers writes a new one into a free slot, and
//! the old one is written again only when no CPU can still read it.
//!
//! Slots keep their devmap. Giving a slot one makes the kernel wait for a grace period, so slots
//! get theirs ahead of need, and taking effect is a few map writes.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use bpf::Map;
use datapath::Error;
use libbpf_rs::libbpf_sys::{self, bpf_devmap_val, bpf_devmap_val__bindgen_ty_1 as DevmapProgram};
use libbpf_rs::{MapHandle, MapType};
use netdev::{Netlink, NextHop};

use super::entries::{self, Device, MAX_DEVICES, MAX_GROUP_DEVICES};
use super::skel::types;
use crate::counters::DropReason;
use crate::plan::{MAX_FANOUT, Subscriber};

/// Free slots of a size kept ready: so many changes take effect at once without a wait.
const SPARE: usize = 2;

#[derive(Debug)]
pub(super) struct Groups {
    groups: Map<u32, types::group>,
    members: Map<u32, types::member>,
    broadcast: Option<Broadcast>,
    free: Vec<Slot>,
    retired: Vec<Slot>,
    unused: Vec<u32>,
    devices: BTreeMap<u32, DeviceSlot>,
}

/// An egress device's place among the cursors of broadcasts.
#[derive(Clone, Copy, Debug)]
struct DeviceSlot {
    number: u16,
    /// Versions of groups that a program may read and that leave by the device.
    versions: usize,
}

/// The resources of a broadcast: the map of devmaps, and the egress program of each copy.
#[derive(Debug)]
pub(crate) struct Broadcast {
    pub(crate) devmaps: Map<u32, i32>,
    pub(crate) egress: OwnedFd,
}

/// A subscriber, and how it is sent to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member<'a> {
    pub subscriber: &'a Subscriber,
    /// Why it is not sent to.
    pub refused: Option<DropReason>,
    /// The last copy may go to the other end of its veth directly.
    pub direct: bool,
}

impl Member<'_> {
    /// The device that copies for it leave by.
    pub(super) fn egress(&self) -> Option<u32> {
        egress(self.subscriber).filter(|_| self.refused.is_none())
    }
}

/// A place for one version of a group.
#[derive(Debug)]
pub(super) struct Slot {
    pub index: u32,
    /// Members it has room for.
    capacity: usize,
    devmap: Option<Map<u32, bpf_devmap_val>>,
    /// Keys of the devmap in use.
    filled: usize,
    /// The devices that its members leave by.
    devices: Vec<u32>,
}

impl Groups {
    /// `broadcast`: for programs that broadcast.
    pub(super) fn new(
        groups: Map<u32, types::group>,
        members: Map<u32, types::member>,
        broadcast: Option<Broadcast>,
    ) -> Self {
        Self {
            unused: (0..groups.max_entries()).rev().collect(),
            groups,
            members,
            broadcast,
            free: Vec::new(),
            retired: Vec::new(),
            devices: BTreeMap::new(),
        }
    }

    /// Whether one more device may be among those that a stream leaves by; `devices` are the others. Only broadcasts
    /// have to tell devices apart.
    pub(super) fn admits(&mut self, ifindex: u32, devices: &BTreeSet<u32>) -> Result<bool, Error> {
        if self.broadcast.is_none() || devices.contains(&ifindex) {
            return Ok(true);
        }
        if devices.len() >= MAX_GROUP_DEVICES {
            return Ok(false);
        }
        if !self.devices.contains_key(&ifindex) && self.free_device_slot().is_none() {
            self.reclaim()?;
        }
        let others = devices
            .iter()
            .filter(|device| !self.devices.contains_key(device));
        let free = usize::from(MAX_DEVICES) - self.devices.len();
        Ok(self.devices.contains_key(&ifindex) || free > others.count())
    }

    /// Writes a version with these members, which no program reads before its index is told.
    /// Those with a reason get nothing but a count of it.
    pub(super) fn write(&mut self, stream: u32, members: &[Member<'_>]) -> Result<Slot, Error> {
        let (mut ready, refused): (Vec<Member<'_>>, Vec<_>) =
            members.iter().partition(|member| member.egress().is_some());
        ready.sort_by_key(Member::egress);
        let ifindexes: Vec<u32> = ready.iter().filter_map(Member::egress).collect();
        let (sent_to, all) = (count(ready.len()), count(members.len()));
        let mut slot = self.take(capacity(ready.len()))?;
        let members = [ready.as_slice(), &refused].concat();
        let written = self
            .devices_of(&mut slot, &ifindexes)
            .map(|devices| entries::group(stream, sent_to, all, &devices))
            .and_then(|group| {
                self.write_members(&slot, &members)?;
                self.write_devmap(&mut slot, &ifindexes)?;
                Ok(self.groups.set(&slot.index, &group)?)
            });
        match written {
            Ok(()) => Ok(slot),
            Err(error) => {
                self.retire(slot);
                Err(error)
            }
        }
    }

    /// Puts away a version that was replaced.
    pub(super) fn retire(&mut self, slot: Slot) {
        self.retired.push(slot);
    }

    /// Sees to it that the next few changes to a group of `members` find a slot. May wait.
    pub(super) fn provide(&mut self, members: usize) -> Result<(), Error> {
        for capacity in [capacity(members), capacity(members + 1)] {
            let spare = self.spare(capacity);
            // A new devmap takes a grace period as well, and would stay for good.
            if spare == 0 || (self.broadcast.is_some() && spare < SPARE) {
                self.reclaim()?;
            }
            while self.spare(capacity) < SPARE {
                let Some(index) = self.unused.pop() else {
                    return Ok(());
                };
                let slot = self.equip(index, capacity)?;
                self.free.push(slot);
            }
        }
        Ok(())
    }

    /// The free slots of a size.
    fn spare(&self, capacity: usize) -> usize {
        let free = self.free.iter();
        free.filter(|slot| slot.capacity == capacity).count()
    }

    fn take(&mut self, capacity: usize) -> Result<Slot, Error> {
        let fits = |free: &[Slot]| free.iter().position(|slot| slot.capacity == capacity);
        if let Some(at) = fits(&self.free) {
            return Ok(self.free.swap_remove(at));
        }
        self.reclaim()?;
        if let Some(at) = fits(&self.free) {
            return Ok(self.free.swap_remove(at));
        }
        let index = self
            .unused
            .pop()
            .or_else(|| self.free.pop().map(|slot| slot.index));
        let index = index.ok_or_else(|| {
            Error::Plan(format!(
                "more than {} groups; the fast path has no room",
                self.groups.max_entries()
            ))
        })?;
        self.equip(index, capacity)
    }

    /// Makes retired slots free, after a grace period.
    fn reclaim(&mut self) -> Result<(), Error> {
        if self.retired.is_empty() {
            return Ok(());
        }
        super::grace()?;
        for mut slot in mem::take(&mut self.retired) {
            if let Some(devmap) = &slot.devmap {
                for key in 0..count(slot.filled) {
                    // An entry whose device is gone has left by itself.
                    let _ = devmap.remove(&key);
                }
            }
            slot.filled = 0;
            for ifindex in mem::take(&mut slot.devices) {
                if let Some(device) = self.devices.get_mut(&ifindex) {
                    device.versions = device.versions.saturating_sub(1);
                }
            }
            self.free.push(slot);
        }
        self.devices.retain(|_, device| device.versions > 0);
        Ok(())
    }

    fn equip(&self, index: u32, capacity: usize) -> Result<Slot, Error> {
        let Some(broadcast) = &self.broadcast else {
            return Ok(Slot {
                index,
                capacity,
                devmap: None,
                filled: 0,
                devices: Vec::new(),
            });
        };
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
            ..Default::default()
        };
        let value_size = count(size_of::<bpf_devmap_val>());
        // As many keys as members: the kernel walks all of them for each datagram.
        let entries = count(capacity);
        let devmap = MapHandle::create(
            MapType::Devmap,
            Some("fanout"),
            4,
            value_size,
            entries,
            &options,
        )
        .map_err(|error| Error::failed("creating a devmap", error))?;
        let devmap = Map::from_handle(devmap)?;
        broadcast.devmaps.set_descriptor(&index, &devmap)?;
        Ok(Slot {
            index,
            capacity,
            devmap: Some(devmap),
            filled: 0,
            devices: Vec::new(),
        })
    }

    fn write_members(&self, slot: &Slot, members: &[Member<'_>]) -> Result<(), Error> {
        let first = slot.index * count(MAX_FANOUT);
        let members: Vec<types::member> = members.iter().map(entries::member).collect();
        self.members
            .set_range(first, &members)
            .map_err(|error| Error::failed("writing a group's members", error.source))
    }

    fn write_devmap(&self, slot: &mut Slot, ifindexes: &[u32]) -> Result<(), Error> {
        let (Some(broadcast), Some(devmap)) = (&self.broadcast, &slot.devmap) else {
            return Ok(());
        };
        for (key, ifindex) in (0u32..).zip(ifindexes) {
            let egress = bpf_devmap_val {
                ifindex: *ifindex,
                bpf_prog: DevmapProgram {
                    fd: broadcast.egress.as_raw_fd(),
                },
            };
            devmap.set(&key, &egress)?;
        }
        slot.filled = ifindexes.len();
        Ok(())
    }

    /// The runs of equal devices in `ifindexes`, which a slot's version leaves by.
    fn devices_of(&mut self, slot: &mut Slot, ifindexes: &[u32]) -> Result<Vec<Device>, Error> {
        let mut devices: Vec<Device> = Vec::new();
        let mut first = 0;
        for run in ifindexes.chunk_by(|a, b| a == b) {
            let length = u16::try_from(run.len()).unwrap_or(u16::MAX);
            let number = if self.broadcast.is_some() {
                let number = self.device_slot(run[0])?;
                slot.devices.push(run[0]);
                number
            } else {
                0
            };
            devices.push(Device {
                ifindex: run[0],
                mtu: device_mtu(run[0]),
                slot: number,
                first,
                count: length,
            });
            first += length;
        }
        Ok(devices)
    }

    /// The place of a device for one more version that leaves by it.
    fn device_slot(&mut self, ifindex: u32) -> Result<u16, Error> {
        let free = self.free_device_slot();
        if let Some(device) = self.devices.get_mut(&ifindex) {
            device.versions += 1;
            return Ok(device.number);
        }
        let number = free.ok_or_else(|| {
            Error::Plan(format!(
                "a fast path sends by at most {MAX_DEVICES} devices"
            ))
        })?;
        let device = DeviceSlot {
            number,
            versions: 1,
        };
        self.devices.insert(ifindex, device);
        Ok(number)
    }

    fn free_device_slot(&self) -> Option<u16> {
        let used: BTreeSet<u16> = self.devices.values().map(|device| device.number).collect();
        (0..MAX_DEVICES).find(|number| !used.contains(number))
    }
}

/// The device a ready next hop leaves by.
pub(super) fn egress(subscriber: &Subscriber) -> Option<u32> {
    match subscriber.next_hop {
        NextHop::Ready { ifindex, .. } => Some(ifindex),
        NextHop::Unresolved(_) => None,
    }
}

/// The device's own MTU. One that is gone refuses every frame by itself, whatever is said here.
fn device_mtu(ifindex: u32) -> u32 {
    Netlink::new()
        .and_then(|mut netlink| netlink.link_by_index(ifindex))
        .map_or(65535, |link| link.mtu)
}

fn capacity(members: usize) -> usize {
    members.clamp(1, MAX_FANOUT).next_power_of_two()
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
