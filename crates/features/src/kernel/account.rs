//! What became of every frame that a program saw.

use bpf::PerCpu;
use datapath::Error;

use super::failed;
use super::skel::flow::types;

/// What each CPU has counted; every program has this map.
pub(super) type Accounts = PerCpu<types::account>;

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
}

impl From<types::account> for Account {
    fn from(sums: types::account) -> Self {
        Self {
            packets: sums.packets,
            bytes: sums.bytes,
            sent: sums.sent,
            arrived: sums.arrived,
            changed_queue: sums.changed_queue,
            lone_fragments: sums.lone_fragments,
            refused: sums.refused,
            filtered: sums.filtered,
            sampled_out: sums.sampled_out,
            rate_limited: sums.rate_limited,
            exported: sums.exported,
            table_full: sums.table_full,
            lost_table_full: sums.lost_table_full,
            lost_ring_full: sums.lost_ring_full,
            lost_queue_full: sums.refused_by_queue,
            lost_cpu: sums.lost_cpu,
            lost_early_rows: sums.lost_early_rows,
        }
    }
}

/// The sums of all CPUs.
pub(super) fn read(accounts: &Accounts) -> Result<Account, Error> {
    let sums = accounts.sum(0);
    sums.map(Account::from).map_err(failed(READING))
}

/// Marks that have arrived on a CPU.
pub(super) fn marks(accounts: &Accounts, cpu: u32) -> Result<u64, Error> {
    let values = accounts.values(0).map_err(failed(READING))?;
    let of_cpu = usize::try_from(cpu).ok().and_then(|cpu| values.get(cpu));
    Ok(of_cpu.map_or(0, |account| account.marks))
}

const READING: &str = "reading the programs' counters";
