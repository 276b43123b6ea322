//! The one extractor: frames in, ended flows out, every frame accounted for.

use packet::pcap::Frame;

use crate::counters::{Counters, Exported, Seen};
use crate::dissect::{Fragments, Packet, Tunnels, dissect};
use crate::filter::{Fate, Selection};
use crate::flow::{Flow, Limits, Table, Timers};

/// What an extractor is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub timers: Timers,
    pub limits: Limits,
    pub tunnels: Tunnels,
    /// Tell flows apart by their outermost VLAN id.
    pub by_vlan: bool,
    /// Which packets are kept.
    pub selection: Selection,
}

/// Reads frames in order of arrival and keeps the flows of the moment.
#[derive(Debug)]
pub struct Extractor {
    reader: PacketReader,
    horizon: Horizon,
    table: Table,
    exported: Exported,
}

/// Frames to packets with their ports: what needs memory of earlier packets, but of no flow.
#[derive(Debug, Default)]
pub struct PacketReader {
    tunnels: Tunnels,
    by_vlan: bool,
    selection: Selection,
    fragments: Fragments,
    seen: Seen,
}

impl PacketReader {
    pub fn new(options: &Options) -> Self {
        Self {
            tunnels: options.tunnels,
            by_vlan: options.by_vlan,
            selection: options.selection.clone(),
            ..Self::default()
        }
    }

    /// The packet in a frame, if it is wanted; counted, also where there is none.
    pub fn read<'a>(&mut self, frame: &Frame<'a>) -> Option<Packet<'a>> {
        self.look(frame, |packet| *packet)
    }

    /// The same for whoever only looks at it: a packet is large enough for each copy to be felt.
    #[inline]
    pub(crate) fn look<'a, T>(
        &mut self,
        frame: &Frame<'a>,
        take: impl FnOnce(&Packet<'a>) -> T,
    ) -> Option<T> {
        self.seen.packets += 1;
        let captured = u64::try_from(frame.bytes.len()).unwrap_or(0);
        self.seen.bytes += u64::from(frame.original_length).max(captured);
        match &mut dissect(frame, self.tunnels) {
            Ok(packet) => {
                if self.by_vlan {
                    packet.key.vlan = packet.link.vlan;
                }
                if !self.fragments.complete(packet) {
                    self.seen.lone_fragments += 1;
                }
                self.keeps(packet).then(|| take(packet))
            }
            Err(why) => {
                self.seen.refuse(*why);
                None
            }
        }
    }

    #[inline]
    fn keeps(&mut self, packet: &Packet<'_>) -> bool {
        match self.selection.judge(packet) {
            Fate::Kept => return true,
            Fate::Filtered => self.seen.filtered += 1,
            Fate::SampledOut => self.seen.sampled_out += 1,
            Fate::RateLimited => self.seen.rate_limited += 1,
        }
        false
    }

    /// What came in so far.
    pub fn seen(&self) -> Seen {
        self.seen
    }
}

impl Extractor {
    pub fn new(options: &Options) -> Self {
        Self {
            reader: PacketReader::new(options),
            horizon: Horizon::default(),
            table: Table::new(options.timers, options.limits),
            exported: Exported::default(),
        }
    }

    /// Takes a frame; exports the flows that it ends, or that time has ended.
    #[inline]
    pub fn frame(&mut self, frame: &Frame<'_>, export: &mut impl FnMut(Box<Flow>)) {
        let mut export = counted(&mut self.exported, export);
        self.reader
            .look(frame, |packet| self.table.add(packet, &mut export));
        if let Some(horizon_ns) = self.horizon.frame(frame.timestamp_ns) {
            self.table.sweep(horizon_ns, &mut export);
        }
    }

    /// Exports the flows that no packet at or after this time can belong to: for whoever knows the
    /// time better than the last frame does.
    pub fn sweep(&mut self, now_ns: i64, export: &mut impl FnMut(Box<Flow>)) {
        let mut export = counted(&mut self.exported, export);
        self.table.sweep(now_ns, &mut export);
    }

    /// Exports what is left.
    pub fn finish(&mut self, export: &mut impl FnMut(Box<Flow>)) {
        self.table.drain(&mut counted(&mut self.exported, export));
    }

    /// Flows in the table.
    pub fn open_flows(&self) -> usize {
        self.table.len()
    }

    pub fn counters(&self) -> Counters {
        Counters {
            seen: self.reader.seen,
            exported: self.exported,
            open: self.table.packets(),
        }
    }
}

pub(crate) fn counted(
    exported: &mut Exported,
    mut export: impl FnMut(Box<Flow>),
) -> impl FnMut(Box<Flow>) {
    move |flow| {
        exported.row(&flow);
        export(flow);
    }
}

/// The least time among the latest frames: one wrong clock reading neither ends flows nor keeps them
/// from ending, and frames may be that much out of order.
#[derive(Debug)]
pub(crate) struct Horizon {
    least_ns: i64,
    frames: u32,
}

/// Frames between two looks at the table.
const LATEST: u32 = 1024;

impl Default for Horizon {
    fn default() -> Self {
        Self {
            least_ns: i64::MAX,
            frames: 0,
        }
    }
}

impl Horizon {
    /// Takes a frame's time. How far time has surely come, each time it is worth a look at the table.
    #[inline]
    pub(crate) fn frame(&mut self, time_ns: i64) -> Option<i64> {
        self.least_ns = self.least_ns.min(time_ns);
        self.frames += 1;
        if self.frames < LATEST {
            return None;
        }
        let least_ns = self.least_ns;
        *self = Self::default();
        Some(least_ns)
    }
}
