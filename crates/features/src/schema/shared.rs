//! Columns of several schemas: counts and times that are never null, so that they are the same in all.

use crate::column::{Column, Unit, Value};
use crate::flow::Flow;

pub(super) const PACKETS: Column<Flow> = Column::new(
    "packets",
    Unit::Packets,
    "Packets of both directions.",
    Value::U64(|f| Some(f.packets())),
);
pub(super) const FWD_PACKETS: Column<Flow> = Column::new(
    "fwd_packets",
    Unit::Packets,
    "Packets sent forward.",
    Value::U64(|f| Some(f.forward.packets())),
);
pub(super) const BWD_PACKETS: Column<Flow> = Column::new(
    "bwd_packets",
    Unit::Packets,
    "Packets sent backward.",
    Value::U64(|f| Some(f.backward.packets())),
);
pub(super) const BYTES: Column<Flow> = Column::new(
    "bytes",
    Unit::Bytes,
    "Bytes of whole frames, both directions.",
    Value::U64(|f| Some(f.wire().sum)),
);
pub(super) const FWD_BYTES: Column<Flow> = Column::new(
    "fwd_bytes",
    Unit::Bytes,
    "Bytes of whole frames sent forward, without check sequences, as on the wire.",
    Value::U64(|f| Some(f.forward.wire.sum)),
);
pub(super) const BWD_BYTES: Column<Flow> = Column::new(
    "bwd_bytes",
    Unit::Bytes,
    "Bytes of whole frames sent backward, without check sequences, as on the wire.",
    Value::U64(|f| Some(f.backward.wire.sum)),
);
pub(super) const FWD_IP_BYTES: Column<Flow> = Column::new(
    "fwd_ip_bytes",
    Unit::Bytes,
    "Bytes of IP packets sent forward, by their headers.",
    Value::U64(|f| Some(f.forward.ip_bytes)),
);
pub(super) const BWD_IP_BYTES: Column<Flow> = Column::new(
    "bwd_ip_bytes",
    Unit::Bytes,
    "Bytes of IP packets sent backward, by their headers.",
    Value::U64(|f| Some(f.backward.ip_bytes)),
);
pub(super) const PAYLOAD_BYTES: Column<Flow> = Column::new(
    "payload_bytes",
    Unit::Bytes,
    "Bytes behind the transport headers, both directions.",
    Value::U64(|f| Some(f.payload().sum)),
);
pub(super) const FWD_PAYLOAD_BYTES: Column<Flow> = Column::new(
    "fwd_payload_bytes",
    Unit::Bytes,
    "Bytes behind the transport headers, sent forward: IP length less all headers.",
    Value::U64(|f| Some(f.forward.payload.sum)),
);
pub(super) const BWD_PAYLOAD_BYTES: Column<Flow> = Column::new(
    "bwd_payload_bytes",
    Unit::Bytes,
    "Bytes behind the transport headers, sent backward: IP length less all headers.",
    Value::U64(|f| Some(f.backward.payload.sum)),
);
pub(super) const FWD_PAYLOAD_PACKETS: Column<Flow> = Column::new(
    "fwd_payload_packets",
    Unit::Packets,
    "Packets with payload sent forward.",
    Value::U64(|f| Some(f.forward.payload_packets)),
);
pub(super) const BWD_PAYLOAD_PACKETS: Column<Flow> = Column::new(
    "bwd_payload_packets",
    Unit::Packets,
    "Packets with payload sent backward.",
    Value::U64(|f| Some(f.backward.payload_packets)),
);
pub(super) const FWD_BULKS: Column<Flow> = Column::new(
    "fwd_bulks",
    Unit::Count,
    "Bulks sent forward: at least 4 packets with payload, no gap longer than the bulk gap, no payload from the other side between.",
    Value::U64(|f| Some(f.forward.bulks.count)),
);
pub(super) const BWD_BULKS: Column<Flow> = Column::new(
    "bwd_bulks",
    Unit::Count,
    "Bulks sent backward: at least 4 packets with payload, no gap longer than the bulk gap, no payload from the other side between.",
    Value::U64(|f| Some(f.backward.bulks.count)),
);
pub(super) const FWD_BULK_PACKETS: Column<Flow> = Column::new(
    "fwd_bulk_packets",
    Unit::Packets,
    "Packets in bulks sent forward.",
    Value::U64(|f| Some(f.forward.bulks.packets)),
);
pub(super) const BWD_BULK_PACKETS: Column<Flow> = Column::new(
    "bwd_bulk_packets",
    Unit::Packets,
    "Packets in bulks sent backward.",
    Value::U64(|f| Some(f.backward.bulks.packets)),
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
