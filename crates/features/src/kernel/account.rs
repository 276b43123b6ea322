//! Accounts for every frame that a program saw.

use bpf::PerCpu;
use datapath::Error;

use super::failed;
use super::skel::flow::types;

/// The counters of each CPU. Every program has this map.
pub(super) type Accounts = PerCpu<types::account>;

/// The reasons for which the kernel's dissector rejects a frame, in the order of packet.h. The first ones are those
/// of `Rejection`.
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
    /// Bytes of these frames on the wire.
    pub bytes: u64,
    /// Frames that were sent to another CPU, and frames that arrived there.
    pub sent: u64,
    pub arrived: u64,
    /// Packets that arrived on another queue of the device than the previous packet of their flow and direction.
    pub changed_queue: u64,
    /// Later fragments whose first fragment was not seen. They are counted in a flow without ports.
    pub lone_fragments: u64,
    /// Frames without a packet, indexed like `REFUSALS`.
    pub refused: [u64; REFUSALS.len()],
    /// Packets that the filter rejected.
    pub filtered: u64,
    /// Packets that passed the filter but were not sampled.
    pub sampled_out: u64,
    /// Packets that exceeded the rate limit.
    pub rate_limited: u64,
    /// Packets that were exported through the ring.
    pub exported: u64,
    /// Exported packets that were sent individually because the table was full.
    pub table_full: u64,
    /// Packets dropped because neither the table nor the ring had room.
    pub lost_table_full: u64,
    /// Packets dropped because the ring had no room for them, or for a flow that had to be exported first.
    pub lost_ring_full: u64,
    /// Frames dropped because a CPU's queue had no room for them.
    pub lost_queue_full: u64,
    /// Packets dropped on a CPU that came online after the start.
    pub lost_cpu: u64,
    /// Rows about a flow's first packets that the ring had no room for. These are rows, not packets.
    pub lost_early_rows: u64,
}

impl Account {
    /// Frames that are in no flow because they contain no packet.
    pub fn refused(&self) -> u64 {
        self.refused.iter().sum()
    }

    /// Frames that are in no flow because they contain no packet or were not selected.
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

/// The sums over all CPUs.
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
