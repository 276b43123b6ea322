//! From the output of `lowroad router process` to metrics and counts.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::outcome::Outcome;

/// Stages of a packet: the name in the output, and the metric.
const STAGES: [(&str, &str); 4] = [
    ("gather", "gather_ns"),
    ("process", "process_ns"),
    ("scatter", "scatter_ns"),
    ("send", "send_ns"),
];

/// Times of a batch on a device: in the output and as metrics they have the same names.
const DEVICE: [&str; 3] = ["copy_in_us", "kernel_us", "copy_out_us"];

/// Notes the times of batches by the device's own clock.
fn note_device(timeline: &Value, outcome: &mut Outcome) -> Result<()> {
    for name in DEVICE {
        if let Some(value) = timeline[name].as_f64() {
            outcome.values.insert(name.to_owned(), value);
        }
    }
    if let Some(share) = timeline["overlapped"].as_f64() {
        let pct = 100.0 * share;
        outcome.values.insert("overlapped_pct".to_owned(), pct);
    }
    let [kernel, floor] = ["kernel_us", "kernel_floor_us"].map(|name| timeline[name].as_f64());
    if let (Some(kernel), Some(floor)) = (kernel, floor)
        && floor > 0.0
    {
        outcome
            .values
            .insert("kernel_floors".to_owned(), kernel / floor);
    }
    if !timeline["spans"].is_null() {
        let spans = timeline["spans"].clone();
        outcome.spans = serde_json::from_value(spans).context("spans")?;
    }
    Ok(())
}

pub(super) fn note(told: &Value, outcome: &mut Outcome) -> Result<()> {
    let number = |value: &Value, what: &str| value.as_f64().with_context(|| what.to_owned());
    let packets = number(&told["packets"], "packets")?;
    if packets < 1.0 {
        bail!("no batch came to its end: the load needs a longer duration or a smaller batch");
    }
    let mut metric = |name: &str, value: f64| outcome.values.insert(name.to_owned(), value);
    for name in ["gbps", "packets_per_s", "ns_per_packet"] {
        metric(name, number(&told[name], name)?);
    }
    for name in ["batch_latency_min_us", "batch_latency_max_us"] {
        // A few batches have no median.
        if let Some(median) = told[name]["p50"].as_f64() {
            metric(name, median);
        }
    }
    let stages = &told["stages_ns_per_packet"];
    for (stage, name) in STAGES {
        if let Some(value) = stages[stage].as_f64() {
            metric(name, value);
        }
    }
    note_device(&told["timeline"], outcome)?;
    let mut metric = |name: &str, value: f64| outcome.values.insert(name.to_owned(), value);
    // As many packets as a batch had, which is fewer than it may have where it waited for them.
    let batch = packets / number(&told["batches"], "batches")?;
    let process = number(&stages["process"], "process")?;
    metric("process_us", process * batch / 1e3);
    for (group, values) in [("", &told["verdicts"]), ("socket.", &told["socket"])] {
        for (name, count) in values.as_object().into_iter().flatten() {
            let count = count.as_u64().with_context(|| name.clone())?;
            outcome.counts.insert(format!("{group}{name}"), count);
        }
    }
    for name in ["engine", "from", "caution"] {
        let value = &told[name];
        if !value.is_null() {
            outcome.environment.insert(name.to_owned(), value.clone());
        }
    }
    let packets = told["packets"].as_u64().unwrap_or_default();
    outcome.counts.insert("packets".to_owned(), packets);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_batch_is_as_large_as_it_was_and_a_device_tells_of_itself() {
        let mut told = json!({
            "packets": 1000, "batch": 1024, "batches": 100, "gbps": 1.0, "packets_per_s": 1e6,
            "ns_per_packet": 500.0, "stages_ns_per_packet": {"process": 400.0}, "timeline": null,
        });
        let mut outcome = Outcome::default();
        note(&told, &mut outcome).unwrap();
        assert_eq!(outcome.values["process_us"], 4.0, "of ten packets");
        assert!(!outcome.values.contains_key("kernel_us") && outcome.spans.is_empty());
        told["timeline"] = json!({
            "copy_in_us": null, "kernel_us": 30.0, "copy_out_us": 2.0, "overlapped": 0.25,
            "kernel_floor_us": 20.0,
            "spans": [{"stream": 1, "part": "kernel", "start_us": 0.0, "end_us": 30.0}],
        });
        note(&told, &mut outcome).unwrap();
        let value = |name: &str| outcome.values.get(name).copied();
        assert_eq!(value("copy_in_us"), None, "nothing is copied there");
        assert_eq!(value("copy_out_us"), Some(2.0));
        assert_eq!(value("overlapped_pct"), Some(25.0));
        assert_eq!(value("kernel_floors"), Some(1.5));
        assert_eq!(outcome.spans[0].stream, 1);
    }
}
