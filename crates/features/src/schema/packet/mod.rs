//! `packet.v1`: what is known of a packet, a row for each.

mod headers;
mod identity;
mod lengths;

use super::{Rows, Rules, Schema};

pub(super) const SCHEMA: Schema = Schema {
    name: "packet.v1",
    about: "a packet a row: what its headers say, and its place in its flow",
    rules: Rules::Own,
    rows: Rows::Packets(&[identity::COLUMNS, lengths::COLUMNS, headers::COLUMNS]),
};
