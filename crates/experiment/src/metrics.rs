//! The names, units and directions of every metric: one table for all experiments.

use report::record::{Better, Effect, Metric};

use crate::jobs::netbench::metric_names;

/// (name, unit, better, effect)
type Row = (&'static str, &'static str, Better, Effect);

const DELAYS: &[Row] = &[
    ("delay_p50", "us", Better::Lower, Effect::Ratio),
    ("delay_p99", "us", Better::Lower, Effect::Ratio),
    ("added_delay_p50", "us", Better::Lower, Effect::Difference),
];

/// Metrics whose values are quantiles of a [`stats::Histogram`].
const QUANTILES: [&str; 6] = [
    "delay_p50",
    "delay_p99",
    "added_delay_p50",
    "app_delay_p50",
    "row_latency_us",
    "row_latency_p99_us",
];

/// The metrics that follow those of netbench.
const OTHERS: &[Row] = &[
    ("delay_iqr", "us", Better::Lower, Effect::Ratio),
    ("app_delay_p50", "us", Better::Lower, Effect::Ratio),
    ("jitter", "us", Better::Lower, Effect::Ratio),
    ("loss_pct", "%", Better::Lower, Effect::Difference),
    ("deliveries_per_s", "1/s", Better::Higher, Effect::Ratio),
    ("ndr_pps", "pps", Better::Higher, Effect::Ratio),
    ("goodput_pps", "pps", Better::Higher, Effect::Ratio),
    ("forward_pps", "pps", Better::Higher, Effect::Ratio),
    ("cpu_ns_per_delivery", "ns", Better::Lower, Effect::Ratio),
    (
        "cpu_ns_per_delivery_user",
        "ns",
        Better::Lower,
        Effect::Difference,
    ),
    (
        "cpu_ns_per_delivery_softirq",
        "ns",
        Better::Lower,
        Effect::Difference,
    ),
    (
        "cpu_ns_per_delivery_bpf",
        "ns",
        Better::Lower,
        Effect::Difference,
    ),
    ("cpu_ns_per_packet", "ns", Better::Lower, Effect::Ratio),
    ("threads_ns_per_packet", "ns", Better::Lower, Effect::Ratio),
    ("program_ns_per_packet", "ns", Better::Lower, Effect::Ratio),
    (
        "cpu_ns_per_packet_receive",
        "ns",
        Better::Lower,
        Effect::Difference,
    ),
    (
        "cpu_ns_per_packet_process",
        "ns",
        Better::Lower,
        Effect::Difference,
    ),
    (
        "cpu_ns_per_packet_bpf",
        "ns",
        Better::Lower,
        Effect::Difference,
    ),
    ("cpu_pct", "%", Better::Lower, Effect::Ratio),
    ("origin_cpu_pct", "%", Better::Lower, Effect::Difference),
    ("origin_pps", "pps", Better::Higher, Effect::Ratio),
    (
        "origin_success_pct",
        "%",
        Better::Higher,
        Effect::Difference,
    ),
    ("origin_latency_us", "us", Better::Lower, Effect::Ratio),
    ("accuracy_pct", "%", Better::Higher, Effect::Difference),
    ("offered_pps", "pps", Better::Higher, Effect::Ratio),
    ("row_latency_us", "us", Better::Lower, Effect::Ratio),
    ("row_latency_p99_us", "us", Better::Lower, Effect::Ratio),
    ("memory_mib", "MiB", Better::Lower, Effect::Ratio),
    ("inferences_per_s", "1/s", Better::Higher, Effect::Ratio),
    (
        "energy_uj_per_inference",
        "uJ",
        Better::Lower,
        Effect::Ratio,
    ),
    ("energy_uj_per_packet", "uJ", Better::Lower, Effect::Ratio),
    ("packets_per_cpu_s", "1/s", Better::Higher, Effect::Ratio),
    ("packets_per_s", "1/s", Better::Higher, Effect::Ratio),
    ("ns_per_lookup", "ns", Better::Lower, Effect::Ratio),
    ("ns_per_packet", "ns", Better::Lower, Effect::Ratio),
    ("gbps", "Gb/s", Better::Higher, Effect::Ratio),
    ("batch_latency_min_us", "us", Better::Lower, Effect::Ratio),
    ("batch_latency_max_us", "us", Better::Lower, Effect::Ratio),
    ("process_us", "us", Better::Lower, Effect::Ratio),
    // Of a packet and thread, and of the device by its own clock.
    ("copy_in_us", "us", Better::Lower, Effect::Ratio),
    ("kernel_us", "us", Better::Lower, Effect::Ratio),
    ("copy_out_us", "us", Better::Lower, Effect::Ratio),
    ("overlapped_pct", "%", Better::Higher, Effect::Difference),
    ("kernel_floors", "floors", Better::Lower, Effect::Ratio),
    ("gather_ns", "ns", Better::Lower, Effect::Ratio),
    ("process_ns", "ns", Better::Lower, Effect::Ratio),
    ("scatter_ns", "ns", Better::Lower, Effect::Ratio),
    ("send_ns", "ns", Better::Lower, Effect::Ratio),
    ("mib", "MiB", Better::Lower, Effect::Ratio),
    ("build_s", "s", Better::Lower, Effect::Ratio),
    ("wrong", "answers", Better::Lower, Effect::Difference),
    ("updates_per_s", "1/s", Better::Higher, Effect::Ratio),
    ("update_us", "us", Better::Lower, Effect::Ratio),
    ("longest_update_us", "us", Better::Lower, Effect::Ratio),
    ("longest_batch_us", "us", Better::Lower, Effect::Ratio),
    ("energy_uj_per_delivery", "uJ", Better::Lower, Effect::Ratio),
    ("ps_cpu_pct", "%", Better::Lower, Effect::Difference),
    ("subscriber_change_ms", "ms", Better::Lower, Effect::Ratio),
    (
        "foreign_packets",
        "packets",
        Better::Lower,
        Effect::Difference,
    ),
    ("pwrite_ns", "ns", Better::Lower, Effect::Ratio),
    ("pwrite_ns_median", "ns", Better::Lower, Effect::Ratio),
    ("pwrite_ns_p95", "ns", Better::Lower, Effect::Ratio),
    ("cpu_ns_per_write", "ns", Better::Lower, Effect::Ratio),
    ("request_ms_mean", "ms", Better::Lower, Effect::Ratio),
    ("request_ms_median", "ms", Better::Lower, Effect::Ratio),
    ("request_ms_p95", "ms", Better::Lower, Effect::Ratio),
    // The mean once more, as how much it is above the baseline's.
    ("added_ms", "ms", Better::Lower, Effect::Difference),
    ("origin_ms", "ms", Better::Lower, Effect::Difference),
    ("cpu_us_per_request", "us", Better::Lower, Effect::Ratio),
    ("lag_ms_p50", "ms", Better::Lower, Effect::Ratio),
    ("lag_ms_p99", "ms", Better::Lower, Effect::Ratio),
    // Of the copy that is latest.
    ("worst_lag_ms_p50", "ms", Better::Lower, Effect::Ratio),
    ("cpu_us_per_write", "us", Better::Lower, Effect::Ratio),
    // Of the programs that run where the tree is.
    (
        "source_cpu_us_per_write",
        "us",
        Better::Lower,
        Effect::Ratio,
    ),
    (
        "sent_bytes_per_byte",
        "bytes",
        Better::Lower,
        Effect::Difference,
    ),
    ("dropped_pct", "%", Better::Lower, Effect::Difference),
    ("read_back_pct", "%", Better::Lower, Effect::Difference),
    (
        "log_bytes_per_byte",
        "bytes",
        Better::Lower,
        Effect::Difference,
    ),
    (
        "bytes_differing",
        "bytes",
        Better::Lower,
        Effect::Difference,
    ),
    (
        "frames_differing",
        "frames",
        Better::Lower,
        Effect::Difference,
    ),
];

/// The metric of this name.
pub fn find(name: &str) -> Option<Metric> {
    all().find(|metric| metric.name == name)
}

/// Every metric, for documentation.
pub fn all() -> impl Iterator<Item = Metric> {
    let delays = DELAYS.iter().map(metric);
    let others = OTHERS.iter().map(metric);
    delays.chain(metric_names::metrics()).chain(others)
}

fn metric(&(name, unit, better, effect): &Row) -> Metric {
    Metric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        better,
        primary: false,
        effect,
        resolution: match QUANTILES.contains(&name) {
            true => stats::RESOLUTION,
            false => 0.0,
        },
    }
}
