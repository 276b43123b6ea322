//! The endpoints of a flow, and the reason that the row ended.

use std::fmt::Write;

use crate::column::{Column, Unit, Value};
use crate::dissect::Tunnel;
use crate::flow::{End, Flow};
use crate::key::Sender;
use crate::text::{self, mac};
pub(super) const COLUMNS: &[Column<Flow>] = &[
    Column::new(
        "id",
        Unit::None,
        "The same for the same endpoints, protocol, tags, start and initial sequence number, on every datapath.",
        Value::U64(|f| Some(f.id())),
    ),
    Column::new(
        "expiration_id",
        Unit::None,
        "Why the row was exported: 0 for the idle timeout or the end of the capture, 1 for the active timeout, -1 for another reason.",
        Value::I64(|f| Some(expiration(f.end))),
    ),
    Column::new(
        "src_ip",
        Unit::None,
        "Address of the side that sent the first packet.",
        Value::Text(|f, out| ip(f, f.opener, out)),
    ),
    Column::new(
        "src_mac",
        Unit::None,
        "Hardware source address of the first packet; zeros without one.",
        Value::Text(|f, out| mac(macs(f)[0], out)),
    ),
    Column::new(
        "src_oui",
        Unit::None,
        "The first half of src_mac.",
        Value::Text(|f, out| oui(macs(f)[0], out)),
    ),
    Column::new(
        "src_port",
        Unit::None,
        "Port of the side that sent the first packet; 0 where the protocol has none.",
        Value::U16(|f| Some(f.key.endpoint(f.opener).port)),
    ),
    Column::new(
        "dst_ip",
        Unit::None,
        "Address of the other side.",
        Value::Text(|f, out| ip(f, f.opener.other(), out)),
    ),
    Column::new(
        "dst_mac",
        Unit::None,
        "Hardware destination address of the first packet; zeros without one.",
        Value::Text(|f, out| mac(macs(f)[1], out)),
    ),
    Column::new(
        "dst_oui",
        Unit::None,
        "The first half of dst_mac.",
        Value::Text(|f, out| oui(macs(f)[1], out)),
    ),
    Column::new(
        "dst_port",
        Unit::None,
        "Port of the other side; 0 where the protocol has none.",
        Value::U16(|f| Some(f.key.endpoint(f.opener.other()).port)),
    ),
    Column::new(
        "protocol",
        Unit::None,
        "IP protocol number, after extension headers.",
        Value::U8(|f| Some(f.key.protocol)),
    ),
    Column::new(
        "ip_version",
        Unit::None,
        "4 or 6.",
        Value::U8(|f| Some(f.key.version)),
    ),
    Column::new(
        "vlan_id",
        Unit::None,
        "Outermost VLAN id of the first packet; 0 without a tag.",
        Value::U16(|f| Some(f.vlan)),
    ),
    Column::new(
        "tunnel_id",
        Unit::None,
        "Identifier of the innermost tunnel, of packets that the side sent which sent the first packet: VNI, GRE key or TEID; 0 without one, or when flows are told apart by outer addresses.",
        Value::U32(|f| Some(f.tunnel(f.opener).map_or(0, Tunnel::id))),
    ),
];

fn expiration(end: End) -> i64 {
    match end {
        End::Idle | End::Stopped => 0,
        End::Active => 1,
        End::Closed | End::Full | End::Early => -1,
    }
}

fn ip(flow: &Flow, sender: Sender, out: &mut dyn Write) -> bool {
    let address = flow.key.endpoint(sender).ip(flow.key.version);
    text::ip(address, out)
}

/// Source and destination of the first packet, whoever opened the conversation.
fn macs(flow: &Flow) -> [[u8; 6]; 2] {
    let macs = [flow.source_mac, flow.destination_mac];
    if flow.opener == flow.initiator {
        macs
    } else {
        [macs[1], macs[0]]
    }
}

fn oui(address: [u8; 6], out: &mut dyn Write) -> bool {
    let [a, b, c, ..] = address;
    mac([a, b, c], out)
}
