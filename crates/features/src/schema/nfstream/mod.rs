//! `nfstream.v1`: the columns of NFStream 6.6 with statistics and first packets, by its definitions.
//!
//! Where it and they differ, the documentation's page on it says so. What NFStream has no value for
//! is zero there, and so here.

mod first;
mod flags;
mod gaps;
mod identity;
mod sizes;
mod volume;

use super::{Rows, Rules, Schema};
use crate::flow::{Direction, Flow};

pub(super) const SCHEMA: Schema = Schema {
    name: "nfstream.v1",
    about: "the columns of NFStream 6.6, with its values",
    rules: Rules::NfStream,
    rows: Rows::Flows(&[
        identity::COLUMNS,
        volume::COLUMNS,
        sizes::COLUMNS,
        gaps::COLUMNS,
        flags::COLUMNS,
        first::COLUMNS,
    ]),
};

const NS_PER_MS: u64 = 1_000_000;

/// What the sender of the first packet has sent: NFStream's source, whatever that packet was.
fn src2dst(flow: &Flow) -> &Direction {
    if flow.opener == flow.initiator {
        &flow.forward
    } else {
        &flow.backward
    }
}

fn dst2src(flow: &Flow) -> &Direction {
    if flow.opener == flow.initiator {
        &flow.backward
    } else {
        &flow.forward
    }
}

fn milliseconds(time_ns: i64) -> i64 {
    time_ns.div_euclid(NS_PER_MS.cast_signed())
}

/// Between the times as they are shown, as NFStream has it.
fn duration(direction: &Direction) -> i64 {
    milliseconds(direction.last_ns) - milliseconds(direction.first_ns)
}

fn or_zero<T: Default>(value: Option<T>) -> Option<T> {
    value.or_else(|| Some(T::default()))
}

/// A time in whole milliseconds.
fn whole(time_ns: Option<u64>) -> Option<u64> {
    or_zero(time_ns.map(|time_ns| time_ns / NS_PER_MS))
}

/// A time in milliseconds.
fn fraction(time_ns: Option<f64>) -> Option<f64> {
    or_zero(time_ns.map(|time_ns| time_ns / 1e6))
}

#[cfg(test)]
mod tests {
    use packet::build;
    use packet::pcap::{ETHERNET, Frame};

    use super::*;
    use crate::column::Value;
    use crate::dissect::tcp_flag::{ACK, SYN};
    use crate::{Extractor, Options};

    /// A flow whose first packet answers one that was not seen; its second comes 2.7 ms later.
    fn answered() -> Flow {
        let (client, server) = ("192.0.2.1:5000", "192.0.2.2:80");
        let (client, server) = (client.parse().unwrap(), server.parse().unwrap());
        let answer = build::tcp(server, client, SYN | ACK, 1).frame();
        let request = build::tcp(client, server, ACK, 0).payload([0; 46]).frame();
        let mut flows = Vec::new();
        let mut extractor = Extractor::new(&Options::default(), |flow| flows.push(flow));
        for (timestamp_ns, bytes) in [(1_000_300_000, &answer), (1_003_000_000, &request)] {
            let frame = Frame {
                timestamp_ns,
                original_length: u32::try_from(bytes.len()).unwrap(),
                link_type: ETHERNET,
                bytes,
            };
            extractor.frame(&frame);
        }
        extractor.finish();
        assert_eq!(flows.len(), 1);
        *flows.remove(0)
    }

    /// A column's value, as text.
    fn value(flow: &Flow, name: &str) -> String {
        let groups = SCHEMA.flow_columns().unwrap();
        let mut columns = groups.iter().copied().flatten();
        let column = columns.find(|column| column.name == name).unwrap();
        let mut items = Vec::new();
        let mut text = String::new();
        match column.value {
            Value::U16(of) => of(flow).unwrap().to_string(),
            Value::U64(of) => of(flow).unwrap().to_string(),
            Value::I64(of) => of(flow).unwrap().to_string(),
            Value::F64(of) => of(flow).unwrap().to_string(),
            Value::I32List(each) => {
                each(flow, &mut |item| items.push(item.into()));
                format!("{items:?}")
            }
            Value::U64List(each) => {
                each(flow, &mut |item| items.push(item.cast_signed()));
                format!("{items:?}")
            }
            Value::Text(write) => {
                assert!(write(flow, &mut text));
                text
            }
            _ => panic!("{name} is of another type"),
        }
    }

    #[test]
    fn there_are_eighty_columns() {
        assert_eq!(SCHEMA.columns().len(), 80);
    }

    #[test]
    fn the_sender_of_the_first_packet_is_the_source_even_of_an_answer() {
        let flow = answered();
        for (name, expected) in [
            ("src_ip", "192.0.2.2"),
            ("src_port", "80"),
            ("src_mac", "02:00:00:00:00:01"),
            ("src_oui", "02:00:00"),
            ("dst_port", "5000"),
            ("dst_mac", "02:00:00:00:00:02"),
            ("src2dst_syn_packets", "1"),
            ("dst2src_syn_packets", "0"),
            ("splt_direction", "[0, 1]"),
            ("splt_ps", "[58, 100]"),
        ] {
            assert_eq!(value(&flow, name), expected, "{name}");
        }
    }

    #[test]
    fn times_are_in_milliseconds_and_zero_where_there_are_none() {
        let flow = answered();
        for (name, expected) in [
            ("bidirectional_first_seen_ms", "1000"),
            ("bidirectional_last_seen_ms", "1003"),
            ("bidirectional_duration_ms", "3"),
            ("bidirectional_min_piat_ms", "2"),
            ("bidirectional_mean_piat_ms", "2.7"),
            ("bidirectional_stddev_piat_ms", "0"),
            ("src2dst_mean_piat_ms", "0"),
            ("src2dst_stddev_ps", "0"),
            ("splt_piat_ms", "[0, 2]"),
            ("expiration_id", "0"),
        ] {
            assert_eq!(value(&flow, name), expected, "{name}");
        }
    }
}
