//! How much was sent.

use crate::column::Column;
use crate::flow::Flow;
use crate::schema::shared;

pub(super) const COLUMNS: &[Column<Flow>] = &[
    shared::PACKETS,
    shared::BYTES,
    shared::PAYLOAD_BYTES,
    shared::FWD_PACKETS,
    shared::FWD_BYTES,
    shared::FWD_IP_BYTES,
    shared::FWD_PAYLOAD_BYTES,
    shared::FWD_PAYLOAD_PACKETS,
    shared::FWD_BULKS,
    shared::FWD_BULK_PACKETS,
    shared::BWD_PACKETS,
    shared::BWD_BYTES,
    shared::BWD_IP_BYTES,
    shared::BWD_PAYLOAD_BYTES,
    shared::BWD_PAYLOAD_PACKETS,
    shared::BWD_BULKS,
    shared::BWD_BULK_PACKETS,
];
