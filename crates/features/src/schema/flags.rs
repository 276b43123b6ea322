//! How many packets have each TCP flag, in the order of the bits: columns of several schemas.

use crate::column::{Column, Unit, Value};
use crate::dissect::tcp_flag;
use crate::flow::Flow;

pub(super) const COLUMNS: &[Column<Flow>] = &[
    Column::new(
        "fin_packets",
        Unit::Packets,
        "Packets with the TCP flag FIN, both directions.",
        Value::U64(|f| Some(f.flag(tcp_flag::FIN))),
    ),
    Column::new(
        "fwd_fin_packets",
        Unit::Packets,
        "Packets with the TCP flag FIN sent forward.",
        Value::U64(|f| Some(f.forward.flag(tcp_flag::FIN))),
    ),
    Column::new(
        "bwd_fin_packets",
        Unit::Packets,
        "Packets with the TCP flag FIN sent backward.",
        Value::U64(|f| Some(f.backward.flag(tcp_flag::FIN))),
    ),
    Column::new(
        "syn_packets",
        Unit::Packets,
        "Packets with the TCP flag SYN, both directions.",
        Value::U64(|f| Some(f.flag(tcp_flag::SYN))),
    ),
    Column::new(
        "fwd_syn_packets",
        Unit::Packets,
        "Packets with the TCP flag SYN sent forward.",
        Value::U64(|f| Some(f.forward.flag(tcp_flag::SYN))),
    ),
    Column::new(
        "bwd_syn_packets",
        Unit::Packets,
        "Packets with the TCP flag SYN sent backward.",
        Value::U64(|f| Some(f.backward.flag(tcp_flag::SYN))),
    ),
    Column::new(
        "rst_packets",
        Unit::Packets,
        "Packets with the TCP flag RST, both directions.",
        Value::U64(|f| Some(f.flag(tcp_flag::RST))),
    ),
    Column::new(
        "fwd_rst_packets",
        Unit::Packets,
        "Packets with the TCP flag RST sent forward.",
        Value::U64(|f| Some(f.forward.flag(tcp_flag::RST))),
    ),
    Column::new(
        "bwd_rst_packets",
        Unit::Packets,
        "Packets with the TCP flag RST sent backward.",
        Value::U64(|f| Some(f.backward.flag(tcp_flag::RST))),
    ),
    Column::new(
        "psh_packets",
        Unit::Packets,
        "Packets with the TCP flag PSH, both directions.",
        Value::U64(|f| Some(f.flag(tcp_flag::PSH))),
    ),
    Column::new(
        "fwd_psh_packets",
        Unit::Packets,
        "Packets with the TCP flag PSH sent forward.",
        Value::U64(|f| Some(f.forward.flag(tcp_flag::PSH))),
    ),
    Column::new(
        "bwd_psh_packets",
        Unit::Packets,
        "Packets with the TCP flag PSH sent backward.",
        Value::U64(|f| Some(f.backward.flag(tcp_flag::PSH))),
    ),
    Column::new(
        "ack_packets",
        Unit::Packets,
        "Packets with the TCP flag ACK, both directions.",
        Value::U64(|f| Some(f.flag(tcp_flag::ACK))),
    ),
    Column::new(
        "fwd_ack_packets",
        Unit::Packets,
        "Packets with the TCP flag ACK sent forward.",
        Value::U64(|f| Some(f.forward.flag(tcp_flag::ACK))),
    ),
    Column::new(
        "bwd_ack_packets",
        Unit::Packets,
        "Packets with the TCP flag ACK sent backward.",
        Value::U64(|f| Some(f.backward.flag(tcp_flag::ACK))),
    ),
    Column::new(
        "urg_packets",
        Unit::Packets,
        "Packets with the TCP flag URG, both directions.",
        Value::U64(|f| Some(f.flag(tcp_flag::URG))),
    ),
    Column::new(
        "fwd_urg_packets",
        Unit::Packets,
        "Packets with the TCP flag URG sent forward.",
        Value::U64(|f| Some(f.forward.flag(tcp_flag::URG))),
    ),
    Column::new(
        "bwd_urg_packets",
        Unit::Packets,
        "Packets with the TCP flag URG sent backward.",
        Value::U64(|f| Some(f.backward.flag(tcp_flag::URG))),
    ),
    Column::new(
        "ece_packets",
        Unit::Packets,
        "Packets with the TCP flag ECE, both directions.",
        Value::U64(|f| Some(f.flag(tcp_flag::ECE))),
    ),
    Column::new(
        "fwd_ece_packets",
        Unit::Packets,
        "Packets with the TCP flag ECE sent forward.",
        Value::U64(|f| Some(f.forward.flag(tcp_flag::ECE))),
    ),
    Column::new(
        "bwd_ece_packets",
        Unit::Packets,
        "Packets with the TCP flag ECE sent backward.",
        Value::U64(|f| Some(f.backward.flag(tcp_flag::ECE))),
    ),
    Column::new(
        "cwr_packets",
        Unit::Packets,
        "Packets with the TCP flag CWR, both directions.",
        Value::U64(|f| Some(f.flag(tcp_flag::CWR))),
    ),
    Column::new(
        "fwd_cwr_packets",
        Unit::Packets,
        "Packets with the TCP flag CWR sent forward.",
        Value::U64(|f| Some(f.forward.flag(tcp_flag::CWR))),
    ),
    Column::new(
        "bwd_cwr_packets",
        Unit::Packets,
        "Packets with the TCP flag CWR sent backward.",
        Value::U64(|f| Some(f.backward.flag(tcp_flag::CWR))),
    ),
];
