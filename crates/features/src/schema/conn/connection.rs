//! State and history, and what the sequence numbers and timestamps of TCP tell.

use crate::column::{Column, Unit, Value};
use crate::flow::{Connection, Flow, Segments};
use crate::schema::columns::{count, cross, join};

/// The same columns of what was sent forward, then of what was sent backward.
macro_rules! sides {
    (|$of:ident| $columns:tt) => {
        cross!(
            |flow| [
                ("fwd_", "forward", segments(flow, 0)),
                ("bwd_", "backward", segments(flow, 1)),
            ],
            |$of| $columns
        )
    };
}

const GROUPS: &[&[Column<Flow>]] = &[
    &[
        Column::new(
            "conn_state",
            Unit::None,
            "State of the connection by the names and rules of Zeek's conn.log: S0, S1, SF, REJ, S2, S3, RSTO, RSTR, RSTOS0, RSTRH, SH, SHR or OTH; of UDP S0, SF or SHR; OTH of other protocols.",
            Value::Text(|f: &Flow, out| {
                let connection = f.connection.as_ref();
                connection.is_some_and(|connection| out.write_str(connection.state()).is_ok())
            }),
        ),
        Column::new(
            "history",
            Unit::None,
            "Events of the connection by the letters and rules of Zeek's conn.log, upper case of the source and lower case of the destination: s SYN, h SYN with ACK, a ACK, d data, f FIN, r RST, c wrong checksum, g gap, t retransmission, w zero window, i FIN with RST, q SYN with FIN or RST; ^ first where the destination sent the first packet, x last where more than 100 letters were due; null without an event, and unless TCP or UDP.",
            Value::Text(|f: &Flow, out| {
                let history = f.connection.as_ref().and_then(|of| of.history());
                history.is_some_and(|history| out.write_str(history).is_ok())
            }),
        ),
    ],
    sides!(|sent| [
        ("retransmissions", Packets, "TCP segments sent " _ " that repeat a byte, SYN or FIN that was seen, or fill a gap that was acknowledged or is older than the handshake's round trip, 3 ms where that is not known; null unless TCP.", U64(sent.map(|sent| sent.retransmissions))),
        ("out_of_order_segments", Packets, "TCP segments sent " _ " that fill a gap in the sequence numbers without being retransmissions; null unless TCP.", U64(sent.map(|sent| sent.out_of_order))),
        ("zero_windows", Packets, "TCP segments sent " _ " without SYN, FIN and RST that announce a window of 0; null unless TCP.", U64(sent.map(|sent| sent.zero_windows))),
    ]),
    &[
        Column::new(
            "synack_rtt_us",
            Unit::Microseconds,
            "From the SYN of the source to the SYN with ACK that answers it; null without them, and where the SYN was sent twice before.",
            Value::F64(|f: &Flow| microseconds(f, Connection::answer_ns)),
        ),
        Column::new(
            "ack_rtt_us",
            Unit::Microseconds,
            "From the SYN with ACK of the destination to the ACK that answers it; null without them, and where the SYN with ACK was sent twice before.",
            Value::F64(|f: &Flow| microseconds(f, Connection::end_of_handshake_ns)),
        ),
    ],
    sides!(|sent| [
        ("rtt_min_us", Microseconds, "Shortest time from a TCP timestamp sent " _ ", in the first segment with it that takes sequence numbers, to its first echo; at most 8 wait for their echoes at a time; null without an echo.", F64(sent.and_then(|sent| sent.rtt_min_ns).map(thousandth))),
        ("rtt_mean_us", Microseconds, "Mean time from a TCP timestamp sent " _ ", in the first segment with it that takes sequence numbers, to its first echo; at most 8 wait for their echoes at a time; null without an echo.", F64(sent.and_then(|sent| sent.rtt_mean_ns).map(|mean_ns| mean_ns / 1e3))),
    ]),
    &[Column::new(
        "syn_fingerprint",
        Unit::None,
        "The first SYN without ACK of the source in the form of p0f 3's signatures, ver:ittl:olen:mss:wsize,scale:olayout:quirks:pclass, with the initial TTL that is next to the one seen, or the one seen and +? if that is more than 35 hops away; null without a SYN, and where its header is cut off.",
        Value::Text(|f: &Flow, out| {
            let fingerprint = f.connection.as_ref().and_then(|of| of.syn_fingerprint());
            fingerprint.is_some_and(|fingerprint| out.write_str(fingerprint).is_ok())
        }),
    )],
];

pub(super) const COLUMNS: [Column<Flow>; count(GROUPS)] = from_connection(join(GROUPS));

const fn from_connection<const N: usize>(mut columns: [Column<Flow>; N]) -> [Column<Flow>; N] {
    let mut column = 0;
    while column < N {
        columns[column] = columns[column].from_connection();
        column += 1;
    }
    columns
}

fn segments(flow: &Flow, side: usize) -> Option<Segments> {
    flow.connection.as_ref()?.segments(side)
}

fn microseconds(flow: &Flow, of: fn(&Connection) -> Option<u64>) -> Option<f64> {
    flow.connection.as_deref().and_then(of).map(thousandth)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "times are given in double precision"
)]
fn thousandth(time_ns: u64) -> f64 {
    time_ns as f64 / 1e3
}
