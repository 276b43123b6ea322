//! The columns that the kernel can evaluate: their location in struct flow, and the conversion to the value in a row.

use std::mem::offset_of;

use super::skel::flow::types;
use crate::model::Quantity;

/// The values of `enum tree_load`.
const PLAIN: u8 = 0;
pub(super) const LEAF: u8 = 1;
const BOTH: u8 = 2;
const SPAN: u8 = 3;
const MEAN_LENGTH: u8 = 4;
const MEAN_TIME: u8 = 5;
const SOURCE_PORT: u8 = 6;
const DESTINATION_PORT: u8 = 7;

/// A schema's column as a source in the kernel.
#[derive(Clone, Copy)]
pub(super) struct Source {
    pub(super) load: Load,
    /// Converts the loaded value to the integer that trees compare. It is monotonic.
    value: fn(u64) -> i64,
    /// Whether 0 may be loaded where a row has null.
    pub(super) may_be_null: bool,
}

impl Source {
    /// The source of the column with this id, if the kernel has the column.
    pub(super) fn of(id: &str) -> Option<Self> {
        let (schema, name) = id.split_once('/')?;
        let (quantity, value, may_be_null): (_, fn(u64) -> i64, _) = match schema {
            "tree.v1" => (name, whole, false),
            "flow.v1" => of_flow(name)?,
            "cic.v1" => of_cic(name)?,
            "nfstream.v1" => of_nfstream(name)?,
            _ => return None,
        };
        Some(Self {
            load: load(quantity)?,
            value,
            may_be_null,
        })
    }

    /// The greatest loaded value whose converted value is at most `threshold`; `None` if there is none.
    pub(super) fn greatest_at_most(self, threshold: i64) -> Option<u64> {
        let is_left = |loaded| (self.value)(loaded) <= threshold;
        let (mut least, mut greatest) = (0, self.load.greatest());
        if !is_left(least) {
            return None;
        }
        if is_left(greatest) {
            return Some(greatest);
        }
        // Invariant: `least` goes left and `greatest` goes right.
        while greatest - least > 1 {
            let middle = u64::midpoint(least, greatest);
            if is_left(middle) {
                least = middle;
            } else {
                greatest = middle;
            }
        }
        Some(least)
    }
}

fn whole(loaded: u64) -> i64 {
    i64::try_from(loaded).unwrap_or(i64::MAX)
}

/// Converts nanoseconds to microseconds in double precision, as in `cic.v1`.
fn microseconds(loaded: u64) -> i64 {
    Quantity::double(crate::schema::microseconds(loaded))
}

/// Converts nanoseconds to whole milliseconds, as in `nfstream.v1`.
fn milliseconds(loaded: u64) -> i64 {
    whole(loaded / 1_000_000)
}

/// The quantity to load, the conversion to the column's value, and whether a row may have null.
type Meaning<'a> = (&'a str, fn(u64) -> i64, bool);

/// Most columns of `flow.v1` are those of `tree.v1` under the same name, but null where `tree.v1` has 0.
fn of_flow(name: &str) -> Option<Meaning<'_>> {
    let either = name
        .strip_prefix("fwd_")
        .or_else(|| name.strip_prefix("bwd_"));
    let may_be_null = match either.unwrap_or(name) {
        // In `flow.v1` it is a mean in double precision.
        "iat_mean_ns" => return None,
        "duration_ns" => either.is_some(),
        "frame_min" | "frame_max" | "payload_min" | "payload_max" | "tos" | "min_ttl"
        | "max_ttl" | "min_l4_hdr" | "iat_min_ns" | "iat_max_ns" | "idle_min_ns"
        | "idle_max_ns" | "first_window" | "last_window" => true,
        _ => false,
    };
    let quantity = match name {
        "fwd_min_ttl" => "fwd_ttl_min",
        "fwd_max_ttl" => "fwd_ttl_max",
        "bwd_min_ttl" => "bwd_ttl_min",
        "bwd_max_ttl" => "bwd_ttl_max",
        same => same,
    };
    Some((quantity, whole, may_be_null))
}

