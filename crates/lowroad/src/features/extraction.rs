//! The arguments that say how packets become flows.

use std::num::NonZeroU32;

use clap::{Args, ValueEnum};
use features::Options;
use features::dissect::Tunnels;
use features::flow::{Gaps, Limits, Timers};
use features::schema::Schema;
use units::Span;

use super::selection::SelectionArguments;
use crate::exit::Failure;

/// How packets become flows.
#[derive(Debug, Args)]
#[command(next_help_heading = "Flows")]
pub(super) struct Extraction {
    /// End a flow after this long without a packet
    #[arg(long, value_name = "DURATION", default_value = "120s")]
    idle_timeout: Span,
    /// Export a flow that lasts this long, and continue it as another
    #[arg(long, value_name = "DURATION", default_value = "30m")]
    active_timeout: Span,
    /// Accept late packets of a closed TCP connection for this long
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    linger: Span,
    /// End flows by timeouts only, not by TCP's FIN and RST
    #[arg(long)]
    ignore_tcp_end: bool,
    /// End an active period after a gap this long
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    active_gap: Span,
    /// Take the addresses of tunnelled packets from this header
    #[arg(long, value_enum, default_value = "outer")]
    tunnels: TunnelName,
    /// Distinguish flows by their outermost VLAN id
    #[arg(long)]
    by_vlan: bool,
    /// Record the first N packets of a flow one by one
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u8).range(0..=32))]
    splt: u8,
    /// Write another row after a flow's first N packets
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    early: Option<u64>,
    /// Include N bytes of each packet's payload in the bits of nprint.v1
    #[arg(long, value_name = "N", default_value = "0", value_parser = clap::value_parser!(u16).range(0..=1500))]
    payload_bytes: u16,
    /// Keep at most N flows in memory; export idle ones early beyond that, and count them
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = clap::value_parser!(u32).range(1..))]
    max_flows: u32,
    #[command(flatten)]
    selection: SelectionArguments,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TunnelName {
    Outer,
    Inner,
}

impl Extraction {
    /// The options for rows of this schema, with as many packets a second at most; refuses what it has no
    /// rows for.
    pub(super) fn options(
        &self,
        schema: &Schema,
        most: Option<NonZeroU32>,
    ) -> Result<Options, Failure> {
        let refuse = |what: &str| Err(Failure::Input(format!("{}: {what}", schema.name)));
        if self.early.is_some() && schema.flow_columns().is_none() {
            return refuse("has a row for each packet; --early asks for rows about flows");
        }
        if self.payload_bytes > 0 && !schema.has_bits() {
            return refuse("has no bits of payloads; --payload-bytes goes with nprint.v1");
        }
        self.build(most)
    }

    fn build(&self, most: Option<NonZeroU32>) -> Result<Options, Failure> {
        let linger_ns = (!self.ignore_tcp_end).then(|| signed(self.linger));
        Ok(Options {
            timers: Timers {
                idle_ns: signed(self.idle_timeout),
                active_ns: signed(self.active_timeout),
                linger_ns,
                gaps: Gaps {
                    active_ns: signed(self.active_gap).unsigned_abs(),
                    ..Gaps::default()
                },
            },
            limits: Limits {
                most_flows: self.max_flows as usize,
                steps: self.splt.into(),
                early_packets: self.early,
                payload_bytes: self.payload_bytes.into(),
                ..Limits::default()
            },
            tunnels: match self.tunnels {
                TunnelName::Outer => Tunnels::Outer,
                TunnelName::Inner => Tunnels::Inner,
            },
            by_vlan: self.by_vlan,
            selection: self.selection.selection(most)?,
            // A schema sets the rest.
            ..Options::default()
        })
    }
}

/// In nanoseconds; what is longer than three centuries is as good as for ever.
fn signed(span: Span) -> i64 {
    i64::try_from(span.0.as_nanos()).unwrap_or(i64::MAX)
}
