//! `conn.v1`: a flow as a connection, a row for each.

mod connection;

use super::{Rows, Rules, Schema, flow, shared};

pub(super) const SCHEMA: Schema = Schema {
    name: "conn.v1",
    about: "a flow as a connection: state, history, retransmissions, RTT",
    rules: Rules::Own,
    rows: Rows::Flows(&[
        flow::IDENTITY,
        &[shared::PACKETS],
        shared::SENT_PACKETS,
        &[shared::BYTES],
        shared::SENT_BYTES,
        shared::SENT_IP_BYTES,
        shared::SENT_PAYLOAD_BYTES,
        &[shared::DURATION_NS],
        &connection::COLUMNS,
    ]),
};
