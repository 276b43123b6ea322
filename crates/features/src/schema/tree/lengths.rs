//! How long packets are, and what their IP headers say.

use super::mean_q8;
use crate::column::Column;
use crate::flow::Flow;
use crate::schema::columns::directions;

pub(super) const COLUMNS: &[Column<Flow>] = directions!(|sent| [
    ("frame_min", Bytes, "Least of the frame lengths sent " _ ".", U64(Some(sent.wire.min.into()))),
    ("frame_max", Bytes, "Greatest of the frame lengths sent " _ ".", U64(Some(sent.wire.max.into()))),
    ("frame_mean_q8", Bytes, "256 times the mean of the frame lengths sent " _ ", rounded down.", U64(Some(mean_q8(&sent.wire)))),
    ("payload_min", Bytes, "Least of the payload lengths, empty ones included, sent " _ ".", U64(Some(sent.payload.min.into()))),
    ("payload_max", Bytes, "Greatest of the payload lengths, empty ones included, sent " _ ".", U64(Some(sent.payload.max.into()))),
    ("payload_mean_q8", Bytes, "256 times the mean of the payload lengths, empty ones included, sent " _ ", rounded down.", U64(Some(mean_q8(&sent.payload)))),
    ("ttl_min", None, "Least time to live or hop limit sent " _ ".", U64(Some(sent.min_ttl.into()))),
    ("ttl_max", None, "Greatest time to live or hop limit sent " _ ".", U64(Some(sent.max_ttl.into()))),
    ("tos", None, "DSCP and ECN of the first packet sent " _ ", as one byte.", U64(Some(sent.tos.into()))),
]);
