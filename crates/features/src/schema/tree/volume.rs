//! How much was sent.

use crate::column::Column;
use crate::flow::Flow;
use crate::schema::columns::columns;
use crate::schema::shared;

pub(super) const COLUMNS: &[Column<Flow>] = columns![
    &[shared::PACKETS, shared::BYTES, shared::PAYLOAD_BYTES],
    &sent(0),
    &sent(1),
];

/// What was sent forward (0) or backward (1).
const fn sent(direction: usize) -> [Column<Flow>; 7] {
    [
        shared::SENT_PACKETS[direction],
        shared::SENT_BYTES[direction],
        shared::SENT_IP_BYTES[direction],
        shared::SENT_PAYLOAD_BYTES[direction],
        shared::SENT_PAYLOAD_PACKETS[direction],
        shared::BULKS[4 * direction],
        shared::BULKS[4 * direction + 1],
    ]
}
