//! Options by the names that the command line gives them.

use std::fmt::Display;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use features::Options;
use features::dissect::Tunnels;
use features::filter::{Rate, Rules, Selection, Tier, Unit, WrongRule};
use features::kernel::Wakeup;
use features::live::Direction;
use features::schema::Schema;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use units::Span;

use crate::error::input;

/// Packets at the beginning of a flow that can have columns of their own.
const MAX_STEPS: usize = 32;
/// Payload bytes of a packet that can be among its bits.
const MAX_PAYLOAD_BYTES: usize = 1500;
/// Threads that can share a capture.
const MAX_THREADS: u32 = 256;
/// Shorter sleeps would cost more than they save.
const MIN_TIMER: Duration = Duration::from_micros(100);

/// Options that only a live capture has.
pub(crate) struct How {
    pub(crate) duration: Option<Duration>,
    pub(crate) direction: Direction,
    pub(crate) promiscuous: bool,
    pub(crate) tap: bool,
    pub(crate) workers: Option<NonZeroUsize>,
    pub(crate) wakeup: Wakeup,
    pub(crate) max_pps: Option<NonZeroU32>,
}

impl How {
    /// Reads a dictionary that has them all.
    pub(crate) fn of(asked: &Bound<'_, PyDict>) -> PyResult<Self> {
        let workers = value(asked, "workers", |value| {
            optional(value, |of| within(of, 1, usize::MAX))
        })?;
        let max_pps = value(asked, "max_pps", |value| {
            optional(value, |of| within(of, 1, u32::MAX))
        })?;
        Ok(Self {
            duration: value(asked, "duration", |value| optional(value, duration))?,
            direction: value(asked, "direction", direction)?,
            promiscuous: value(asked, "promiscuous", |value| value.extract())?,
            tap: value(asked, "tap", |value| value.extract())?,
            workers: workers.and_then(NonZeroUsize::new),
            wakeup: value(asked, "wakeup", wakeup)?,
            max_pps: max_pps.and_then(NonZeroU32::new),
        })
    }
}

/// Threads for a capture.
pub(crate) fn threads(asked: &Bound<'_, PyAny>) -> PyResult<Option<NonZeroU32>> {
    let threads = optional(asked, |asked| within(asked, 1, MAX_THREADS));
    let threads = threads.map_err(|error| named("threads", &error, asked.py()))?;
    Ok(threads.and_then(NonZeroU32::new))
}

/// What a dictionary has under a name; an error has the name before it.
fn value<'py, T>(
    asked: &Bound<'py, PyDict>,
    name: &str,
    read: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<T> {
    let value = asked.as_any().get_item(name)?;
    read(&value).map_err(|error| named(name, &error, asked.py()))
}

fn optional<'py, T>(
    value: &Bound<'py, PyAny>,
    read: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Option<T>> {
    (!value.is_none()).then(|| read(value)).transpose()
}

fn direction(value: &Bound<'_, PyAny>) -> PyResult<Direction> {
    match value.extract::<String>()?.as_str() {
        "in" => Ok(Direction::In),
        "out" => Ok(Direction::Out),
        "both" => Ok(Direction::Both),
        other => {
            let what = format!("\"{other}\" is not \"in\", \"out\" or \"both\"");
            Err(input(value.py(), &what))
        }
    }
}

fn wakeup(value: &Bound<'_, PyAny>) -> PyResult<Wakeup> {
    match value.extract::<String>().as_deref() {
        Ok("adaptive") => Ok(Wakeup::Adaptive),
        Ok("every") => Ok(Wakeup::Every),
        _ => match duration(value)? {
            time if time < MIN_TIMER => {
                let what = format!("must be {MIN_TIMER:?} or more");
                Err(input(value.py(), &what))
            }
            time => Ok(Wakeup::Timer(time)),
        },
    }
}

/// Options from a dictionary; an option that it lacks has the command line's default.
pub(crate) fn options(
    asked: &Bound<'_, PyDict>,
    schema: &Schema,
    max_pps: Option<NonZeroU32>,
) -> PyResult<Options> {
    let mut builder = OptionsBuilder::default();
    builder.rules.most_per_second = max_pps;
    for (name, value) in asked {
        let name: String = name.extract()?;
        builder
            .set(&name, &value)
            .map_err(|error| named(&name, &error, asked.py()))?;
    }
    let options = builder.build(asked.py())?;
    let refuse = |what: &str| Err(input(asked.py(), &format!("{}: {what}", schema.name)));
    if options.limits.early_packets.is_some() && schema.flow_columns().is_none() {
        return refuse("has a row for each packet; early asks for rows about flows");
    }
    if options.limits.payload_bytes > 0 && !schema.has_bits() {
        return refuse("has no bits of payloads; payload_bytes goes with nprint.v1");
    }
    Ok(options)
}

#[derive(Default)]
struct OptionsBuilder {
    options: Options,
    rules: Rules,
    ignore_tcp_end: bool,
    sampled: bool,
}

