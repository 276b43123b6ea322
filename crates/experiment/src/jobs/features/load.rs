//! Loads of features, and which of them it can be offered.

use std::collections::BTreeMap;
use std::path::PathBuf;

use packet::payload;
use serde::Deserialize;
use toml::Value;
use units::{Pps, Size, Span};

use crate::bench::JobTrialSpec;
use crate::load::{JobLoad, JobMeasure, common_keys, file_name, option_words, rate_word};

/// One trial of features.
pub(super) type TrialSpec<'a> = JobTrialSpec<'a, Load>;

/// The measures of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Measure {
    /// A capture read to its end, as fast as it can be.
    File,
    /// Whole-machine CPU per packet at a fixed rate.
    Cpu,
    /// The packets that a capture takes in at a fixed rate, or at full speed.
    Goodput,
    /// How long after a packet the row of its flow is there.
    RowLatency,
    /// Other work that the receiving CPU can do beside a capture.
    Freed,
}

impl JobMeasure for Measure {
    fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Cpu => "cpu",
            Self::Goodput => "goodput",
            Self::RowLatency => "row-latency",
            Self::Freed => "freed",
        }
    }

    fn windows(self) -> f64 {
        match self {
            Self::File | Self::Goodput | Self::Freed => 1.0,
            // And a wait for rows that are collected for a second.
            Self::RowLatency => 2.0,
            Self::Cpu => 2.0,
        }
    }
}

/// A load of features: a capture that is read, or packets that are captured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Load {
    pub(super) measure: Option<Measure>,
    /// Where the packets come from.
    #[serde(default)]
    pub(super) from: LoadSource,
    pub(super) payload: Option<Size>,
    pub(super) rate: Option<Pps>,
    /// How many flows the packets of a live capture belong to.
    pub(super) flows: Option<usize>,
    /// The number of packets in a generated capture.
    pub(super) packets: Option<usize>,
    pub(super) duration: Span,
    /// The medium of a live capture.
    #[serde(default)]
    pub(super) link: Link,
    /// Options of `lowroad features live`.
    #[serde(default)]
    pub(super) options: BTreeMap<String, Value>,
}

/// The medium of a live capture's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Link {
    /// A veth pair.
    #[default]
    Direct,
    /// The loopback device of the one host there is then.
    Loopback,
}

/// Where a load's packets come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LoadSource {
    /// Our generator.
    #[default]
    Generator,
    /// A capture.
    Pcap(PathBuf),
}

impl JobLoad for Load {
    type Measure = Measure;

    common_keys!();

    fn label(&self) -> String {
        let mut words = Vec::new();
        if let LoadSource::Pcap(path) = &self.from {
            words.push(file_name(path));
        }
        words.extend(self.payload.map(|size| size.to_string()));
        words.extend(self.rate.map(rate_word));
        words.extend(self.flows.map(|flows| format!("{flows}-flows")));
        words.extend(self.packets.map(|packets| format!("{packets}-packets")));
        match self.measure {
            Some(Measure::RowLatency) => words.push("rows".to_owned()),
            Some(Measure::Cpu) => words.push("cpu".to_owned()),
            _ => {}
        }
        if self.link == Link::Loopback {
            words.push("loopback".to_owned());
        }
        words.extend(option_words(&self.options));
        words.join(" ")
    }
}

/// The largest payload of a datagram on the stage's link: IPv4 in 1500 bytes.
const MAX_PAYLOAD_LEN: usize = 1472;
/// Each flow has a port of its own.
const MAX_FLOWS: usize = 20_000;
/// Options of `lowroad features live` that a load may set.
const OPTIONS: [&str; 7] = [
    "filter",
    "active-timeout",
    "idle-timeout",
    "early",
    "splt",
    "max-flows",
    "schema",
];

/// Whether features can be offered the load, and measured so under it.
pub(super) fn check(load: &Load, measure: Measure) -> Result<(), String> {
    match measure {
        Measure::File => check_capture(load),
        Measure::Cpu | Measure::Goodput | Measure::RowLatency | Measure::Freed => {
            check_live(load, measure)
        }
    }
}

