//! Results and status in JSON, as both programs print them.

use serde_json::{Value, json};

use crate::server::Status;
use crate::{End, Latency, Outcome};

/// The quantiles in the output, and their names.
pub const QUANTILES: [(f64, &str); 4] =
    [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99_9")];

/// The result of a test; with `histogram`, how often each latency was measured.
pub fn outcome(outcome: &Outcome, histogram: bool) -> Value {
    let spec = &outcome.spec;
    let mut object = json!({
        "test": spec.test, "duration_us": spec.duration_us, "warmup_us": spec.warmup_us, "flows": spec.flows,
        "direction": spec.direction, "rate_per_s": spec.rate,
        "loop": if spec.rate.is_some() { "open" } else { "closed" },
        "lost": outcome.lost, "unsent": outcome.unsent, "unfinished": outcome.unfinished,
        "ended_early": outcome.ended_early,
        "near": end(&outcome.near), "far": outcome.far.as_ref().map(end),
    });
    let mut put = |name: &str, value: Value| object[name] = value;
    match spec.test.has_messages() {
        true => put("message_bytes", spec.message.into()),
        false => {
            put("request_bytes", spec.request.into());
            put("response_bytes", spec.response.into());
        }
    }
    if let Some(transfer) = &outcome.transfer {
        put("mbps", (transfer.bits_per_s / 1e6).into());
        put("offered_mbps", (transfer.offered_bits_per_s / 1e6).into());
        put("loss_pct", transfer.loss.map(|loss| loss * 100.0).into());
    }
    if let Some(latency) = &outcome.latency {
        let late = outcome.late.as_ref();
        let late = late.and_then(|late| quantile(late, 0.99));
        put("transactions_per_s", outcome.transactions_per_s().into());
        put("latency_us", times(latency));
        if histogram {
            put(
                "latency_histogram_ns",
                json!(latency.counts().collect::<Vec<_>>()),
            );
        }
        object["near"]["late_us_p99"] = json!(late);
    }
    object
}

/// Null where there was no transaction, because 0 would be the fastest time.
fn times(latency: &Latency) -> Value {
    let some = latency.count() > 0;
    let of = |ns: f64| some.then_some(ns / 1e3);
    let mut times = json!({
        "count": latency.count(), "min": of(latency.min() as f64), "max": of(latency.max() as f64),
        "mean": of(latency.mean()),
    });
    for (share, name) in QUANTILES {
        times[name] = json!(quantile(latency, share));
    }
    times
}

/// In microseconds; none where there was no transaction.
fn quantile(latency: &Latency, share: f64) -> Option<f64> {
    (latency.count() > 0).then(|| latency.quantile(share) as f64 / 1e3)
}

fn end(end: &End) -> Value {
    json!({
        "window_us": end.window_ns / 1000, "bytes": end.bytes, "messages": end.messages,
        "all_bytes": end.all_bytes, "all_messages": end.all_messages,
        "process_cpu_us": end.cpu_ns / 1000, "send_buffer_bytes": end.send_buffer,
        "receive_buffer_bytes": end.receive_buffer, "busy_poll_us": end.busy_poll_us,
    })
}

/// The counts of a server.
pub fn status(status: &Status) -> Value {
    json!({
        "clients": status.clients, "tests": status.tests, "broken": status.broken,
        "refused": status.refused, "strangers": status.strangers,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Spec, Test};

    #[test]
    fn times_are_null_without_transactions() {
        let nothing = Outcome {
            spec: Spec::new(Test::UdpRr, Duration::from_secs(1)),
            near: End::default(),
            far: None,
            latency: Some(Latency::new()),
            transfer: None,
            lost: 1,
            unsent: 0,
            unfinished: 0,
            late: Some(Latency::new()),
            ended_early: None,
        };
        let said = outcome(&nothing, true);
        let times = said["latency_us"].as_object().map(|times| times.values());
        let known: Vec<_> = times
            .into_iter()
            .flatten()
            .filter(|it| !it.is_null())
            .collect();
        assert_eq!(known, [0]);
        assert!(said["near"]["late_us_p99"].is_null());
    }
}
