//! The text output of a test.

use std::fmt::Write as _;
use std::time::Duration;

use netbench::client::Progress;
use netbench::json::QUANTILES;
use netbench::{
    Direction, End, Interval, Latency, Load, Outcome, Plan, Spec, TcpStatistics, Transfer, fairness,
};

/// The flows of which each has a line of its own.
const MAX_FLOW_LINES: usize = 16;

/// The name of a test, and its parameters that differ from the defaults.
fn title(spec: &Spec) -> String {
    let default = Spec::new(spec.test, spec.duration());
    let mut title = spec.test.name().to_owned();
    for (is, was, name) in [
        (spec.request, default.request, "request"),
        (spec.response, default.response, "response"),
        (spec.message, default.message, "message"),
    ] {
        // One that follows the path MTU is said beside it.
        let fitted = name == "message" && spec.fit_message;
        if is != was && !fitted {
            let _infallible = write!(title, " {name} {is}B");
        }
    }
    if spec.flows > 1 {
        let _infallible = write!(title, " {} flows", spec.flows);
    }
    if let Some(bits) = spec.bits_per_s {
        let _infallible = write!(title, " at {} Mb/s", bits / 1e6);
    } else if let Some(rate) = spec.rate.filter(|rate| Some(*rate) != default.rate) {
        let _infallible = write!(title, " at {rate}/s");
    }
    if spec.direction == Direction::Down {
        title += " reverse";
    }
    title
}

/// A time to plan with, rounded to what matters.
pub(super) fn rounded(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 10.0 => format!("{seconds:.1} s"),
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

/// The title of an outcome, with its direction if there was another at the same time.
pub(super) fn outcome_title(outcome: &Outcome) -> String {
    if !outcome.bidirectional {
        return title(&outcome.spec);
    }
    let spec = Spec {
        direction: Direction::Up,
        ..outcome.spec.clone()
    };
    let direction = direction_name(outcome.spec.direction);
    format!("{} both directions: {direction}", title(&spec))
}

/// The title of a plan, with the direction where there are two.
fn plan_title(plan: &Plan) -> String {
    let mut title = title(&plan.spec);
    if plan.bidirectional {
        title += " both directions";
    }
    if plan.load.is_some() {
        title += " idle and under load";
    }
    title
}

/// The beginning of the live view: what runs, and how far it is.
pub(super) fn progress(plan: &Plan, progress: &Progress) -> String {
    let spec = &plan.spec;
    let mut line = plan_title(plan);
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
        (None, Some(_)) if spec.bytes.is_some() => {
            let (is, of) = (
                progress.bytes as f64 / 1e6,
                spec.bytes.unwrap_or(0) as f64 / 1e6,
            );
            let _infallible = write!(line, "  {is:.0} of {of:.0} MB");
        }
        (None, Some(measured)) => {
            let (is, of) = (measured.as_secs_f64(), spec.duration().as_secs_f64());
            let _infallible = write!(line, "  {is:.1} of {of:.1} s");
        }
        (None, None) => line += "  warm-up",
    }
    line
}

/// What an interval's rate is compared by: bytes or transactions a second.
pub(super) fn rate(plan: &Plan, interval: &Interval) -> f64 {
    let seconds = (interval.end - interval.begin).as_secs_f64().max(1e-9);
    match plan.spec.test.streams() {
        true => interval.bytes as f64 / seconds,
        false => interval.latency.count as f64 / seconds,
    }
}

/// The figures of an interval.
pub(super) fn figures(plan: &Plan, interval: &Interval) -> String {
    let rate = rate(plan, interval);
    if !plan.spec.test.streams() {
        let latency = interval.latency;
        let mut text = format!("{rate:.0}/s");
        if latency.count > 0 {
            let (mean, max) = (us_of(latency.mean_ns), us(latency.max_ns));
            let _infallible = write!(text, "  mean {mean} us  max {max} us");
        }
        return text;
    }
    let mut text = match plan.bidirectional {
        true => format!(
            "{} {:.1} Mb/s",
            direction_name(interval.direction),
            rate * 8e-6
        ),
        false => format!("{:.1} Mb/s", rate * 8e-6),
    };
    // With --reverse the client is the receiver, whose retransmits and window say nothing of the stream.
    let sends = interval.direction == Direction::Up;
    if let Some(tcp) = interval.tcp.as_ref().filter(|_| sends) {
        let window = tcp.congestion_window_bytes as f64 / 1024.0;
        let (retransmits, rtt) = (interval.retransmits, us_of(f64::from(tcp.rtt_us) * 1e3));
        let _infallible = write!(
            text,
            "  {retransmits} retransmits  cwnd {window:.0} KiB  rtt {rtt} us"
        );
    }
    text
}

