//! Columns of several schemas: counts and times that are never null, so that they are the same in all.

use super::columns::directions;
use crate::column::{Column, Unit, Value};
use crate::flow::Flow;

pub(super) const PACKETS: Column<Flow> = Column::new(
    "packets",
    Unit::Packets,
    "Packets of both directions.",
    Value::U64(|f| Some(f.packets())),
);
pub(super) const BYTES: Column<Flow> = Column::new(
    "bytes",
    Unit::Bytes,
    "Bytes of whole frames, both directions.",
    Value::U64(|f| Some(f.wire().sum)),
);
pub(super) const PAYLOAD_BYTES: Column<Flow> = Column::new(
    "payload_bytes",
    Unit::Bytes,
    "Bytes behind the transport headers, both directions.",
    Value::U64(|f| Some(f.payload().sum)),
);
pub(super) const DURATION_NS: Column<Flow> = Column::new(
    "duration_ns",
    Unit::Nanoseconds,
    "From the first packet to the latest.",
    Value::U64(|f| Some(f.duration_ns())),
);
pub(super) const IDLE_COUNT: Column<Flow> = Column::new(
    "idle_count",
    Unit::Count,
    "How often there was a gap longer than the active gap.",
    Value::U64(|f| Some(f.periods.idle().count)),
);
pub(super) const OUT_OF_ORDER: Column<Flow> = Column::new(
    "out_of_order",
    Unit::Packets,
    "Packets older than the latest before them.",
    Value::U64(|f| Some(f.remarks().out_of_order)),
);

// Each of these is a column forward and one backward.
pub(super) const SENT_PACKETS: &[Column<Flow>] = directions!(|sent| [
    ("packets", Packets, "Packets sent " _ ".", U64(Some(sent.packets()))),
]);
pub(super) const SENT_BYTES: &[Column<Flow>] = directions!(|sent| [
    ("bytes", Bytes, "Bytes of whole frames sent " _ ", without check sequences, as on the wire.", U64(Some(sent.wire.sum))),
]);
pub(super) const SENT_IP_BYTES: &[Column<Flow>] = directions!(|sent| [
    ("ip_bytes", Bytes, "Bytes of IP packets sent " _ ", by their headers.", U64(Some(sent.ip_bytes))),
]);
pub(super) const SENT_PAYLOAD_BYTES: &[Column<Flow>] = directions!(|sent| [
    ("payload_bytes", Bytes, "Bytes behind the transport headers, sent " _ ": IP length less all headers.", U64(Some(sent.payload.sum))),
]);
pub(super) const SENT_PAYLOAD_PACKETS: &[Column<Flow>] = directions!(|sent| [
    ("payload_packets", Packets, "Packets with payload sent " _ ".", U64(Some(sent.payload_packets))),
]);

/// Four columns forward, then four backward.
pub(super) const BULKS: &[Column<Flow>] = directions!(|sent| [
    ("bulks", Count, "Bulks sent " _ ": at least 4 packets with payload, no gap longer than the bulk gap, no payload from the other side between.", U64(Some(sent.bulks.count))),
    ("bulk_packets", Packets, "Packets in bulks sent " _ ".", U64(Some(sent.bulks.packets))),
    ("bulk_bytes", Bytes, "Payload in bulks sent " _ ".", U64(Some(sent.bulks.bytes))),
    ("bulk_duration_ns", Nanoseconds, "Time that bulks sent " _ " took.", U64(Some(sent.bulks.duration_ns))),
]);
