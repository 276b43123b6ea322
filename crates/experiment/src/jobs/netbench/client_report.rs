//! The report of the lowroad client: its figures, and whether they are credible.

use anyhow::{Context, Result, bail};
use netbench::Test;
use serde_json::Value;
use stats::{Histogram, bucket};

use super::metric_names;
use crate::outcome::Outcome;

/// Fewer transactions have no 99th percentile: at least ten have to lie beyond it.
const MIN_P99_TRANSACTIONS: u64 = 1000;
/// An end that is late to begin its transactions by more than this flags the trial, or by more than this share of the
/// time between two.
const LATE_US: f64 = 20.0;
const LATE_SHARE: f64 = 0.1;
/// More than this share of the transactions that were due and never begun flags it, beside those that the last ones
/// under way have kept waiting.
const UNSENT_SHARE: f64 = 0.01;
/// A percentile whose bounds differ by less than this share counts as exact.
const EXACT_SHARE: f64 = 0.01;
/// A sender of a stream that stays below this share of its rate disturbs the trial: numbers are of what was offered.
const OFFERED_SHARE: f64 = 0.98;

/// Reads the client's output, and flags its faults.
pub(super) fn read(test: Test, said: &str, outcome: &mut Outcome) -> Result<()> {
    let line = said.lines().next().context("it printed nothing")?;
    let said: Value = serde_json::from_str(line)?;
    if let Some(why) = said["ended_early"].as_str() {
        bail!("ended early: {why}");
    }
    let latency = &said["latency_us"];
    let count = latency["count"].as_u64();
    if count == Some(0) {
        bail!("no transaction was complete");
    }
    let loss = match test.measures_loss() {
        true => &said["loss_pct"],
        false => &Value::Null,
    };
    let (p50, p99) = (percentile(&said, "p50"), percentile(&said, "p99"));
    if let Some(p50) = p50 {
        note(metric_names::p50(test), p50, &said, outcome);
    }
    for (name, value) in [
        (
            metric_names::TRANSACTIONS.to_owned(),
            &said["transactions_per_s"],
        ),
        (metric_names::goodput(test), &said["mbps"]),
        (metric_names::loss(test), loss),
    ] {
        if let Some(value) = value.as_f64() {
            outcome.values.insert(name, value);
        }
    }
    if let Some(p99) = p99.filter(|_| count >= Some(MIN_P99_TRANSACTIONS)) {
        note(metric_names::p99(test), p99, &said, outcome);
    }
    let mut histogram = Histogram::new();
    for entry in said["latency_histogram_ns"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let (ns, count) = (entry[0].as_u64(), entry[1].as_u64());
        let (ns, count) = ns.zip(count).context("a histogram has pairs")?;
        histogram.add(bucket(ns), count)?;
    }
    if !histogram.is_empty() {
        outcome.histograms.insert("rtt".to_owned(), histogram);
    }
    // A stream has none of these.
    let of_transactions = |name: &str| count.and_then(|_| said[name].as_u64());
    for (name, count) in [
        ("transactions", count),
        ("lost", of_transactions("lost")),
        ("unsent", of_transactions("unsent")),
        ("unfinished", of_transactions("unfinished")),
    ] {
        if let Some(count) = count {
            outcome.counts.insert(name.to_owned(), count);
        }
    }
    for end in ["near", "far"] {
        outcome
            .environment
            .insert(end.to_owned(), said[end].clone());
    }
    judge(&said, outcome);
    Ok(())
}

/// A percentile of all transactions that were due.
#[derive(Clone, Copy, Debug)]
struct Percentile {
    us: f64,
    /// Requests without a time may have taken much longer: it is at least this.
    lower_bound: bool,
}

/// A percentile that the client has printed. Some requests may have no time: the times of the others alone would be too
/// short, so that it is then the lower bound that follows from their waits.
fn percentile(said: &Value, name: &str) -> Option<Percentile> {
    let Some(at_least) = said["latency_at_least_us"][name].as_f64() else {
        let us = said["latency_us"][name].as_f64()?;
        let lower_bound = false;
        return Some(Percentile { us, lower_bound });
    };
    let at_most = said["latency_at_most_us"][name].as_f64();
    let exact = at_most.is_some_and(|at_most| at_most <= at_least * (1.0 + EXACT_SHARE));
    Some(Percentile {
        us: at_least,
        lower_bound: !exact,
    })
}