/// The name of a direction, seen from the client.
fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Up => "up",
        Direction::Down => "down",
    }
}

/// The line of an interval.
pub(super) fn interval(plan: &Plan, interval: &Interval) -> String {
    let (begin, end) = (interval.begin.as_secs_f64(), interval.end.as_secs_f64());
    let mut name = plan.spec.test.name().to_owned();
    if let Some(phase) = interval.phase {
        name = format!("{name} {}", phase.name());
    }
    format!(
        "{name}  {begin:6.2} - {end:6.2} s  {}\n",
        figures(plan, interval)
    )
}

/// A paragraph: the result, then the cost at each end.
pub(super) fn text(outcome: &Outcome) -> String {
    let mut text = outcome_title(outcome);
    text.push('\n');
    if outcome.has_result() {
        if let Some(transfer) = &outcome.transfer {
            text += &stream(outcome, transfer);
        }
        if let Some(latency) = &outcome.latency {
            text += &transactions(outcome, latency);
        }
    }
    if let Some(load) = &outcome.load {
        text += &self::load(load);
    }
    for datagrams in outcome.datagrams() {
        text += &self::datagrams(outcome, &datagrams);
    }
    text += &notes(outcome);
    text += &flows(outcome);
    let ends = [
        ("here", Some(&outcome.near)),
        ("there", outcome.far.as_ref()),
    ];
    for (name, end) in ends {
        if let Some(end) = end {
            let _infallible = writeln!(text, "  {name:<5} {}", cost(outcome, end));
            if let Some(tcp) = &end.tcp {
                let _infallible = writeln!(text, "        {}", self::tcp(tcp));
            }
        }
    }
    if let Some(why) = &outcome.ended_early {
        let _infallible = writeln!(text, "  ended early: {why}");
    }
    text
}

fn stream(outcome: &Outcome, transfer: &Transfer) -> String {
    let mbps = transfer.bits_per_s / 1e6;
    let mut text = format!("  {mbps:.1} Mb/s");
    if let Some(loss) = transfer.loss {
        let (offered, loss) = (transfer.offered_bits_per_s / 1e6, loss * 100.0);
        let _infallible = write!(text, " of {offered:.1} Mb/s sent, {loss:.3} % lost");
    }
    if outcome.spec.bytes.is_some()
        && let Some(receiver) = outcome.receiver()
    {
        let seconds = receiver.window_ns as f64 / 1e9;
        let digits = if seconds < 0.1 { 6 } else { 2 };
        let _infallible = write!(text, ", {} B in {seconds:.digits$} s", receiver.bytes);
    }
    if let Some(late) = late_us_p99(outcome) {
        let _infallible = write!(text, ", p99 sent {late} us late");
    }
    text.push('\n');
    text
}

fn transactions(outcome: &Outcome, latency: &Latency) -> String {
    let rate = outcome.transactions_per_s().unwrap_or(0.0);
    let loop_ = if outcome.spec.rate.is_some() {
        "open"
    } else {
        "closed"
    };
    let mut text = format!(
        "  {rate:.0} transactions/s, {loop_} loop, {} lost{}{}\n",
        outcome.lost,
        unfinished(outcome),
        open(outcome)
    );
    if latency.count() > 0 {
        text += &times(outcome, latency);
    }
    text
}

/// The 99th percentile of how late the sender of a stream began its messages, where it has a rate.
fn late_us_p99(outcome: &Outcome) -> Option<String> {
    let here = outcome.late.as_ref().filter(|late| late.count() > 0);
    let there = outcome.far.as_ref().and_then(|far| far.late_p99_ns);
    here.map(|late| late.quantile(0.99)).or(there).map(us)
}

/// What the load of the path did to the latency.
fn load(load: &Load) -> String {
    let mut text = String::from("  load ");
    for (name, transfer) in [("up", &load.up), ("down", &load.down)] {
        if let Some(transfer) = transfer {
            let mbps = transfer.bits_per_s / 1e6;
            let _infallible = write!(text, " {name} {mbps:.1} Mb/s");
        }
    }
    let _infallible = writeln!(text, ", {} flows each", load.flows);
    if let Some(latency) = load.idle.latency.as_ref().filter(|it| it.count() > 0) {
        text += "  idle path";
        text += &times(&load.idle, latency);
    }
    text
}