impl OptionsBuilder {
    fn set(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let Options { timers, limits, .. } = &mut self.options;
        match name {
            "idle_timeout" => timers.idle_ns = signed(value)?,
            "active_timeout" => timers.active_ns = signed(value)?,
            "linger" => timers.linger_ns = Some(signed(value)?),
            "ignore_tcp_end" => self.ignore_tcp_end = value.extract()?,
            "active_gap" => timers.gaps.active_ns = signed(value)?.unsigned_abs(),
            "tunnels" => self.options.tunnels = tunnels(value)?,
            "by_vlan" => self.options.by_vlan = value.extract()?,
            "splt" => limits.steps = within(value, 0, MAX_STEPS)?,
            "early" if value.is_none() => limits.early_packets = None,
            "early" => limits.early_packets = Some(within(value, 1, u64::MAX)?),
            "payload_bytes" => limits.payload_bytes = within(value, 0, MAX_PAYLOAD_BYTES)?,
            "max_flows" => limits.most_flows = within(value, 1, u32::MAX as usize)?,
            _ => return self.select(name, value),
        }
        Ok(())
    }

    fn select(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        match name {
            "filter" => self.rules.filter = value.extract()?,
            "sample" | "sample_flows" if value.is_none() => {}
            "sample" | "sample_flows" if self.sampled => {
                let what = "sample and sample_flows exclude each other";
                return Err(input(value.py(), &what));
            }
            "sample" | "sample_flows" => {
                self.sampled = true;
                self.rules.rate = rate(value)?;
                self.rules.unit = match name {
                    "sample" => Unit::Packets,
                    _ => Unit::Flows,
                };
            }
            "tiers" => {
                for tier in value.try_iter()? {
                    let (expression, of): (String, Bound<'_, PyAny>) = tier?.extract()?;
                    let rate = rate(&of)?;
                    self.rules.tiers.push(Tier { expression, rate });
                }
            }
            "sample_seed" => self.rules.seed = value.extract()?,
            _ => return Err(PyTypeError::new_err("is no option")),
        }
        Ok(())
    }

    fn build(self, py: Python<'_>) -> PyResult<Options> {
        let mut options = self.options;
        if self.ignore_tcp_end {
            options.timers.linger_ns = None;
        }
        let tiers = self.rules.tiers.clone();
        let selection = Selection::new(self.rules).map_err(|wrong| match &wrong {
            WrongRule::Filter(error) => input(py, &format!("filter: {error}")),
            WrongRule::Tier(index, error) => {
                let tier = &tiers[*index].expression;
                input(py, &format!("tiers: {tier:?}: {error}"))
            }
            WrongRule::TooManyTiers => input(py, &format!("tiers: {wrong}")),
        });
        options.selection = selection?;
        Ok(options)
    }
}

fn rate(value: &Bound<'_, PyAny>) -> PyResult<Rate> {
    let rate: Result<Rate, String> = value.extract::<String>()?.parse();
    rate.map_err(|wrong| input(value.py(), &wrong))
}

/// The error with the option's name before it.
fn named(name: &str, error: &PyErr, py: Python<'_>) -> PyErr {
    if error.is_instance_of::<PyTypeError>(py) {
        return PyTypeError::new_err(format!("{name}: {}", error.value(py)));
    }
    input(py, &format!("{name}: {}", error.value(py)))
}

/// Seconds as a number, a `timedelta`, or as the command line takes it: `250ms`.
fn duration(value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let wrong = |what: String| input(value.py(), &what);
    if let Ok(text) = value.cast::<PyString>() {
        let span: Result<Span, String> = text.to_cow()?.parse();
        return span.map(|span| span.0).map_err(wrong);
    }
    match value.extract::<f64>() {
        Ok(seconds) => {
            Duration::try_from_secs_f64(seconds).map_err(|error| wrong(error.to_string()))
        }
        Err(_) => value.extract(),
    }
}

/// In nanoseconds; what is longer than three centuries is as good as for ever.
fn signed(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    Ok(i64::try_from(duration(value)?.as_nanos()).unwrap_or(i64::MAX))
}

fn within<'py, N>(value: &Bound<'py, PyAny>, least: N, most: N) -> PyResult<N>
where
    N: TryFrom<i128> + PartialOrd + Display + Copy,
{
    let number: i64 = value.extract()?;
    match N::try_from(number.into()) {
        Ok(number) if least <= number && number <= most => Ok(number),
        _ => {
            let what = format!("{number} is not within {least} and {most}");
            Err(input(value.py(), &what))
        }
    }
}

fn tunnels(value: &Bound<'_, PyAny>) -> PyResult<Tunnels> {
    match value.extract::<String>()?.as_str() {
        "outer" => Ok(Tunnels::Outer),
        "inner" => Ok(Tunnels::Inner),
        other => {
            let what = format!("\"{other}\" is neither \"outer\" nor \"inner\"");
            Err(input(value.py(), &what))
        }
    }
}
