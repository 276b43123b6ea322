//! Flags, headers, and payloads of both directions together.

use super::per_second;
use crate::column::{Column, Unit, Value};
use crate::dissect::tcp_flag;
use crate::flow::Flow;

pub(super) const COLUMNS: &[Column<Flow>] = &[
    Column::new(
        "Fwd PSH Flags",
        Unit::Packets,
        "Packets with the TCP flag PSH sent forward.",
        Value::U64(|f| Some(f.forward.flag(tcp_flag::PSH))),
    ),
    Column::new(
        "Bwd PSH Flags",
        Unit::Packets,
        "Packets with the TCP flag PSH sent backward.",
        Value::U64(|f| Some(f.backward.flag(tcp_flag::PSH))),
    ),
    Column::new(
        "Fwd URG Flags",
        Unit::Packets,
        "Packets with the TCP flag URG sent forward.",
        Value::U64(|f| Some(f.forward.flag(tcp_flag::URG))),
    ),
    Column::new(
        "Bwd URG Flags",
        Unit::Packets,
        "Packets with the TCP flag URG sent backward.",
        Value::U64(|f| Some(f.backward.flag(tcp_flag::URG))),
    ),
    Column::new(
        "Fwd Header Length",
        Unit::Bytes,
        "Bytes of IP headers, with options and extension headers, and of transport headers, sent forward.",
        Value::U64(|f| Some(f.forward.ip_header_bytes + f.forward.l4_header_bytes)),
    ),
    Column::new(
        "Bwd Header Length",
        Unit::Bytes,
        "Bytes of IP headers, with options and extension headers, and of transport headers, sent backward.",
        Value::U64(|f| Some(f.backward.ip_header_bytes + f.backward.l4_header_bytes)),
    ),
    Column::new(
        "Fwd Packets/s",
        Unit::PacketsPerSecond,
        "Packets sent forward by the flow's duration; null when that is zero.",
        Value::F64(|f| per_second(f.forward.packets(), f.duration_ns())),
    ),
    Column::new(
        "Bwd Packets/s",
        Unit::PacketsPerSecond,
        "Packets sent backward by the flow's duration; null when that is zero.",
        Value::F64(|f| per_second(f.backward.packets(), f.duration_ns())),
    ),
    Column::new(
        "Packet Length Min",
        Unit::Bytes,
        "Least payload of either direction, empty ones included.",
        Value::U64(|f| f.payload().min()),
    ),
    Column::new(
        "Packet Length Max",
        Unit::Bytes,
        "Greatest payload of either direction.",
        Value::U64(|f| f.payload().max()),
    ),
    Column::new(
        "Packet Length Mean",
        Unit::Bytes,
        "Mean payload of either direction, empty ones included, each packet once.",
        Value::F64(|f| f.payload().mean()),
    ),
    Column::new(
        "Packet Length Std",
        Unit::Bytes,
        "Sample standard deviation of the payloads, each packet once; null below two packets.",
        Value::F64(|f| f.payload().std()),
    ),
    Column::new(
        "Packet Length Variance",
        Unit::SquareBytes,
        "Sample variance of the payloads, each packet once; null below two packets.",
        Value::F64(|f| f.payload().variance()),
    ),
    Column::new(
        "FIN Flag Count",
        Unit::Packets,
        "Packets with the TCP flag FIN, both directions.",
        Value::U64(|f| Some(f.flag(tcp_flag::FIN))),
    ),
    Column::new(
        "SYN Flag Count",
        Unit::Packets,
        "Packets with the TCP flag SYN, both directions.",
        Value::U64(|f| Some(f.flag(tcp_flag::SYN))),
    ),
    Column::new(
        "RST Flag Count",
        Unit::Packets,
        "Packets with the TCP flag RST, both directions.",
        Value::U64(|f| Some(f.flag(tcp_flag::RST))),
    ),
    Column::new(
        "PSH Flag Count",
        Unit::Packets,
        "Packets with the TCP flag PSH, both directions.",
        Value::U64(|f| Some(f.flag(tcp_flag::PSH))),
    ),
    Column::new(
        "ACK Flag Count",
        Unit::Packets,
        "Packets with the TCP flag ACK, both directions.",
        Value::U64(|f| Some(f.flag(tcp_flag::ACK))),
    ),
    Column::new(
        "URG Flag Count",
        Unit::Packets,
        "Packets with the TCP flag URG, both directions.",
        Value::U64(|f| Some(f.flag(tcp_flag::URG))),
    ),
    Column::new(
        "CWR Flag Count",
        Unit::Packets,
        "Packets with the TCP flag CWR, both directions.",
        Value::U64(|f| Some(f.flag(tcp_flag::CWR))),
    ),
    Column::new(
        "ECE Flag Count",
        Unit::Packets,
        "Packets with the TCP flag ECE, both directions.",
        Value::U64(|f| Some(f.flag(tcp_flag::ECE))),
    ),
];