/// Notes a percentile. One that is a lower bound flags the trial.
fn note(metric: String, percentile: Percentile, said: &Value, outcome: &mut Outcome) {
    if percentile.lower_bound {
        let count = |name: &str| said[name].as_u64().unwrap_or(0);
        let without = count("unsent") + count("unfinished");
        outcome.flags.push(format!(
            "{metric} is a lower bound: {without} requests were not sent or not answered in time"
        ));
    }
    outcome.values.insert(metric, percentile.us);
}

/// Only where enough transactions lie beyond it.
pub(super) fn note_p99(test: Test, count: u64, p99: Option<f64>, outcome: &mut Outcome) {
    if let Some(p99) = p99.filter(|_| count >= MIN_P99_TRANSACTIONS) {
        outcome.values.insert(metric_names::p99(test), p99);
    }
}

/// Flags the faults of a test that came to its end.
fn judge(said: &Value, outcome: &mut Outcome) {
    let number = |of: &Value| of.as_f64().unwrap_or(0.0);
    let flows = number(&said["flows"]).max(1.0);
    let lost = number(&said["lost"]);
    if lost > 0.0 {
        outcome.flags.push(format!("{lost} requests lost"));
    }
    let unfinished = number(&said["unfinished"]);
    if unfinished > 0.0 {
        let flag = format!("{unfinished} requests unfinished at the end");
        outcome.flags.push(flag);
    }
    let unsent = number(&said["unsent"]);
    let due = number(&said["latency_us"]["count"]) + unsent + unfinished + lost;
    if unsent > flows + due * UNSENT_SHARE {
        let flag = format!("{unsent} of {due} requests due and never sent");
        outcome.flags.push(flag);
    }
    // The end that sends has a schedule.
    let late = ["near", "far"].map(|end| said[end]["late_us_p99"].as_f64());
    if let Some(late) = late.into_iter().flatten().next() {
        let name = "lateness_outside_p99_us".to_owned();
        outcome.noise.insert(name, late);
        let interval = flows * 1e6 / number(&said["rate_per_s"]).max(1e-6);
        if late > (interval * LATE_SHARE).max(LATE_US) {
            outcome.flags.push(format!(
                "generator late by {late:.0} us or more outside its send, 1 % of requests"
            ));
        }
    }
    if let Some(share) = offered(said).filter(|share| *share < OFFERED_SHARE) {
        outcome.flags.push(format!(
            "generator late: {:.0} % of the rate was offered",
            share * 100.0
        ));
    }
    if said["far"].is_object() {
        let disagree = !adds_up(said, flows);
        let counted = ("ends_disagree".to_owned(), disagree.into());
        outcome.counts.extend([counted]);
        if disagree {
            let flag = "the ends do not agree on what there was";
            outcome.violations.push(flag.to_owned());
        }
    }
}

/// The share of a stream's rate that its sender reached; none without a rate. A message of each flow may be due at the
/// very end of the window: one that is missing is not too few.
fn offered(said: &Value) -> Option<f64> {
    let number = |name: &str| said[name].as_f64();
    let rate = number("rate_per_s")?;
    let asked = rate * number("message_bytes")? * 8.0 / 1e6;
    let share = number("offered_mbps")? / asked;
    let due = rate * number("duration_us")? / 1e6;
    let missing = (due * (1.0 - share)).floor();
    Some(if missing <= number("flows")? {
        1.0
    } else {
        share
    })
}

