//! The text output of a test.

use std::fmt::Write as _;

use netbench::client::Progress;
use netbench::json::QUANTILES;
use netbench::{Direction, End, Latency, Outcome, Spec};

/// The name of a test, and its parameters that differ from the defaults.
pub(super) fn title(spec: &Spec) -> String {
    let default = Spec::new(spec.test, spec.duration());
    let mut title = spec.test.name().to_owned();
    for (is, was, name) in [
        (spec.request, default.request, "request"),
        (spec.response, default.response, "response"),
        (spec.message, default.message, "message"),
    ] {
        if is != was {
            let _infallible = write!(title, " {name} {is}B");
        }
    }
    if spec.flows > 1 {
        let _infallible = write!(title, " {} flows", spec.flows);
    }
    if let Some(rate) = spec.rate.filter(|rate| Some(*rate) != default.rate) {
        let _infallible = write!(title, " at {rate}/s");
    }
    if spec.direction == Direction::Down {
        title += " reverse";
    }
    title
}

/// The progress line. `rates` are bytes and messages a second since the last one.
pub(super) fn progress(spec: &Spec, progress: &Progress, rates: (f64, f64)) -> String {
    let (bytes, messages) = rates;
    let mut line = title(spec);
    match (progress.step, progress.measured) {
        (Some(step), _) => {
            let mbps = step.rate * f64::from(spec.message) * 8e-6;
            let loss = step.loss * 100.0;
            let _infallible = write!(
                line,
                "  step {}: {mbps:.0} Mb/s, {loss:.2} % lost",
                step.number
            );
        }
        (None, Some(measured)) => {
            let (is, of) = (measured.as_secs_f64(), spec.duration().as_secs_f64());
            let _infallible = write!(line, "  {is:.1} of {of:.1} s");
        }
        (None, None) => line += "  warm-up",
    }
    let _infallible = match spec.test.streams() {
        true => write!(line, "  {:.0} Mb/s", bytes * 8e-6),
        false => write!(line, "  {messages:.0}/s"),
    };
    line
}

/// A paragraph: the result, then the cost at each end.
pub(super) fn text(outcome: &Outcome) -> String {
    let spec = &outcome.spec;
    let mut text = format!("{}\n", title(spec));
    if let Some(transfer) = &outcome.transfer {
        let mbps = transfer.bits_per_s / 1e6;
        let _infallible = write!(text, "  {mbps:.1} Mb/s");
        if let Some(loss) = transfer.loss {
            let (offered, loss) = (transfer.offered_bits_per_s / 1e6, loss * 100.0);
            let _infallible = write!(text, " of {offered:.1} Mb/s sent, {loss:.3} % lost");
        }
        text.push('\n');
    }
    if let Some(latency) = &outcome.latency {
        let rate = outcome.transactions_per_s().unwrap_or(0.0);
        let loop_ = if spec.rate.is_some() {
            "open"
        } else {
            "closed"
        };
        let _infallible = writeln!(
            text,
            "  {rate:.0} transactions/s, {loop_} loop, {} lost{}{}",
            outcome.lost,
            unfinished(outcome),
            open(outcome)
        );
        if latency.count() > 0 {
            text += &times(latency);
        }
    }
    let ends = [
        ("here", Some(&outcome.near)),
        ("there", outcome.far.as_ref()),
    ];
    for (name, end) in ends {
        if let Some(end) = end {
            let _infallible = writeln!(text, "  {name:<5} {}", cost(outcome, end));
        }
    }
    if let Some(why) = &outcome.ended_early {
        let _infallible = writeln!(text, "  ended early: {why}");
    }
    text
}

fn times(latency: &Latency) -> String {
    let mut text = format!("  us  min {}", us(latency.min()));
    for (share, name) in QUANTILES {
        let name = name.replace('_', ".");
        let _infallible = write!(text, "  {name} {}", us(latency.quantile(share)));
    }
    let _infallible = writeln!(text, "  max {}", us(latency.max()));
    text
}

/// The transactions that were given up, if any.
fn unfinished(outcome: &Outcome) -> String {
    match outcome.unfinished {
        0 => String::new(),
        some => format!(", {some} unfinished"),
    }
}

/// How an open loop kept its schedule.
fn open(outcome: &Outcome) -> String {
    if outcome.spec.rate.is_none() {
        return String::new();
    }
    let mut text = format!(", {} unsent", outcome.unsent);
    if let Some(late) = outcome.late.as_ref().filter(|late| late.count() > 0) {
        let _infallible = write!(text, ", p99 begun {} us late", us(late.quantile(0.99)));
    }
    text
}

/// The cost for the process of one end, without the kernel's work in interrupts.
fn cost(outcome: &Outcome, end: &End) -> String {
    let cpu = end.cpu_ns as f64;
    let share = cpu / end.window_ns.max(1) as f64 * 100.0;
    let gigabits = end.bytes as f64 * 8e-9;
    let per = match outcome.spec.test.streams() {
        true => format!("{:.3} s/Gb", cpu / 1e9 / gigabits.max(f64::MIN_POSITIVE)),
        false => format!("{:.1} us each", cpu / 1e3 / end.messages.max(1) as f64),
    };
    let per = if end.messages == 0 {
        "-".to_owned()
    } else {
        per
    };
    let (send, receive) = (end.send_buffer, end.receive_buffer);
    format!("process CPU {share:.0} % ({per})  buffers {send} B out, {receive} B in")
}

fn us(ns: u64) -> String {
    let us = ns as f64 / 1e3;
    let digits = match us {
        0.0..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{us:.digits$}")
}
