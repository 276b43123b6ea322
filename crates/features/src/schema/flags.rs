//! How many packets have each TCP flag, in the order of the bits: columns of several schemas.

use super::columns::{columns, cross};
use crate::column::Column;
use crate::dissect::tcp_flag;
use crate::flow::Flow;

macro_rules! flag {
    ($name:literal, $definition:literal, $flag:ident) => {
        cross!(
            |flow| [
                ("", ", both directions", flow),
                ("fwd_", " sent forward", flow.forward),
                ("bwd_", " sent backward", flow.backward),
            ],
            |sent| [($name, Packets, $definition _ ".", U64(Some(sent.flag(tcp_flag::$flag))))]
        )
    };
}

pub(super) const COLUMNS: &[Column<Flow>] = columns![
    flag!("fin_packets", "Packets with the TCP flag FIN", FIN),
    flag!("syn_packets", "Packets with the TCP flag SYN", SYN),
    flag!("rst_packets", "Packets with the TCP flag RST", RST),
    flag!("psh_packets", "Packets with the TCP flag PSH", PSH),
    flag!("ack_packets", "Packets with the TCP flag ACK", ACK),
    flag!("urg_packets", "Packets with the TCP flag URG", URG),
    flag!("ece_packets", "Packets with the TCP flag ECE", ECE),
    flag!("cwr_packets", "Packets with the TCP flag CWR", CWR),
];
