//! The BPF programs of a network: the router that asks the kernel's tables for each packet, and the
//! sink.

use std::mem::MaybeUninit;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, Result, ensure};
use bpf::{Map, PerCpu};
use netdev::XdpMode;
use netdev::attach::{self, Attachment};
use testbed::{Host, Interface};

use super::skel::{ForwardSkelBuilder, types};

impl bpf::Counters for types::arrived {}

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
    arrivals: PerCpu<types::arrived>,
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
        let builder = ForwardSkelBuilder::default();
        let skel = bpf::load(builder, &mut storage, "the forwarding programs", |open| {
            let knobs = open.maps.rodata_data.as_deref_mut();
            let knobs = knobs.context("the program's settings")?;
            knobs.run_id = spec.run;
            knobs.allowed = u32::try_from(spec.open)?;
            knobs.router = spec.to.mac;
            let count = u32::try_from(spec.flow_routes.len())?;
            open.maps.flow_routes.set_max_entries(count)?;
            open.maps.devices.set_max_entries(spec.to.ifindex + 1)?;
            anyhow::Ok(())
        })?;
        let flow_routes: Vec<_> = spec.flow_routes.iter().map(FlowRoute::record).collect();
        Map::new(&skel.maps.flow_routes)?.set_range(0, &flow_routes)?;
        // Devices are those of the namespace that writes the map.
        let devices = Map::<u32, u32>::new(&skel.maps.devices)?;
        if spec.router.guest().is_none() {
            let device = spec.to.ifindex;
            spec.router
                .run(|| devices.set(&device, &device))?
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
            arrivals: PerCpu::new(&skel.maps.arrivals)?,
            _attached: attached,
        })
    }

    /// Since the sink was attached.
    pub(super) fn arrived(&self) -> Result<ArrivalCounts> {
        let sums = self.arrivals.sum(0)?;
        Ok(ArrivalCounts {
            packets: sums.packets,
            looked_at: sums.looked_at,
            wrong: sums.wrong,
            forbidden: sums.forbidden,
        })
    }
}

impl FlowRoute {
    /// As the programs read it.
    fn record(&self) -> types::flow_route {
        types::flow_route {
            destination: u32::from_ne_bytes(self.destination.octets()),
            neighbour: self.neighbour,
            padding: 0,
        }
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
