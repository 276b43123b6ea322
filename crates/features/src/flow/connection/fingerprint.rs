//! A SYN's fingerprint in the form of p0f 3's signatures: `ver:ittl:olen:mss:wsize,scale:olayout:quirks:pclass`.

use std::fmt::Write;

use crate::dissect::{Packet, tcp_flag};

use super::options::{self, TcpOption};

/// Common initial TTL values.
const INITIAL_TTLS: [u8; 4] = [32, 64, 128, 255];
/// The assumed maximum of hops. An initial TTL that would require more is not assumed.
const MAX_HOPS: u8 = 35;
/// IP and TCP headers without options, in bytes.
const V4_HEADERS: u16 = 40;
const V6_HEADERS: u16 = 60;
/// Bytes of the timestamps option in a segment.
const TIMESTAMPS: u16 = 12;
const ETHERNET_MTU: u16 = 1500;
/// RFC 7323.
const MAX_SHIFT: u8 = 14;

/// The options of a SYN.
#[derive(Debug, Default)]
struct Options {
    segment_size: u16,
    shift: u8,
    /// Whether its own timestamp is not 0.
    has_timestamp: bool,
    layout: String,
    quirks: Vec<&'static str>,
}

/// The fingerprint of a SYN; `None` if the capture truncated its headers.
pub(super) fn of(packet: &Packet<'_>) -> Option<Box<str>> {
    let tcp = packet.tcp.filter(|_| !packet.headless)?;
    let header = packet
        .network
        .get(packet.ip_header as usize..)?
        .get(..packet.l4_header as usize)?;
    let options = read(options::bytes(packet));
    let version = packet.key.version;
    let plain = if version == 4 { 20 } else { 40 };
    let mut text = format!("{version}:");
    initial_ttl(packet.ttl, &mut text);
    let option_bytes = packet.ip_header.saturating_sub(plain);
    let _ = write!(text, ":{option_bytes}:{}:", options.segment_size);
    let headers = u16::try_from(packet.ip_header + packet.l4_header).unwrap_or(u16::MAX);
    window(tcp.window, &options, version, headers, &mut text);
    let _ = write!(text, ",{}:{}:", options.shift, options.layout);
    let mut quirks = network_quirks(packet);
    quirks.extend(tcp_quirks(packet, header));
    quirks.extend(&options.quirks);
    text.push_str(&quirks.join(","));
    text.push_str(if packet.payload_length > 0 {
        ":+"
    } else {
        ":0"
    });
    Some(text.into())
}

fn initial_ttl(ttl: u8, text: &mut String) {
    let initial = INITIAL_TTLS.into_iter().find(|initial| ttl <= *initial);
    let _ = match initial.filter(|initial| initial - ttl <= MAX_HOPS) {
        Some(initial) => write!(text, "{initial}"),
        None => write!(text, "{ttl}+?"),
    };
}

/// Writes the window: as a multiple of the MSS or MTU if it is a multiple of one of their usual values.
fn window(window: u16, options: &Options, version: u8, headers: u16, text: &mut String) {
    let size = options.segment_size;
    let by_timestamps = |size: u16| {
        options
            .has_timestamp
            .then(|| size.saturating_sub(TIMESTAMPS))
    };
    let [v4, v6] = [V4_HEADERS, V6_HEADERS].map(|headers| ETHERNET_MTU - headers);
    let is_v6 = version == 6;
    let sizes = [
        Some(size),
        by_timestamps(size),
        Some(v4),
        Some(v4 - TIMESTAMPS),
        is_v6.then_some(v6),
        is_v6.then_some(v6 - TIMESTAMPS),
    ];
    let units = [
        size.checked_add(V4_HEADERS),
        size.checked_add(headers),
        size.checked_add(V6_HEADERS).filter(|_| is_v6),
        Some(ETHERNET_MTU),
    ];
    let multiple = |units: &[Option<u16>]| {
        let mut units = units.iter().flatten().filter(|unit| **unit > 0);
        units.find_map(|unit| window.is_multiple_of(*unit).then(|| window / unit))
    };
    // An MSS below 100 does not determine the window.
    let is_known = window > 0 && size >= 100;
    let _ = match (multiple(&sizes), multiple(&units)) {
        (Some(times), _) if is_known => write!(text, "mss*{times}"),
        (_, Some(times)) if is_known => write!(text, "mtu*{times}"),
        _ => write!(text, "{window}"),
    };
}

