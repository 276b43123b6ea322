//! What became of every frame that a program saw.

use datapath::Error;
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::failed;
use super::skel::Plain;
use super::skel::flow::types;

/// Why the kernel's dissector finds no packet in a frame, in the order of packet.h; the first are
/// `Refused`'s.
pub const REFUSALS: [&str; 6] = [
    "truncated_link",
    "too_deep",
    "not_ip",
    "truncated_ip",
    "bad_ip",
    "too_many_extensions",
];

/// Sums over all CPUs since the programs were loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Every frame.
    pub packets: u64,
    /// Bytes that they had on the wire.
    pub bytes: u64,
    /// Of the frames, those that were sent to another CPU, and those that have arrived there.
    pub sent: u64,
    pub arrived: u64,
    /// Packets that came by another of the device's queues than the one before in their flow and
    /// direction.
    pub changed_queue: u64,
    /// Later fragments whose first fragment was not seen: in a flow without ports.
    pub lone_fragments: u64,
    /// Frames without a packet, by `REFUSALS`.
    pub refused: [u64; REFUSALS.len()],
    /// Packets for which the filter was false.
    pub filtered: u64,
    /// Packets that passed the filter and were not among those sampled.
    pub sampled_out: u64,
    /// Packets beyond those that may come in a second.
    pub rate_limited: u64,
    /// Packets that have left by the ring.
    pub exported: u64,
    /// Of these, packets that left alone because the table was full.
    pub table_full: u64,
    /// Packets dropped because neither the table nor the ring had room.
    pub lost_table_full: u64,
    /// Packets dropped because the ring had no room for what had to leave before them, or for them.
    pub lost_ring_full: u64,
    /// Frames dropped because a CPU's queue had no room for them.
    pub lost_queue_full: u64,
    /// Packets dropped on a CPU that came after the start.
    pub lost_cpu: u64,
    /// No packets: rows about a flow's first packets that the ring had no room for.
    pub lost_early_rows: u64,
}

impl Account {
    /// Frames that are in no flow because they are no packets.
    pub fn refused(&self) -> u64 {
        self.refused.iter().sum()
    }

    /// Frames that are in no flow because they are no packets, or not wanted.
    pub fn left_out(&self) -> u64 {
        self.refused() + self.filtered + self.sampled_out + self.rate_limited
    }

    /// Packets that were dropped.
    pub fn lost(&self) -> u64 {
        self.lost_table_full + self.lost_ring_full + self.lost_queue_full + self.lost_cpu
    }

    fn add(&mut self, of_cpu: &types::account) {
        self.packets += of_cpu.packets;
        self.bytes += of_cpu.bytes;
        self.sent += of_cpu.sent;
        self.arrived += of_cpu.arrived;
        self.changed_queue += of_cpu.changed_queue;
        self.lone_fragments += of_cpu.lone_fragments;
        for (sum, refused) in self.refused.iter_mut().zip(of_cpu.refused) {
            *sum += refused;
        }
        self.filtered += of_cpu.filtered;
        self.sampled_out += of_cpu.sampled_out;
        self.rate_limited += of_cpu.rate_limited;
        self.exported += of_cpu.exported;
        self.table_full += of_cpu.table_full;
        self.lost_table_full += of_cpu.lost_table_full;
        self.lost_ring_full += of_cpu.lost_ring_full;
        self.lost_queue_full += of_cpu.refused_by_queue;
        self.lost_cpu += of_cpu.lost_cpu;
        self.lost_early_rows += of_cpu.lost_early_rows;
    }
}

/// The sums of the map of accounts, which every program has alike.
pub(super) fn read(accounts: &MapHandle) -> Result<Account, Error> {
    let mut account = Account::default();
    each(accounts, |of_cpu| account.add(of_cpu))?;
    Ok(account)
}

/// Marks that have arrived on a CPU.
pub(super) fn marks(accounts: &MapHandle, cpu: u32) -> Result<u64, Error> {
    let mut marks = Vec::new();
    each(accounts, |of_cpu| marks.push(of_cpu.marks))?;
    let cpu = usize::try_from(cpu).unwrap_or(usize::MAX);
    Ok(marks.get(cpu).copied().unwrap_or(0))
}

fn each(accounts: &MapHandle, mut take: impl FnMut(&types::account)) -> Result<(), Error> {
    let values = accounts
        .lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(failed("reading the programs' counters"))?;
    for value in values.unwrap_or_default() {
        if let Some(of_cpu) = types::account::read(&value) {
            take(&of_cpu);
        }
    }
    Ok(())
}
