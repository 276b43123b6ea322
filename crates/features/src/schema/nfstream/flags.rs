//! TCP flags.

use super::{dst2src, src2dst};
use crate::column::{Column, Unit, Value};
use crate::dissect::tcp_flag;
use crate::flow::Flow;
pub(super) const COLUMNS: &[Column<Flow>] = &[
    Column::new(
        "bidirectional_syn_packets",
        Unit::Packets,
        "Packets of either direction with the TCP flag SYN.",
        Value::U64(|f| Some(f.flag(tcp_flag::SYN))),
    ),
    Column::new(
        "bidirectional_cwr_packets",
        Unit::Packets,
        "Packets of either direction with the TCP flag CWR.",
        Value::U64(|f| Some(f.flag(tcp_flag::CWR))),
    ),
    Column::new(
        "bidirectional_ece_packets",
        Unit::Packets,
        "Packets of either direction with the TCP flag ECE.",
        Value::U64(|f| Some(f.flag(tcp_flag::ECE))),
    ),
    Column::new(
        "bidirectional_urg_packets",
        Unit::Packets,
        "Packets of either direction with the TCP flag URG.",
        Value::U64(|f| Some(f.flag(tcp_flag::URG))),
    ),
    Column::new(
        "bidirectional_ack_packets",
        Unit::Packets,
        "Packets of either direction with the TCP flag ACK.",
        Value::U64(|f| Some(f.flag(tcp_flag::ACK))),
    ),
    Column::new(
        "bidirectional_psh_packets",
        Unit::Packets,
        "Packets of either direction with the TCP flag PSH.",
        Value::U64(|f| Some(f.flag(tcp_flag::PSH))),
    ),
    Column::new(
        "bidirectional_rst_packets",
        Unit::Packets,
        "Packets of either direction with the TCP flag RST.",
        Value::U64(|f| Some(f.flag(tcp_flag::RST))),
    ),
    Column::new(
        "bidirectional_fin_packets",
        Unit::Packets,
        "Packets of either direction with the TCP flag FIN.",
        Value::U64(|f| Some(f.flag(tcp_flag::FIN))),
    ),
    Column::new(
        "src2dst_syn_packets",
        Unit::Packets,
        "Packets from src to dst with the TCP flag SYN.",
        Value::U64(|f| Some(src2dst(f).flag(tcp_flag::SYN))),
    ),
    Column::new(
        "src2dst_cwr_packets",
        Unit::Packets,
        "Packets from src to dst with the TCP flag CWR.",
        Value::U64(|f| Some(src2dst(f).flag(tcp_flag::CWR))),
    ),
    Column::new(
        "src2dst_ece_packets",
        Unit::Packets,
        "Packets from src to dst with the TCP flag ECE.",
        Value::U64(|f| Some(src2dst(f).flag(tcp_flag::ECE))),
    ),
    Column::new(
        "src2dst_urg_packets",
        Unit::Packets,
        "Packets from src to dst with the TCP flag URG.",
        Value::U64(|f| Some(src2dst(f).flag(tcp_flag::URG))),
    ),
    Column::new(
        "src2dst_ack_packets",
        Unit::Packets,
        "Packets from src to dst with the TCP flag ACK.",
        Value::U64(|f| Some(src2dst(f).flag(tcp_flag::ACK))),
    ),
    Column::new(
        "src2dst_psh_packets",
        Unit::Packets,
        "Packets from src to dst with the TCP flag PSH.",
        Value::U64(|f| Some(src2dst(f).flag(tcp_flag::PSH))),
    ),
    Column::new(
        "src2dst_rst_packets",
        Unit::Packets,
        "Packets from src to dst with the TCP flag RST.",
        Value::U64(|f| Some(src2dst(f).flag(tcp_flag::RST))),
    ),
    Column::new(
        "src2dst_fin_packets",
        Unit::Packets,
        "Packets from src to dst with the TCP flag FIN.",
        Value::U64(|f| Some(src2dst(f).flag(tcp_flag::FIN))),
    ),
    Column::new(
        "dst2src_syn_packets",
        Unit::Packets,
        "Packets from dst to src with the TCP flag SYN.",
        Value::U64(|f| Some(dst2src(f).flag(tcp_flag::SYN))),
    ),
    Column::new(
        "dst2src_cwr_packets",
        Unit::Packets,
        "Packets from dst to src with the TCP flag CWR.",
        Value::U64(|f| Some(dst2src(f).flag(tcp_flag::CWR))),
    ),
    Column::new(
        "dst2src_ece_packets",
        Unit::Packets,
        "Packets from dst to src with the TCP flag ECE.",
        Value::U64(|f| Some(dst2src(f).flag(tcp_flag::ECE))),
    ),
    Column::new(
        "dst2src_urg_packets",
        Unit::Packets,
        "Packets from dst to src with the TCP flag URG.",
        Value::U64(|f| Some(dst2src(f).flag(tcp_flag::URG))),
    ),
    Column::new(
        "dst2src_ack_packets",
        Unit::Packets,
        "Packets from dst to src with the TCP flag ACK.",
        Value::U64(|f| Some(dst2src(f).flag(tcp_flag::ACK))),
    ),
    Column::new(
        "dst2src_psh_packets",
        Unit::Packets,
        "Packets from dst to src with the TCP flag PSH.",
        Value::U64(|f| Some(dst2src(f).flag(tcp_flag::PSH))),
    ),
    Column::new(
        "dst2src_rst_packets",
        Unit::Packets,
        "Packets from dst to src with the TCP flag RST.",
        Value::U64(|f| Some(dst2src(f).flag(tcp_flag::RST))),
    ),
    Column::new(
        "dst2src_fin_packets",
        Unit::Packets,
        "Packets from dst to src with the TCP flag FIN.",
        Value::U64(|f| Some(dst2src(f).flag(tcp_flag::FIN))),
    ),
];
