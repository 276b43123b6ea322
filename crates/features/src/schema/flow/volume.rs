//! How much was sent, by layer.

use super::of;
use crate::column::Column;
use crate::flow::Flow;
use crate::schema::columns::{columns, directions};
use crate::schema::shared;

pub(super) const COLUMNS: &[Column<Flow>] = columns![
    &[shared::PACKETS],
    shared::SENT_PACKETS,
    &[shared::BYTES],
    shared::SENT_BYTES,
    shared::SENT_IP_BYTES,
    directions!(|sent| [
        ("ip_hdr_bytes", Bytes, "Bytes of IP headers with options and extension headers, sent " _ ".", U64(Some(sent.ip_header_bytes))),
    ]),
    directions!(|sent| [
        ("l4_hdr_bytes", Bytes, "Bytes of transport headers sent " _ ".", U64(Some(sent.l4_header_bytes))),
    ]),
    directions!(|sent| [
        ("min_l4_hdr", Bytes, "Shortest transport header sent " _ "; null without packets.", U32(of(sent, |d| d.min_l4_header))),
    ]),
    &[shared::PAYLOAD_BYTES],
    shared::SENT_PAYLOAD_BYTES,
    shared::SENT_PAYLOAD_PACKETS,
    directions!(|sent| [
        ("min_ttl", None, "Least TTL or hop limit sent " _ "; null without packets.", U8(of(sent, |d| d.min_ttl))),
        ("max_ttl", None, "Greatest TTL or hop limit sent " _ "; null without packets.", U8(of(sent, |d| d.max_ttl))),
        ("tos", None, "DSCP and ECN of the first packet sent " _ "; null without packets.", U8(of(sent, |d| d.tos))),
    ]),
];