/// Whether the counts of both ends over the whole test agree. The answers of the last transactions may have been read
/// before their end counted them, and messages are counted after their bytes.
fn adds_up(said: &Value, flows: f64) -> bool {
    let of = |end: &str, what: &str| said[end][what].as_f64();
    let all = |what| of("near", what).zip(of("far", what));
    let (Some(messages), Some(bytes)) = (all("all_messages"), all("all_bytes")) else {
        return false;
    };
    let near = |(one, other): (f64, f64), by: f64| (one - other).abs() <= by;
    let size = |what: &str| said[what].as_f64();
    match (
        said["loss_pct"].as_f64(),
        size("request_bytes").zip(size("response_bytes")),
    ) {
        // Datagrams one way: none comes that was not sent.
        (Some(_), _) => {
            let size = size("message_bytes").unwrap_or(0.0);
            let (sent, received) = match said["direction"].as_str() {
                Some("down") => (messages.1, messages.0),
                _ => messages,
            };
            let whole = near((bytes.0, messages.0 * size), flows * size)
                && near((bytes.1, messages.1 * size), flows * size);
            received <= sent && whole
        }
        // Bytes one way: all of them come.
        (None, None) => near(bytes, 0.0),
        // The server counts requests, the client answers; of what was lost one end may know.
        (None, Some((request, response))) => {
            let off = flows + size("lost").unwrap_or(0.0);
            near(messages, off)
                && near((bytes.0, messages.0 * response), flows * response)
                && near((bytes.1, messages.1 * request), flows * request)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads our tool's report of a clean test of transactions, after `change`.
    fn transacted(change: impl Fn(&mut Value)) -> Result<Outcome> {
        let mut said = serde_json::json!({
            "test": "udp_rr", "flows": 1, "direction": "up", "rate_per_s": 1000.0, "lost": 0, "unsent": 1,
            "unfinished": 0, "ended_early": null, "request_bytes": 1, "response_bytes": 1,
            "transactions_per_s": 4995.0, "latency_us": { "count": 1000, "p50": 40.0, "p99": 90.0 },
            "near": { "all_messages": 1100, "all_bytes": 1100, "late_us_p99": 3.0 },
            "far": { "all_messages": 1101, "all_bytes": 1101 },
        });
        change(&mut said);
        let mut outcome = Outcome::default();
        read(Test::UdpRr, &said.to_string(), &mut outcome)?;
        Ok(outcome)
    }

    fn flags(change: impl Fn(&mut Value)) -> Vec<String> {
        let outcome = transacted(change).unwrap();
        outcome
            .flags
            .into_iter()
            .chain(outcome.violations)
            .collect()
    }

    #[test]
    fn a_test_without_a_transaction_has_failed() {
        let nothing = |said: &mut Value| said["latency_us"] = serde_json::json!({ "count": 0 });
        let stuck = |said: &mut Value| {
            said["latency_us"]["count"] = 0.into();
            said["unfinished"] = 2.into();
        };
        for transacted in [transacted(nothing), transacted(stuck)] {
            let why = format!("{:#}", transacted.unwrap_err());
            assert!(why.contains("no transaction"), "{why}");
        }
        assert!(transacted(|_| {}).unwrap().values["udp_rr_us_p50"] > 0.0);
    }

    #[test]
    fn what_is_wrong_with_a_test_flags_its_trial() {
        assert_eq!(flags(|_| {}), [""; 0]);
        assert_eq!(flags(|said| said["lost"] = 1.into()), ["1 requests lost"]);
        let unfinished = flags(|said| said["unfinished"] = 1.into());
        assert_eq!(unfinished, ["1 requests unfinished at the end"]);
        let unsent = flags(|said| said["unsent"] = 12.into());
        assert_eq!(unsent, ["12 of 1012 requests due and never sent"]);
        assert_eq!(flags(|said| said["unsent"] = 11.into()), [""; 0]);
        // A tenth of a millisecond, of a thousand a second.
        let late = |us: f64| flags(|said| said["near"]["late_us_p99"] = us.into());
        assert_eq!(late(99.0), [""; 0]);
        assert!(late(101.0)[0].contains("late by 101 us"));
        let fast = flags(|said| {
            said["rate_per_s"] = 100_000.0.into();
            said["near"]["late_us_p99"] = 21.0.into();
        });
        assert!(fast[0].contains("late by 21 us"));
        let outcome = transacted(|said| said["near"]["late_us_p99"] = 500.0.into()).unwrap();
        assert_eq!(outcome.flags.len(), 1);
        assert_eq!(outcome.noise["lateness_outside_p99_us"], 500.0);
        let outcome = transacted(|said| said["lost"] = 2.into()).unwrap();
        assert_eq!(outcome.counts["lost"], 2);
    }

    #[test]
    fn ends_that_do_not_agree_flag_their_trial() {
        let disagree = ["the ends do not agree on what there was"];
        for (end, what, value) in [
            ("far", "all_messages", 1098),
            ("far", "all_bytes", 1200),
            ("near", "all_bytes", 1000),
            ("near", "all_messages", 1103),
        ] {
            let flags = flags(|said| said[end][what] = value.into());
            assert_eq!(flags, disagree, "{end} {what}");
        }
        let stream = |direction: &str, loss: Value, near: [u64; 2], far: [u64; 2]| {
            let end = |[messages, bytes]: [u64; 2]| serde_json::json!({ "all_messages": messages, "all_bytes": bytes });
            let said = serde_json::json!({
                "flows": 1, "direction": direction, "lost": 0, "unsent": 0, "ended_early": null,
                "message_bytes": 100, "mbps": 5.0, "loss_pct": loss, "near": end(near), "far": end(far),
            });
            let mut outcome = Outcome::default();
            read(Test::UdpStream, &said.to_string(), &mut outcome).unwrap();
            outcome.violations
        };
        let ten = [10, 1000];
        assert_eq!(stream("up", 10.0.into(), ten, [9, 900]), [""; 0]);
        assert_eq!(stream("up", 0.0.into(), ten, [11, 1100]), disagree);
        assert_eq!(stream("down", 0.0.into(), ten, [11, 1100]), [""; 0]);
        assert_eq!(stream("up", 0.0.into(), ten, [9, 1000]), [""; 0]);
        assert_eq!(stream("up", 0.0.into(), ten, [8, 1000]), disagree);
        // Reads and writes of a connection are of any size.
        assert_eq!(stream("up", Value::Null, ten, [3, 1000]), [""; 0]);
        assert_eq!(stream("up", Value::Null, ten, [10, 999]), disagree);
        let counted = |far: u64| {
            let outcome = transacted(|said| said["far"]["all_bytes"] = far.into()).unwrap();
            outcome.counts["ends_disagree"]
        };
        assert_eq!([counted(1101), counted(1200)], [0, 1]);
    }

    #[test]
    fn a_stream_has_its_goodput_and_its_loss_and_is_flagged_where_less_was_offered() {
        let stream = |test: Test, offered: f64| {
            let end = serde_json::json!({ "all_messages": 10, "all_bytes": 1000 });
            let said = serde_json::json!({
                "flows": 1, "direction": "up", "lost": 0, "unsent": 0, "ended_early": null,
                "duration_us": 1_000_000, "message_bytes": 100, "rate_per_s": 1000.0, "mbps": 0.7, "offered_mbps": offered,
                "loss_pct": 12.5, "near": end, "far": end,
            });
            let mut outcome = Outcome::default();
            read(test, &said.to_string(), &mut outcome).unwrap();
            outcome
        };
        // A thousand datagrams of 100 bytes a second.
        let whole = stream(Test::UdpStream, 0.8);
        let values: Vec<_> = whole.values.into_iter().collect();
        let expected = [("udp_stream_loss_pct", 12.5), ("udp_stream_mbps", 0.7)];
        assert_eq!(
            values,
            expected.map(|(name, value)| (name.to_owned(), value))
        );
        assert!(whole.flags.is_empty());
        let less = stream(Test::UdpStream, 0.4);
        assert_eq!(less.flags, ["generator late: 50 % of the rate was offered"]);
        let found = stream(Test::UdpRate, 0.8);
        assert_eq!(
            found.values.into_keys().collect::<Vec<_>>(),
            ["udp_rate_mbps"]
        );
    }

    #[test]
    fn one_message_less_than_the_rate_is_no_flag() {
        let said = |share: f64| {
            let said = serde_json::json!({
                "flows": 1, "rate_per_s": 10.0, "message_bytes": 125_000, "duration_us": 1_000_000,
                "offered_mbps": 10.0 * share,
            });
            offered(&said).unwrap()
        };
        assert_eq!([said(0.9), said(0.7)], [1.0, 0.7]);
    }

    #[test]
    fn percentiles_include_requests_without_a_time() {
        let bounded = |at_most: Value| {
            transacted(|said| {
                said["unsent"] = 5.into();
                said["latency_at_least_us"] = serde_json::json!({ "p50": 41.0, "p99": 700.0 });
                said["latency_at_most_us"] = serde_json::json!({ "p50": 41.2, "p99": at_most });
            })
            .unwrap()
        };
        for (at_most, bounds) in [(Value::Null, 1), (1000.0.into(), 1), (705.0.into(), 0)] {
            let outcome = bounded(at_most);
            let [p50, p99] = ["udp_rr_us_p50", "udp_rr_us_p99"].map(|name| outcome.values[name]);
            assert_eq!([p50, p99], [41.0, 700.0]);
            let flags = outcome.flags.iter().filter(|it| it.contains("lower bound"));
            assert_eq!(flags.count(), bounds);
        }
        let flag = &bounded(Value::Null).flags[0];
        let said =
            "udp_rr_us_p99 is a lower bound: 5 requests were not sent or not answered in time";
        assert_eq!(flag, said);
    }

    #[test]
    fn few_transactions_have_no_99th_percentile() {
        let has = |count: u64| {
            let outcome = transacted(|said| said["latency_us"]["count"] = count.into()).unwrap();
            outcome.values.contains_key("udp_rr_us_p99")
        };
        assert!(has(1000) && !has(999));
    }
}