fn check_capture(load: &Load) -> Result<(), String> {
    if load.flows.is_some() || !load.options.is_empty() || load.link != Link::Direct {
        return Err("a capture has no link, flows and options: leave them out".to_owned());
    }
    if load.payload.is_some() || load.rate.is_some() {
        return Err("a capture has no subscribers, payload and rate: leave them out".to_owned());
    }
    match (&load.from, load.packets) {
        (LoadSource::Generator, Some(1..)) | (LoadSource::Pcap(_), None) => Ok(()),
        (LoadSource::Generator, _) => {
            Err("a generated capture needs a number of packets".to_owned())
        }
        (LoadSource::Pcap(_), Some(_)) => {
            Err("a capture has its own packets: leave the number out".to_owned())
        }
    }
}

/// Whether a live capture can be offered the load, and measured so under it.
fn check_live(load: &Load, measure: Measure) -> Result<(), String> {
    if load.from != LoadSource::Generator || load.packets.is_some() {
        return Err(
            "the packets of a live capture come from the generator: leave from and packets out"
                .to_owned(),
        );
    }
    if !load
        .flows
        .is_some_and(|flows| (1..=MAX_FLOWS).contains(&flows))
    {
        return Err(format!("a live load has flows = 1 to {MAX_FLOWS}"));
    }
    if let Some(payload) = load.payload
        && !(payload::LEN..=MAX_PAYLOAD_LEN).contains(&payload.length())
    {
        return Err(format!(
            "a payload of {payload}; datagrams hold {}B (the generated header) to {MAX_PAYLOAD_LEN}B",
            payload::LEN
        ));
    }
    match (load.rate, measure) {
        (None, Measure::Goodput) => {}
        (None, _) => return Err("a rate is missing, such as rate = \"10kpps\"".to_owned()),
        (Some(rate), _) if rate.0 < 100 && load.link == Link::Direct => {
            return Err("frames cannot be paced slower than 100pps".to_owned());
        }
        (Some(_), _) => {}
    }
    if measure == Measure::RowLatency && load.options.contains_key("schema") {
        return Err("options: row-latency has a schema of its own: leave schema out".to_owned());
    }
    check_options(load)
}

fn check_options(load: &Load) -> Result<(), String> {
    for (key, value) in &load.options {
        if !OPTIONS.contains(&key.as_str()) {
            return Err(format!(
                "options: {key:?} is not known; there are: {}",
                OPTIONS.join(", ")
            ));
        }
        if !matches!(value, Value::String(_) | Value::Integer(_)) {
            return Err(format!("options: {key} is a string or a number"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str, measure: Measure) -> Result<(), String> {
        let load: Result<Load, _> = toml::from_str(&format!("duration = \"1s\"\n{text}"));
        check(&load.map_err(|error| error.to_string())?, measure)
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_words() {
        for (text, measure, words) in [
            ("rate = \"1kpps\"", Measure::Cpu, "flows = 1"),
            ("flows = 4", Measure::Cpu, "rate"),
            ("flows = 4\nrate = \"50pps\"", Measure::Cpu, "100pps"),
            (
                "flows = 4\nrate = \"1kpps\"\npayload = \"10B\"",
                Measure::Cpu,
                "40B",
            ),
            (
                "flows = 4\nrate = \"1kpps\"\nsubscribers = 1",
                Measure::Cpu,
                "subscribers",
            ),
            ("flows = 4\nlink = \"bridge\"", Measure::Goodput, "direct"),
            (
                "flows = 4\noptions = { speed = 3 }",
                Measure::Goodput,
                "active-timeout",
            ),
            (
                "flows = 4\noptions = { early = [3] }",
                Measure::Goodput,
                "number",
            ),
            (
                "flows = 4\nrate = \"1kpps\"\noptions = { schema = \"tree.v1\" }",
                Measure::RowLatency,
                "leave schema out",
            ),
        ] {
            let refused = checked(text, measure).unwrap_err();
            assert!(refused.contains(words), "{text}: {refused}");
        }
        assert_eq!(checked("flows = 4", Measure::Goodput), Ok(()));
        let lo = "flows = 4\nrate = \"50pps\"\nlink = \"loopback\"";
        assert_eq!(checked(lo, Measure::Cpu), Ok(()));
    }
}
