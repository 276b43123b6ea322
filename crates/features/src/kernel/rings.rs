//! The packet records of one reader, from one ring per CPU.

use std::os::fd::AsFd;

use bpf::Map;
use datapath::Error;
use libbpf_rs::{MapCore, MapHandle, MapType};
use sys::bpf_ring::Ring;

use super::bell::Bell;
use super::memory;
use super::settings::Settings;
use super::skel::Plain;
use super::skel::packets::types;
use crate::dissect::Packet;

/// The rings of one reader. It receives all packets of its flows.
#[derive(Debug)]
pub struct PacketRings {
    heads: Vec<Head>,
    bell: Bell,
}

/// The ring of one CPU, and the time of its first pending packet.
#[derive(Debug)]
struct Head {
    ring: Ring,
    time_ns: Option<i64>,
    /// The index among the rings of all readers.
    index: u32,
}

impl PacketRings {
    /// Creates a reader's rings, each in the memory of the CPU that writes it, and registers them in the program's map.
    pub(super) fn make(
        reader: u32,
        settings: &Settings,
        outer: &Map<u32, i32>,
        alarms: &MapHandle,
    ) -> Result<Self, Error> {
        let count = usize::try_from(alarms.max_entries()).unwrap_or(0);
        let bell = Bell::new(settings.wakeup, alarms, count)?;
        let topology = memory::topology()?;
        let heads = topology.cpus().into_iter().map(|cpu| {
            let refused = |error| Error::failed(format!("making CPU {cpu}'s ring"), error);
            let options = memory::on(topology.node_of(cpu));
            let bytes = settings.ring_bytes;
            let name = Some("packet_ring");
            let map = MapHandle::create(MapType::RingBuf, name, 0, 0, bytes, &options)
                .map_err(refused)?;
            let index = cpu * settings.readers + reader;
            outer
                .set_descriptor(&index, &map)
                .map_err(|error| refused(error.source))?;
            let ring = Ring::new(map.as_fd(), bytes)
                .map_err(|error| Error::failed(format!("mapping CPU {cpu}'s ring"), error))?;
            bell.watch(map.as_fd())?;
            Ok(Head {
                ring,
                time_ns: None,
                index,
            })
        });
        Ok(Self {
            heads: heads.collect::<Result<_, Error>>()?,
            bell,
        })
    }

    /// Sleeps until packets should be collected, according to the settings. Returns whether the program caused the
    /// wake-up.
    pub fn wait(&self) -> Result<bool, Error> {
        let number = |index| usize::try_from(index).unwrap_or(usize::MAX);
        let heads = self.heads.iter();
        self.bell
            .wait(heads.map(|head| (number(head.index), &head.ring)))
    }

    /// Passes on the packets stamped before `before_ns`. Packets of different CPUs are ordered by time, and packets of
    /// one CPU keep their order. Younger packets stay in their rings, so that none overtakes a packet that another CPU
    /// is still writing.
    pub fn collect(&mut self, before_ns: i64, mut take: impl FnMut(&Packet<'static>)) {
        self.heads.iter_mut().for_each(Head::look);
        loop {
            let heads = self.heads.iter_mut().filter(|head| head.time_ns.is_some());
            let Some(first) = heads.min_by_key(|head| head.time_ns) else {
                break;
            };
            if first.time_ns.is_none_or(|time| time >= before_ns) {
                break;
            }
            if let Some(record) = first.ring.peek().and_then(types::packet::read) {
                take(&(&record).into());
            }
            first.ring.pop();
            first.look();
        }
    }
}

impl Head {
    fn look(&mut self) {
        let record = self.ring.peek().and_then(types::packet::read);
        self.time_ns = record.map(|record| record.time_ns);
    }
}
