//! What the first payloads tell: whom a client calls, with what, and how random it looks. Columns of QUIC
//! have names of their own, since a flow's transport decides which of the two it can have.

use crate::column::{Column, Unit, Value};
use crate::flow::Flow;
use crate::payload::quic::Connection;
use crate::payload::tls::ClientHello;

pub(super) const COLUMNS: &[Column<Flow>] = &[
    Column::new(
        "tls_sni",
        Unit::None,
        "Server name in the TLS ClientHello that a TCP direction starts with, on any port; in lower case, bytes outside of printable ASCII as \\DDD; null without one.",
        Value::Text(|f: &Flow, out| {
            let name = f.contents.hello().and_then(|hello| hello.sni.as_deref());
            name.is_some_and(|name| out.write_str(name).is_ok())
        }),
    )
    .from_payload(),
    Column::new(
        "tls_ja4",
        Unit::None,
        "JA4 fingerprint of that ClientHello; null without one, and where one of its segments is missing or late.",
        Value::Text(|f: &Flow, out| {
            let hello = f.contents.hello();
            hello.is_some_and(|hello| out.write_str(&hello.ja4).is_ok())
        }),
    )
    .from_payload(),
    Column::new(
        "dns_name",
        Unit::None,
        "Name of the first question of the DNS message in a direction's first payload: with port 53, 5353 or 5355, or a payload that is a whole message; in lower case, without the final dot, bytes outside of printable ASCII as \\DDD; null without one.",
        Value::Text(|f: &Flow, out| {
            let name = f.contents.dns_name();
            name.is_some_and(|name| out.write_str(name).is_ok())
        }),
    )
    .from_payload(),
    Column::new(
        "fwd_first_payload_entropy",
        Unit::BitsPerByte,
        "Shannon entropy of the byte frequencies in what was captured of the first payload sent forward; null without payload.",
        Value::F64(|f: &Flow| f.contents.entropy(0)),
    )
    .from_payload(),
    Column::new(
        "bwd_first_payload_entropy",
        Unit::BitsPerByte,
        "Shannon entropy of the byte frequencies in what was captured of the first payload sent backward; null without payload.",
        Value::F64(|f: &Flow| f.contents.entropy(1)),
    )
    .from_payload(),
    Column::new(
        "tls_alpn",
        Unit::None,
        "Application protocols that the ClientHello of tls_sni offers, in its order with commas between, at most 256 bytes of whole names; commas and bytes outside of printable ASCII as \\DDD; null without any.",
        Value::Text(|f: &Flow, out| {
            let alpn = f.contents.hello().and_then(|hello| hello.alpn.as_deref());
            alpn.is_some_and(|alpn| out.write_str(alpn).is_ok())
        }),
    )
    .from_payload(),
    Column::new(
        "quic_version",
        Unit::None,
        "Version of the QUIC packet that completed the ClientHello, else of the last long header that was looked at; null if no direction of the UDP flow starts with a long header of version 1 or 2, drafts 22 to 34, mvfst, or, in 1200 bytes, of a reserved version (0x?a?a?a?a).",
        Value::U32(|f: &Flow| f.contents.quic().map(Connection::version)),
    )
    .from_payload(),
    Column::new(
        "quic_sni",
        Unit::None,
        "Server name in the ClientHello of the client's QUIC Initial packets, on any port; in the form of tls_sni; null without one.",
        Value::Text(|f: &Flow, out| {
            let name = quic_hello(f).and_then(|hello| hello.sni.as_deref());
            name.is_some_and(|name| out.write_str(name).is_ok())
        }),
    )
    .from_payload(),
    Column::new(
        "quic_alpn",
        Unit::None,
        "Application protocols that the ClientHello of quic_sni offers, in the form of tls_alpn; null without any.",
        Value::Text(|f: &Flow, out| {
            let alpn = quic_hello(f).and_then(|hello| hello.alpn.as_deref());
            alpn.is_some_and(|alpn| out.write_str(alpn).is_ok())
        }),
    )
    .from_payload(),
    Column::new(
        "quic_ja4",
        Unit::None,
        "JA4 fingerprint of the ClientHello of quic_sni, which begins with q; null without one, and where a part of it is missing or cut off.",
        Value::Text(|f: &Flow, out| {
            let hello = quic_hello(f);
            hello.is_some_and(|hello| out.write_str(&hello.ja4).is_ok())
        }),
    )
    .from_payload(),
];

fn quic_hello(flow: &Flow) -> Option<&ClientHello> {
    flow.contents.quic().and_then(Connection::hello)
}
