//! Accounts for every frame: exported in a flow, or dropped under a named reason.

use datapath::{Classify, ErrorClass};
use packet::pcap::Block;
use serde_json::{Map, Value, json};

use crate::flow::{End, Flow};

/// Why a frame is in no flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The link type is not supported.
    LinkType,
    /// The link header, a tag or a label is truncated.
    TruncatedLink,
    /// More tags and labels than any network uses.
    TooDeep,
    /// ARP, spanning tree and the like.
    NotIp,
    /// The IP header is truncated.
    TruncatedIp,
    /// The IP header's version or header length is impossible.
    BadIp,
    /// More extension headers than the kernel's programs read. Userspace has no such limit.
    TooManyExtensions,
}

/// All reasons, in the order in which they are shown.
pub const REFUSALS: [Rejection; 7] = [
    Rejection::LinkType,
    Rejection::TruncatedLink,
    Rejection::TooDeep,
    Rejection::NotIp,
    Rejection::TruncatedIp,
    Rejection::BadIp,
    Rejection::TooManyExtensions,
];

impl Rejection {
    pub fn name(self) -> &'static str {
        match self {
            Self::LinkType => "link_type",
            Self::TruncatedLink => "truncated_link",
            Self::TooDeep => "too_deep",
            Self::NotIp => "not_ip",
            Self::TruncatedIp => "truncated_ip",
            Self::BadIp => "bad_ip",
            Self::TooManyExtensions => "too_many_extensions",
        }
    }
}

/// The counters of the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputCounters {
    /// Every frame.
    pub packets: u64,
    /// Bytes of these frames on the wire.
    pub bytes: u64,
    /// Later fragments whose first fragment was not seen. They are counted in a flow without ports.
    pub lone_fragments: u64,
    /// Packets that the filter rejected.
    pub filtered: u64,
    /// Packets that passed the filter but were not sampled.
    pub sampled_out: u64,
    /// Packets that exceeded the rate limit.
    pub rate_limited: u64,
    /// Frames that were only counted, because the output had failed before they were read.
    pub unread: u64,
    pub(crate) refused: [u64; REFUSALS.len()],
}

/// The counters of the output: packets in flows that have ended, or packets with a row of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputCounters {
    pub packets: u64,
    /// Flows that have ended.
    pub flows: u64,
    /// Flows of these that ended early because the table was full.
    pub table_full: u64,
    /// Rows about a flow's first packets, in addition to its last row.
    pub early_rows: u64,
    /// Ended flows whose TLS client may be unknown because a segment was missing or late.
    pub stream_gaps: u64,
    /// Ended QUIC flows without a readable ClientHello.
    pub quic_without_hello: u64,
}

/// The account of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub seen: InputCounters,
    pub exported: OutputCounters,
    /// Packets in flows that have not ended.
    pub open: u64,
}

impl InputCounters {
    /// Counts the frames of a block that is no longer read.
    pub(crate) fn pass_over(&mut self, block: &Block) {
        let frames = u64::try_from(block.len()).unwrap_or(0);
        self.packets += frames;
        self.unread += frames;
        self.bytes += block.frames().map(|frame| frame.wire_length()).sum::<u64>();
    }

    pub(crate) fn refuse(&mut self, why: Rejection) {
        self.refuse_many(why, 1);
    }

    pub(crate) fn refuse_many(&mut self, why: Rejection, packets: u64) {
        self.refused[why as usize] += packets;
    }

    pub fn refused(&self, why: Rejection) -> u64 {
        self.refused[why as usize]
    }

    /// The sum of two workers' input counters.
    pub fn and(mut self, other: Self) -> Self {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.lone_fragments += other.lone_fragments;
        self.filtered += other.filtered;
        self.sampled_out += other.sampled_out;
        self.rate_limited += other.rate_limited;
        self.unread += other.unread;
        for (mine, theirs) in self.refused.iter_mut().zip(other.refused) {
            *mine += theirs;
        }
        self
    }

    /// Frames that are in no flow: rejected, not selected, or unread.
    pub fn left_out(&self) -> u64 {
        let refused: u64 = self.refused.iter().sum();
        refused + self.filtered + self.sampled_out + self.rate_limited + self.unread
    }
}

impl OutputCounters {
    pub(crate) fn row(&mut self, flow: &Flow) {
        if flow.end == End::Early {
            self.early_rows += 1;
            return;
        }
        self.packets += flow.packets();
        self.flow(flow);
    }

    /// Counts an ended flow whose packets have rows of their own.
    pub(crate) fn flow(&mut self, flow: &Flow) {
        self.flows += 1;
        self.table_full += u64::from(flow.end == End::Full);
        self.stream_gaps += u64::from(flow.contents.has_gap());
        let quic = flow.contents.quic();
        self.quic_without_hello += u64::from(quic.is_some_and(|quic| quic.hello().is_none()));
    }

    /// The sum of two tables' counters.
    pub fn and(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            flows: self.flows + other.flows,
            table_full: self.table_full + other.table_full,
            early_rows: self.early_rows + other.early_rows,
            stream_gaps: self.stream_gaps + other.stream_gaps,
            quic_without_hello: self.quic_without_hello + other.quic_without_hello,
        }
    }
}

/// The error of an account that does not balance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} packets are unaccounted for: the rows cannot be relied on")]
pub struct Imbalance(i128);

impl Classify for Imbalance {
    fn class(&self) -> ErrorClass {
        ErrorClass::Failed
    }
}

impl Counters {
    /// The sum of two workers' counters.
    pub fn and(self, other: Self) -> Self {
        Self {
            seen: self.seen.and(other.seen),
            exported: self.exported.and(other.exported),
            open: self.open + other.open,
        }
    }

    /// Checks that every frame is accounted for.
    ///
    /// # Errors
    /// The number of unaccounted packets, if it is not 0.
    pub fn check(&self) -> Result<(), Imbalance> {
        match self.unaccounted() {
            0 => Ok(()),
            packets => Err(Imbalance(packets)),
        }
    }

    /// Frames that are missing from the account. Any other value than 0 is a defect.
    pub fn unaccounted(&self) -> i128 {
        let known = self.exported.packets + self.open + self.seen.left_out();
        i128::from(self.seen.packets) - i128::from(known)
    }

    /// The account as JSON, with the rows written and lost. `more` adds the counters that only some datapaths have.
    pub fn json(&self, rows: (u64, u64), more: Value) -> Value {
        let (seen, exported) = (&self.seen, &self.exported);
        let drops: Map<String, Value> = REFUSALS
            .iter()
            .map(|&why| (why.name().to_owned(), seen.refused(why).into()))
            .collect();
        let mut account = json!({
            "packets": seen.packets,
            "bytes": seen.bytes,
            "packets_exported": exported.packets,
            "packets_unaccounted": i64::try_from(self.unaccounted()).unwrap_or(i64::MAX),
            "flows": exported.flows,
            "rows": rows.0,
            "rows_lost": rows.1,
            "early_rows": exported.early_rows,
            "stream_gaps": exported.stream_gaps,
            "quic_without_hello": exported.quic_without_hello,
            "table_full": exported.table_full,
            "lone_fragments": seen.lone_fragments,
            "filtered": seen.filtered,
            "sampled_out": seen.sampled_out,
            "rate_limited": seen.rate_limited,
            "unread": seen.unread,
            "drops": drops,
        });
        if let (Some(account), Value::Object(more)) = (account.as_object_mut(), more) {
            account.extend(more);
        }
        account
    }
}