fn of_cic(name: &str) -> Option<Meaning<'_>> {
    Some(match name {
        "Src Port" => ("src_port", whole, false),
        "Dst Port" => ("dst_port", whole, false),
        "Protocol" => ("protocol", whole, false),
        "Flow Duration" => ("duration_ns", microseconds, false),
        "Total Fwd Packet" => ("fwd_packets", whole, false),
        "Total Bwd packets" => ("bwd_packets", whole, false),
        "Total Length of Fwd Packet" => ("fwd_payload_bytes", whole, false),
        "Total Length of Bwd Packet" => ("bwd_payload_bytes", whole, false),
        "Fwd Packet Length Max" => ("fwd_payload_max", whole, true),
        "Fwd Packet Length Min" => ("fwd_payload_min", whole, true),
        "Bwd Packet Length Max" => ("bwd_payload_max", whole, true),
        "Bwd Packet Length Min" => ("bwd_payload_min", whole, true),
        "Flow IAT Max" => ("iat_max_ns", microseconds, true),
        "Flow IAT Min" => ("iat_min_ns", microseconds, true),
        "Fwd IAT Total" => ("fwd_iat_sum_ns", microseconds, true),
        "Fwd IAT Max" => ("fwd_iat_max_ns", microseconds, true),
        "Fwd IAT Min" => ("fwd_iat_min_ns", microseconds, true),
        "Bwd IAT Total" => ("bwd_iat_sum_ns", microseconds, true),
        "Bwd IAT Max" => ("bwd_iat_max_ns", microseconds, true),
        "Bwd IAT Min" => ("bwd_iat_min_ns", microseconds, true),
        "Fwd PSH Flags" => ("fwd_psh_packets", whole, false),
        "Bwd PSH Flags" => ("bwd_psh_packets", whole, false),
        "Fwd URG Flags" => ("fwd_urg_packets", whole, false),
        "Bwd URG Flags" => ("bwd_urg_packets", whole, false),
        "FIN Flag Count" => ("fin_packets", whole, false),
        "SYN Flag Count" => ("syn_packets", whole, false),
        "RST Flag Count" => ("rst_packets", whole, false),
        "PSH Flag Count" => ("psh_packets", whole, false),
        "ACK Flag Count" => ("ack_packets", whole, false),
        "URG Flag Count" => ("urg_packets", whole, false),
        "CWR Flag Count" => ("cwr_packets", whole, false),
        "ECE Flag Count" => ("ece_packets", whole, false),
        "FWD Init Win Bytes" => ("fwd_first_window", whole, true),
        "Bwd Init Win Bytes" => ("bwd_first_window", whole, true),
        "Fwd Act Data Pkts" => ("fwd_payload_packets", whole, false),
        "Fwd Seg Size Min" => ("fwd_min_l4_hdr", whole, true),
        "Idle Max" => ("idle_max_ns", microseconds, true),
        "Idle Min" => ("idle_min_ns", microseconds, true),
        _ => return None,
    })
}

/// In `nfstream.v1` the source is the sender of the first packet. The kernel's directions depend on the side that
/// opened the connection. Only columns about both directions are therefore the same.
fn of_nfstream(name: &str) -> Option<Meaning<'_>> {
    Some(match name {
        "protocol" => ("protocol", whole, false),
        "ip_version" => ("ip_version", whole, false),
        "bidirectional_packets" => ("packets", whole, false),
        "bidirectional_bytes" => ("bytes", whole, false),
        "bidirectional_min_piat_ms" => ("iat_min_ns", milliseconds, false),
        "bidirectional_max_piat_ms" => ("iat_max_ns", milliseconds, false),
        "bidirectional_syn_packets" => ("syn_packets", whole, false),
        "bidirectional_cwr_packets" => ("cwr_packets", whole, false),
        "bidirectional_ece_packets" => ("ece_packets", whole, false),
        "bidirectional_urg_packets" => ("urg_packets", whole, false),
        "bidirectional_ack_packets" => ("ack_packets", whole, false),
        "bidirectional_psh_packets" => ("psh_packets", whole, false),
        "bidirectional_rst_packets" => ("rst_packets", whole, false),
        "bidirectional_fin_packets" => ("fin_packets", whole, false),
        _ => return None,
    })
}

