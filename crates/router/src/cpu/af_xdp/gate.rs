//! Which packets threads forward and which are the kernel's, as threads read it for each packet.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::forward::Family;
use crate::policy::{Pair, Place, Restraint};

/// A bit for each family, IPv4's first.
#[derive(Debug)]
pub(super) struct Gate {
    devices: Vec<u32>,
    /// Of each device that packets come by, those of the devices that they may leave by; then those whose VLANs they may
    /// leave by.
    fast: Vec<AtomicU8>,
    /// The kernel lacks rules that drop packets.
    sole_filter: AtomicU8,
}

impl Gate {
    /// Everything is forwarded.
    pub(super) fn new(devices: impl Iterator<Item = u32>) -> Self {
        let devices: Vec<u32> = devices.collect();
        let count = devices.len() * (devices.len() + 1);
        Self {
            devices,
            fast: (0..count).map(|_| AtomicU8::new(3)).collect(),
            sole_filter: AtomicU8::new(0),
        }
    }

    pub(super) fn set(&self, restraint: &Restraint) {
        self.sole_filter
            .store(bits(restraint.sole_filter), Ordering::Relaxed);
        let place = |ifindex| Place {
            ifindex,
            vlan: None,
        };
        for (row, from) in self.devices.iter().enumerate() {
            let port = restraint.of(place(*from));
            for (column, to) in self.devices.iter().enumerate() {
                let fast = [Family::V4, Family::V6].map(|family| {
                    restraint.is_fast(&Pair {
                        from: place(*from),
                        to: place(*to),
                        family,
                    })
                });
                self.at(row, column).store(bits(fast), Ordering::Relaxed);
            }
            let of_vlans = [0, 1].map(|family| !port.kernel[family] && !port.by_pair[family]);
            let column = self.devices.len();
            self.at(row, column)
                .store(bits(of_vlans), Ordering::Relaxed);
        }
    }

    /// Whether packets that come by one device and leave by another, or by one of its VLANs, are forwarded.
    #[inline]
    pub(super) fn is_open(&self, from: u32, to: u32, vlan: bool, family: Family) -> bool {
        let of = |ifindex| self.devices.iter().position(|device| *device == ifindex);
        let (Some(row), Some(column)) = (of(from), of(to)) else {
            return false;
        };
        let column = if vlan { self.devices.len() } else { column };
        has(self.at(row, column), family)
    }

    /// Whether all packets of a family that come by a device are the kernel's.
    pub(super) fn is_kernels(&self, from: u32, family: Family) -> bool {
        !self
            .devices
            .iter()
            .any(|to| self.is_open(from, *to, false, family))
    }

    /// Whether the kernel lacks rules that drop packets of a family.
    #[inline]
    pub(super) fn is_sole_filter(&self, family: Family) -> bool {
        has(&self.sole_filter, family)
    }

    fn at(&self, row: usize, column: usize) -> &AtomicU8 {
        &self.fast[row * (self.devices.len() + 1) + column]
    }
}

fn bits(families: [bool; 2]) -> u8 {
    u8::from(families[0]) | u8::from(families[1]) << 1
}

fn has(bits: &AtomicU8, family: Family) -> bool {
    bits.load(Ordering::Relaxed) >> family as u8 & 1 != 0
}
