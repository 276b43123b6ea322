//! What both ends say in JSON, whichever program they are in.

use serde_json::{Value, json};

use crate::server::Status;
use crate::{End, Latency, Outcome, Test};

/// Shares of transactions that are told of, and their names.
pub const QUANTILES: [(f64, &str); 4] =
    [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99_9")];

/// What a test came to, with how often each latency was seen, where it is asked for.
pub fn outcome(outcome: &Outcome, histogram: bool) -> Value {
    let spec = &outcome.spec;
    let mut object = json!({
        "test": spec.test, "duration_us": spec.duration_us, "warmup_us": spec.warmup_us, "flows": spec.flows,
        "direction": spec.direction, "rate_per_s": spec.rate,
        "loop": if spec.rate.is_some() { "open" } else { "closed" },
        "lost": outcome.lost, "ended_early": outcome.ended_early,
        "near": end(&outcome.near), "far": outcome.far.as_ref().map(end),
    });
    let mut put = |name: &str, value: Value| object[name] = value;
    match spec.test.streams() || spec.test == Test::Icmp {
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
        put("transactions_per_s", outcome.transactions_per_s().into());
        put("latency_us", times(latency));
        if histogram {
            put(
                "latency_histogram_ns",
                json!(latency.counts().collect::<Vec<_>>()),
            );
        }
    }
    object
}

fn times(latency: &Latency) -> Value {
    let us = |ns: u64| ns as f64 / 1e3;
    let mut times = json!({
        "count": latency.count(), "min": us(latency.min()), "max": us(latency.max()),
        "mean": latency.mean() / 1e3,
    });
    for (share, name) in QUANTILES {
        times[name] = us(latency.quantile(share)).into();
    }
    times
}

fn end(end: &End) -> Value {
    json!({
        "window_us": end.window_ns / 1000, "bytes": end.bytes, "messages": end.messages,
        "process_cpu_us": end.cpu_ns / 1000, "send_buffer_bytes": end.send_buffer,
        "receive_buffer_bytes": end.receive_buffer, "busy_poll_us": end.busy_poll_us,
    })
}

/// What a server has done so far.
pub fn status(status: &Status) -> Value {
    json!({
        "clients": status.clients, "tests": status.tests, "broken": status.broken,
        "refused": status.refused, "strangers": status.strangers,
    })
}