fn read(bytes: &[u8]) -> Options {
    let mut found = Options::default();
    let mut names = Vec::new();
    for option in options::all(bytes) {
        match option {
            TcpOption::End { padding, is_zero } => {
                names.push(format!("eol+{padding}"));
                found.quirk(!is_zero, "opt+");
            }
            TcpOption::NoOperation => names.push("nop".to_owned()),
            TcpOption::SegmentSize(size) => {
                names.push("mss".to_owned());
                found.segment_size = size;
            }
            TcpOption::WindowScale(shift) => {
                names.push("ws".to_owned());
                found.shift = shift;
                found.quirk(shift > MAX_SHIFT, "exws");
            }
            TcpOption::SackPermitted => names.push("sok".to_owned()),
            TcpOption::Sack => names.push("sack".to_owned()),
            TcpOption::Timestamps(timestamps) => {
                names.push("ts".to_owned());
                found.has_timestamp = timestamps.value != 0;
                found.quirk(timestamps.value == 0, "ts1-");
                found.quirk(timestamps.echo != 0, "ts2+");
            }
            TcpOption::Unknown(kind) => names.push(format!("?{kind}")),
            TcpOption::Malformed => found.quirk(true, "bad"),
        }
    }
    found.layout = names.join(",");
    // p0f lists the quirks in this order, independent of the order of the options.
    let order = ["ts1-", "ts2+", "opt+", "exws", "bad"];
    found
        .quirks
        .sort_by_key(|quirk| order.iter().position(|known| known == quirk));
    found.quirks.dedup();
    found
}

impl Options {
    fn quirk(&mut self, holds: bool, name: &'static str) {
        if holds {
            self.quirks.push(name);
        }
    }
}

fn network_quirks(packet: &Packet<'_>) -> Vec<&'static str> {
    const RESERVED_BIT: u8 = 0x80;
    const DONT_FRAGMENT: u8 = 0x40;

    let is_v4 = packet.key.version == 4;
    let flags = packet.network.get(6).copied().filter(|_| is_v4);
    let has = |flag| flags.is_some_and(|flags| flags & flag != 0);
    let label = packet.network.get(1..4).filter(|_| !is_v4);
    let has_label = label.is_some_and(|label| label[0] & 0x0f != 0 || label[1..] != [0, 0]);
    let dont_fragment = has(DONT_FRAGMENT);
    let is_numbered = packet.identification != 0;
    let congestion = packet.tos & 3 != 0 || packet.has_flag(tcp_flag::ECE | tcp_flag::CWR);
    names([
        (dont_fragment, "df"),
        (dont_fragment && is_numbered, "id+"),
        (is_v4 && !dont_fragment && !is_numbered, "id-"),
        (congestion, "ecn"),
        (has(RESERVED_BIT), "0+"),
        (has_label, "flow"),
    ])
}

fn tcp_quirks(packet: &Packet<'_>, header: &[u8]) -> Vec<&'static str> {
    let tcp = packet.tcp.unwrap_or_default();
    let has_urgent = header.get(18..20).is_some_and(|urgent| urgent != [0, 0]);
    let is_urgent = packet.has_flag(tcp_flag::URG);
    names([
        (tcp.sequence == 0, "seq-"),
        (tcp.acknowledgement != 0, "ack+"),
        (has_urgent && !is_urgent, "uptr+"),
        (is_urgent, "urgf+"),
        (packet.has_flag(tcp_flag::PSH), "pushf+"),
    ])
}

fn names<const N: usize>(quirks: [(bool, &'static str); N]) -> Vec<&'static str> {
    let quirks = quirks.into_iter().filter(|(holds, _)| *holds);
    quirks.map(|(_, name)| name).collect()
}