/// One direction of datagrams, if anything is to say of it beside its loss.
fn datagrams(outcome: &Outcome, datagrams: &netbench::Datagrams) -> String {
    let arrivals = &datagrams.arrivals;
    let lost = datagrams.lost();
    let mut parts = Vec::new();
    if lost > 0 && !outcome.spec.test.streams() {
        parts.push(format!("{lost} of {} lost", datagrams.sent));
    }
    if arrivals.loss_bursts > 0 {
        let (bursts, longest) = (arrivals.loss_bursts, arrivals.longest_loss_burst);
        parts.push(format!("{bursts} loss bursts, longest {longest}"));
    }
    for (count, what) in [
        (arrivals.duplicates, "duplicates"),
        (arrivals.reordered, "reordered"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    if let Some(jitter) = arrivals.jitter_ns.filter(|_| outcome.spec.test.streams()) {
        parts.push(format!("jitter {} us", us_of(jitter)));
    }
    match parts.is_empty() {
        true => String::new(),
        false => format!(
            "  {:<5} {}\n",
            datagrams.direction.map_or("both", direction_name),
            parts.join(", ")
        ),
    }
}

/// What a reader of the figures has to know.
fn notes(outcome: &Outcome) -> String {
    let spec = &outcome.spec;
    let mut text = String::new();
    let errors = outcome.near.send_errors + outcome.far.as_ref().map_or(0, |far| far.send_errors);
    if errors > 0 {
        let _infallible = writeln!(
            text,
            "  {errors} datagrams were not sent: the sender's queue, firewall or path MTU refused them"
        );
    }
    if let (Some(packet), Some(mtu)) = (outcome.packet_bytes, outcome.path_mtu) {
        let _infallible = match (packet > mtu, spec.fit_message) {
            (true, _) => writeln!(
                text,
                "  datagrams are sent in fragments: packets of {packet} B exceed the path MTU of {mtu} B"
            ),
            (false, true) => writeln!(
                text,
                "  datagrams of {} B fill packets of {packet} B; path MTU {mtu} B, DF set",
                spec.message
            ),
            (false, false) => Ok(()),
        };
    }
    if outcome.datagrams().iter().any(|it| it.arrivals.unnumbered) {
        text += "  duplicates, reordering and loss bursts are not counted: datagrams below 4 B have no room for a sequence number\n";
    }
    if let Some(share) = outcome.missed_rate() {
        let rate = spec.rate.unwrap_or(0.0);
        let _infallible = writeln!(
            text,
            "  the sender reached {:.0} % of the rate: {:.1} of {rate:.1} messages a second",
            share * 100.0,
            share * rate
        );
    }
    text
}

/// How flows share a path: a line for each of a few, and the fairness of all.
fn flows(outcome: &Outcome) -> String {
    let end = outcome.receiver().unwrap_or(&outcome.near);
    let Some(fairness) = fairness(&end.flow_bytes).filter(|_| outcome.spec.flows > 1) else {
        return String::new();
    };
    let seconds = (end.window_ns as f64 / 1e9).max(1e-9);
    let mut text = format!("  fairness of flows {fairness:.3} (Jain)\n");
    if end.flow_bytes.len() > MAX_FLOW_LINES {
        return text;
    }
    for (number, bytes) in end.flow_bytes.iter().enumerate() {
        let _infallible = write!(text, "  flow {number:<3}");
        let _infallible = match outcome.flow_latencies.get(number) {
            Some(latency) => {
                let rate = latency.count() as f64 / seconds;
                let p50 = us(latency.quantile(0.5));
                writeln!(text, " {rate:.0}/s  p50 {p50} us")
            }
            None => writeln!(text, " {:.1} Mb/s", *bytes as f64 * 8e-6 / seconds),
        };
    }
    text
}

fn tcp(tcp: &TcpStatistics) -> String {
    let window = tcp.congestion_window_bytes as f64 / 1024.0;
    let (rtt, variation) = (
        us_of(f64::from(tcp.rtt_us) * 1e3),
        us_of(f64::from(tcp.rtt_variation_us) * 1e3),
    );
    format!(
        "{}  {} retransmits  cwnd {window:.0} KiB  rtt {rtt} us, variation {variation} us  mss {} B",
        tcp.congestion, tcp.retransmits, tcp.mss
    )
}

/// The quantiles. Where transactions have waited without an end, one may be longer than is known.
fn times(outcome: &Outcome, latency: &Latency) -> String {
    let mut text = format!("  us  min {}", us(latency.min()));
    for (share, name) in QUANTILES {
        let name = name.replace('_', ".");
        if let Some(quantile) = outcome.quantile(share) {
            let bound = if quantile.is_exact() { "" } else { ">=" };
            let _infallible = write!(text, "  {name} {bound}{}", us(quantile.ns));
        }
    }
    let longest = latency.max().max(outcome.bounds.max());
    let bound = match outcome.bounds.count() {
        0 => "",
        _ => ">=",
    };
    let _infallible = writeln!(text, "  max {bound}{}", us(longest));
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
    us_of(ns as f64)
}

/// Nanoseconds in microseconds, with three digits.
fn us_of(ns: f64) -> String {
    let us = ns / 1e3;
    let digits = match us {
        0.0..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{us:.digits$}")
}
