//! TCP flags.

use super::{dst2src, src2dst};
use crate::column::Column;
use crate::dissect::tcp_flag;
use crate::flow::Flow;
use crate::schema::columns::cross;

pub(super) const COLUMNS: &[Column<Flow>] = cross!(
    |flow| [
        ("bidirectional_", "of either direction", flow),
        ("src2dst_", "from src to dst", src2dst(flow)),
        ("dst2src_", "from dst to src", dst2src(flow)),
    ],
    |sent| [
        ("syn_packets", Packets, "Packets " _ " with the TCP flag SYN.", U64(Some(sent.flag(tcp_flag::SYN)))),
        ("cwr_packets", Packets, "Packets " _ " with the TCP flag CWR.", U64(Some(sent.flag(tcp_flag::CWR)))),
        ("ece_packets", Packets, "Packets " _ " with the TCP flag ECE.", U64(Some(sent.flag(tcp_flag::ECE)))),
        ("urg_packets", Packets, "Packets " _ " with the TCP flag URG.", U64(Some(sent.flag(tcp_flag::URG)))),
        ("ack_packets", Packets, "Packets " _ " with the TCP flag ACK.", U64(Some(sent.flag(tcp_flag::ACK)))),
        ("psh_packets", Packets, "Packets " _ " with the TCP flag PSH.", U64(Some(sent.flag(tcp_flag::PSH)))),
        ("rst_packets", Packets, "Packets " _ " with the TCP flag RST.", U64(Some(sent.flag(tcp_flag::RST)))),
        ("fin_packets", Packets, "Packets " _ " with the TCP flag FIN.", U64(Some(sent.flag(tcp_flag::FIN)))),
    ]
);
