//! The BPF programs of a network: the router that asks the kernel's tables for each packet, and the
//! sink.

use std::mem::MaybeUninit;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, Result, ensure};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use netdev::XdpMode;
use netdev::attach::{self, Attachment};
use testbed::{Host, Interface};

use super::skel::{ForwardSkelBuilder, types};

const _: () = assert!(size_of::<types::flow_route>() == 12, "forward.bpf.c");
const _: () = assert!(size_of::<types::arrived>() == 32, "forward.bpf.c");

/// A flow's destination, and the link-layer address of the neighbour that its route names.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowRoute {
    pub(super) destination: Ipv4Addr,
    pub(super) neighbour: [u8; 6],
}

/// Packets that have come to the sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ArrivalCounts {
    pub(super) packets: u64,
    pub(super) looked_at: u64,
    pub(super) wrong: u64,
    pub(super) forbidden: u64,
}

/// Attached programs; dropping them detaches them.
#[derive(Debug)]
pub(super) struct Programs {
    arrivals: MapHandle,
    _attached: Vec<Attachment>,
}

/// Where programs are attached, and their settings.
pub(super) struct ProgramsSpec<'a> {
    pub(super) router: &'a Host,
    /// The device whose packets go by `bpf_fib_lookup`.
    pub(super) from: &'a Interface,
    pub(super) to: &'a Interface,
    pub(super) sink: &'a Host,
    pub(super) at: &'a Interface,
    pub(super) run: u32,
    pub(super) flow_routes: &'a [FlowRoute],
    /// The first of them, up to this number, pass every rule.
    pub(super) open: usize,
}

impl Programs {
    pub(super) fn attach(spec: &ProgramsSpec<'_>) -> Result<Self> {
        let mut storage = MaybeUninit::uninit();
        let mut open = ForwardSkelBuilder::default().open(&mut storage)?;
        let knobs = open.maps.rodata_data.as_deref_mut();
        let knobs = knobs.context("the program's settings")?;
        knobs.run_id = spec.run;
        knobs.allowed = u32::try_from(spec.open)?;
        knobs.router = spec.to.mac;
        let count = u32::try_from(spec.flow_routes.len())?;
        open.maps.flow_routes.set_max_entries(count)?;
        open.maps.devices.set_max_entries(spec.to.ifindex + 1)?;
        let skel = open.load()?;
        for (flow, flow_route) in (0_u32..).zip(spec.flow_routes) {
            let mut value = flow_route.destination.octets().to_vec();
            value.extend(flow_route.neighbour);
            value.extend([0, 0]);
            let flow = flow.to_ne_bytes();
            skel.maps.flow_routes.update(&flow, &value, MapFlags::ANY)?;
        }
        let device = spec.to.ifindex.to_ne_bytes();
        // Devices are those of the namespace that writes the map.
        let devices = MapHandle::try_from(&skel.maps.devices)?;
        if spec.router.guest().is_none() {
            spec.router
                .run(|| devices.update(&device, &device, MapFlags::ANY))?
                .context("naming the device to the sink")?;
        }
        let attach = |host: &Host, at: &Interface, program: BorrowedFd<'_>| {
            host.run(|| attach::xdp(program, at.ifindex, XdpMode::Native))
        };
        let mut attached = vec![attach(spec.sink, spec.at, skel.progs.sink.as_fd())??];
        // A guest's kernel takes no program from here, nor has it that router.
        if spec.router.guest().is_none() {
            let program = skel.progs.fib_forward.as_fd();
            attached.push(attach(spec.router, spec.from, program)??);
        }
        Ok(Self {
            arrivals: MapHandle::try_from(&skel.maps.arrivals)?,
            _attached: attached,
        })
    }

    /// Since the sink was attached.
    pub(super) fn arrived(&self) -> Result<ArrivalCounts> {
        let zero = 0_u32.to_ne_bytes();
        let per_cpu = self.arrivals.lookup_percpu(&zero, MapFlags::ANY)?;
        let per_cpu = per_cpu.context("the sink's counters")?;
        let sum = |at: usize| {
            let word = |cpu: &Vec<u8>| {
                let bytes = cpu.get(8 * at..8 * at + 8)?;
                bytes.try_into().ok().map(u64::from_ne_bytes)
            };
            per_cpu.iter().filter_map(word).sum()
        };
        Ok(ArrivalCounts {
            packets: sum(0),
            looked_at: sum(1),
            wrong: sum(2),
            forbidden: sum(3),
        })
    }
}

impl ArrivalCounts {
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            packets: self.packets - before.packets,
            looked_at: self.looked_at - before.looked_at,
            wrong: self.wrong - before.wrong,
            forbidden: self.forbidden - before.forbidden,
        }
    }

    /// Whether all that was looked at is as a router sends it.
    pub(super) fn check(self) -> Result<()> {
        ensure!(self.looked_at > 0, "no packet arrived");
        ensure!(
            self.wrong == 0,
            "of {} packets that were looked at {} are not as a router sends them",
            self.looked_at,
            self.wrong
        );
        ensure!(
            self.forbidden == 0,
            "{} packets arrived that a rule drops",
            self.forbidden
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_packet_fails_a_trial() {
        let fine = ArrivalCounts {
            packets: 64,
            looked_at: 1,
            ..ArrivalCounts::default()
        };
        assert!(fine.check().is_ok());
        let wrong = ArrivalCounts { wrong: 1, ..fine };
        let forbidden = ArrivalCounts {
            forbidden: 1,
            ..fine
        };
        for bad in [wrong, forbidden, ArrivalCounts::default()] {
            assert!(bad.check().is_err());
        }
    }
}
