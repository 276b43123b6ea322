//! Loads the userspace filter into the kernel's programs: sizes the maps and fills them.

use bpf::Map;
use datapath::Error;
use libbpf_rs::{MapMut, OpenMapMut};

use super::failed;
use super::record::halves;
use super::skel::flow::types;
use crate::filter::{Check, End, Field, Network, Program, Selection, Step, Target};

/// The tests of filter.h.
mod test {
    pub(super) const VERSION: u8 = 0;
    pub(super) const PROTOCOL: u8 = 1;
    pub(super) const LENGTH: u8 = 2;
    pub(super) const VLAN: u8 = 3;
    pub(super) const PORT: u8 = 4;
    pub(super) const PORT_SET: u8 = 5;
    pub(super) const NETWORK: u8 = 6;
    pub(super) const NETWORK_SET: u8 = 7;
}

/// Marks a target that is not a step.
const END: u16 = 0x8000;
/// Bits of a network's key before the address: the number of the set and the IP version.
const BEFORE_ADDRESS: u32 = 32;

/// The number of networks written per call.
const AT_ONCE: usize = 4096;

/// The maps of a filtering program before it is loaded.
#[derive(Debug)]
pub(super) struct OpenMaps<'a, 'o> {
    pub(super) steps: &'a mut OpenMapMut<'o>,
    pub(super) ports: &'a mut OpenMapMut<'o>,
    pub(super) networks: &'a mut OpenMapMut<'o>,
}

/// The maps of a filtering program.
#[derive(Debug)]
pub(super) struct Maps {
    steps: Map<u32, types::filter_step>,
    ports: Map<u32, types::filter_ports>,
    networks: Map<types::filter_network, u8>,
}

impl OpenMaps<'_, '_> {
    pub(super) fn size(self, selection: &Selection) -> libbpf_rs::Result<()> {
        let Some(program) = program(selection) else {
            return Ok(());
        };
        let networks = program.networks.iter().map(|set| set.all().len()).sum();
        for (map, entries) in [
            (self.steps, program.steps.len()),
            (self.ports, program.ports.len()),
            (self.networks, networks),
        ] {
            map.set_max_entries(u32::try_from(entries.max(1)).unwrap_or(u32::MAX))?;
        }
        Ok(())
    }
}

impl Maps {
    pub(super) fn new(
        steps: &MapMut<'_>,
        ports: &MapMut<'_>,
        networks: &MapMut<'_>,
    ) -> Result<Self, Error> {
        Ok(Self {
            steps: Map::new(steps)?,
            ports: Map::new(ports)?,
            networks: Map::new(networks)?,
        })
    }

    pub(super) fn fill(&self, selection: &Selection) -> Result<(), Error> {
        program(selection)
            .map_or(Ok(()), |program| self.write(program))
            .map_err(failed("giving the programs their filter"))
    }

    fn write(&self, program: &Program) -> Result<(), bpf::Error> {
        let steps: Vec<_> = program.steps.iter().map(record).collect();
        self.steps.set_range(0, &steps)?;
        for (index, set) in (0..).zip(&program.ports) {
            let words = *set.0;
            self.ports.set(&index, &types::filter_ports { words })?;
        }
        for (index, set) in (0_u16..).zip(&program.networks) {
            for networks in set.all().chunks(AT_ONCE) {
                let keys: Vec<_> = networks.iter().map(|one| key(index, one)).collect();
                self.networks.set_batch(&keys, &vec![1; keys.len()])?;
            }
        }
        Ok(())
    }
}

fn program(selection: &Selection) -> Option<&Program> {
    selection.compiled()?.program.as_ref()
}

fn record(step: &Step) -> types::filter_step {
    let mut record = types::filter_step {
        targets: [step.on_false, step.on_true].map(|target| match target {
            Target::Step(at) => at,
            Target::End(end) => END | end,
        }),
        ..Default::default()
    };
    match step.check {
        Check::Field(field, low, high) => {
            (record.test, record.end) = match field {
                Field::Version => (test::VERSION, 0),
                Field::Protocol => (test::PROTOCOL, 0),
                Field::Length => (test::LENGTH, 0),
                Field::Vlan => (test::VLAN, 0),
                Field::Port(of) => (test::PORT, end(of)),
            };
            (record.low[0], record.high[0]) = (low, high);
        }
        Check::PortSet(of, set) => {
            (record.test, record.end, record.set) = (test::PORT_SET, end(of), set);
        }
        Check::Network(of, network) => {
            (record.test, record.end) = (test::NETWORK, end(of));
            record.set = network.version.into();
            (record.low, record.high) = (halves(network.address), halves(network.mask()));
        }
        Check::NetworkSet(of, set) => {
            (record.test, record.end, record.set) = (test::NETWORK_SET, end(of), set);
        }
    }
    record
}

fn end(of: End) -> u8 {
    match of {
        End::Source => 0,
        End::Destination => 1,
    }
}

fn key(set: u16, network: &Network) -> types::filter_network {
    types::filter_network {
        prefix: BEFORE_ADDRESS + u32::from(network.prefix),
        set,
        version: network.version.into(),
        address: halves(network.address).map(u64::to_be),
    }
}
