//! What the first payloads tell: whom a client calls, with what, and how random it looks.

use crate::column::{Column, Unit, Value};
use crate::flow::Flow;

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
];