/// The way in which the kernel loads a column.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) kind: u8,
    pub(super) place: usize,
    pub(super) shift: u8,
}

impl Load {
    /// The greatest value that can be loaded.
    pub(super) fn greatest(self) -> u64 {
        let most = i64::MAX.unsigned_abs();
        match self.kind {
            PLAIN => most.min(u64::MAX >> self.shift),
            _ => most,
        }
    }

    /// The threshold that the kernel compares with. The bits below a plain column belong to other columns, so the
    /// threshold has all of them set.
    pub(super) fn threshold(self, threshold: u64) -> u64 {
        match self.kind {
            PLAIN => threshold << self.shift | ((1 << self.shift) - 1),
            _ => threshold,
        }
    }
}

/// Loads the 64 bits that end with the column.
fn plain(offset: usize, bits: u8) -> Load {
    Load {
        kind: PLAIN,
        place: offset + usize::from(bits / 8) - size_of::<u64>(),
        shift: 64 - bits,
    }
}

/// The location of a `tree.v1` column, or of another quantity, in struct flow.
fn load(name: &str) -> Option<Load> {
    let forward = offset_of!(types::flow, directions);
    let backward = forward + size_of::<types::direction>();
    if let Some(name) = name.strip_prefix("fwd_") {
        return of_direction(name, forward);
    }
    if let Some(name) = name.strip_prefix("bwd_") {
        return of_direction(name, backward);
    }
    let key = offset_of!(types::flow, key);
    let idle = offset_of!(types::flow, periods) + offset_of!(types::periods, idle);
    let kind = |kind, place| Load {
        kind,
        place,
        shift: 0,
    };
    Some(match name {
        "ip_version" => plain(key + offset_of!(types::flow_key, version), 8),
        "protocol" => plain(key + offset_of!(types::flow_key, protocol), 8),
        "src_port" => kind(SOURCE_PORT, 0),
        "dst_port" => kind(DESTINATION_PORT, 0),
        "duration_ns" => kind(SPAN, offset_of!(types::flow, first_ns)),
        "idle_count" => plain(idle + offset_of!(types::times, count), 64),
        "idle_min_ns" => plain(idle + offset_of!(types::times, min), 64),
        "idle_max_ns" => plain(idle + offset_of!(types::times, max), 64),
        "subflow_gaps" => plain(
            offset_of!(types::flow, periods) + offset_of!(types::periods, subflow_gaps),
            64,
        ),
        "out_of_order" => plain(offset_of!(types::flow, out_of_order), 64),
        "packets" | "bytes" | "payload_bytes" | "fin_packets" | "syn_packets" | "rst_packets"
        | "psh_packets" | "ack_packets" | "urg_packets" | "ece_packets" | "cwr_packets" => Load {
            kind: BOTH,
            ..of_direction(name, forward)?
        },
        _ => of_gaps(name, offset_of!(types::flow, gaps))?,
    })
}

fn of_direction(name: &str, direction: usize) -> Option<Load> {
    let bulks = direction + offset_of!(types::direction, bulks);
    let wire = direction + offset_of!(types::direction, wire);
    let payload = direction + offset_of!(types::direction, payload);
    let (offset, bits) = match name {
        "packets" => (wire + offset_of!(types::lengths, count), 64),
        "bytes" => (wire + offset_of!(types::lengths, sum), 64),
        "payload_bytes" => (payload + offset_of!(types::lengths, sum), 64),
        "ip_bytes" => (direction + offset_of!(types::direction, ip_bytes), 64),
        "payload_packets" => (
            direction + offset_of!(types::direction, payload_packets),
            64,
        ),
        "ip_hdr_bytes" => (
            direction + offset_of!(types::direction, ip_header_bytes),
            64,
        ),
        "l4_hdr_bytes" => (
            direction + offset_of!(types::direction, l4_header_bytes),
            64,
        ),
        "min_l4_hdr" => (direction + offset_of!(types::direction, min_l4_header), 32),
        "bulks" => (bulks + offset_of!(types::bulks, count), 64),
        "bulk_packets" => (bulks + offset_of!(types::bulks, packets), 64),
        "ttl_min" => (direction + offset_of!(types::direction, min_ttl), 8),
        "ttl_max" => (direction + offset_of!(types::direction, max_ttl), 8),
        "tos" => (direction + offset_of!(types::direction, tos), 8),
        "first_window" => (direction + offset_of!(types::direction, first_window), 16),
        "last_window" => (direction + offset_of!(types::direction, last_window), 16),
        "duration_ns" => {
            return Some(Load {
                kind: SPAN,
                place: direction + offset_of!(types::direction, first_ns),
                shift: 0,
            });
        }
        _ => {
            let flags = direction + offset_of!(types::direction, flags);
            let gaps = direction + offset_of!(types::direction, gaps);
            return of_flags(name, flags)
                .or_else(|| of_lengths(name.strip_prefix("frame_")?, wire))
                .or_else(|| of_lengths(name.strip_prefix("payload_")?, payload))
                .or_else(|| of_gaps(name, gaps));
        }
    };
    Some(plain(offset, bits))
}

/// Packets with a TCP flag, in the order of the flag bits.
fn of_flags(name: &str, flags: usize) -> Option<Load> {
    const FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];
    let flag = name.strip_suffix("_packets")?;
    let bit = FLAGS.iter().position(|name| *name == flag)?;
    Some(plain(flags + bit * size_of::<u32>(), 32))
}

fn of_lengths(name: &str, lengths: usize) -> Option<Load> {
    Some(match name {
        "min" => plain(lengths + offset_of!(types::lengths, min), 32),
        "max" => plain(lengths + offset_of!(types::lengths, max), 32),
        "mean_q8" => Load {
            kind: MEAN_LENGTH,
            place: lengths,
            shift: 0,
        },
        _ => return None,
    })
}

fn of_gaps(name: &str, gaps: usize) -> Option<Load> {
    Some(match name {
        "iat_min_ns" => plain(gaps + offset_of!(types::times, min), 64),
        "iat_max_ns" => plain(gaps + offset_of!(types::times, max), 64),
        "iat_sum_ns" => plain(gaps + offset_of!(types::times, sum), 64),
        "iat_mean_ns" => Load {
            kind: MEAN_TIME,
            place: gaps,
            shift: 0,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;

    #[test]
    fn the_kernel_has_every_number_of_its_schema() {
        let columns = schema::find("tree.v1").unwrap().columns();
        let numbers = columns
            .iter()
            .filter(|column| column.kind == "u64" && column.name != "flow_id");
        for column in numbers {
            let id = format!("tree.v1/{}", column.name);
            let Source { load, .. } = Source::of(&id).unwrap_or_else(|| panic!("{id}"));
            assert!(load.place + size_of::<u64>() <= size_of::<types::flow>());
            assert!(load.place < 1024, "{id}");
        }
    }

    #[test]
    fn a_threshold_is_the_greatest_of_what_goes_left() {
        let greatest = |id, threshold| Source::of(id).unwrap().greatest_at_most(threshold);
        let duration =
            |microseconds| greatest("cic.v1/Flow Duration", Quantity::double(microseconds));
        assert_eq!(duration(1.5), Some(1500));
        assert_eq!(duration(1.4999), Some(1499));
        assert_eq!(duration(0.0), Some(0));
        assert_eq!(duration(-0.1), None);
        assert_eq!(duration(f64::INFINITY), Some(i64::MAX.unsigned_abs()));
        let gap = "nfstream.v1/bidirectional_min_piat_ms";
        assert_eq!(greatest(gap, 2), Some(2_999_999));
        assert_eq!(greatest("flow.v1/packets", 7), Some(7));
        assert_eq!(greatest("flow.v1/fwd_min_ttl", 1000), Some(255));
    }
}
