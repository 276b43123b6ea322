//! Loads of the relay, and which of them it can be offered.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use packet::payload;
use relay::plan::MAX_FANOUT;
use relay::spec::StreamSpec;
use serde::Deserialize;
use toml::{Table, Value};
use units::{Pps, Size, Span};

use crate::bench::JobTrialSpec;
use crate::load::{
    JobLoad, JobMeasure, common_keys, file_name, option_words, rate_word, time_word,
};

/// One trial of the relay.
pub(crate) type TrialSpec<'a> = JobTrialSpec<'a, Load>;

/// The measures of the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Measure {
    /// One-way delay from the sender's egress to the receiver's ingress.
    Delay,
    /// The highest rate that loses next to nothing, by bracketing, and goodput beyond it.
    Throughput,
    /// Whole-machine CPU per delivery at a fixed rate.
    Cpu,
    /// Effect of membership changes on a running stream.
    Change,
    /// Decoded frames of a real stream against its source's.
    Video,
}

impl JobMeasure for Measure {
    fn name(self) -> &'static str {
        match self {
            Self::Delay => "delay",
            Self::Throughput => "throughput",
            Self::Cpu => "cpu",
            Self::Change => "change",
            Self::Video => "video",
        }
    }

    fn windows(self) -> f64 {
        match self {
            Self::Delay | Self::Change => 1.0,
            Self::Cpu => 2.0,
            // Its tail, two starts of ffmpeg, silence at the end, and decoding.
            Self::Video => 2.5,
            Self::Throughput => 8.0,
        }
    }
}

/// A load of the relay: packets for the subscribers of one stream.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Load {
    pub(crate) measure: Option<Measure>,
    /// From where to where delay is measured.
    #[serde(default)]
    pub(crate) scope: Scope,
    /// Where the packets come from.
    #[serde(default)]
    pub(crate) from: LoadSource,
    pub(crate) payload: Option<Size>,
    /// Absent for a throughput search and for a media stream, which has its own rate.
    pub(crate) rate: Option<Pps>,
    #[serde(default)]
    pub(crate) subscribers: usize,
    pub(crate) duration: Span,
    /// The link between the hosts.
    #[serde(default)]
    pub(crate) link: Link,
    /// Random delay, from 0 to this and the same in every trial, on the link before the relay: that
    /// link is then an impaired one.
    pub(crate) jitter: Option<Span>,
    /// Settings of the stream in the relay's configuration, such as `work` and `fec`.
    #[serde(default)]
    pub(crate) options: BTreeMap<String, Value>,
}

/// A link between two hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Link {
    /// A veth pair.
    #[default]
    Direct,
    /// A Linux bridge between a veth pair to each.
    Bridge,
}

/// Where a load's packets come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LoadSource {
    /// Our generator.
    #[default]
    Generator,
    /// ffmpeg sending H.264 video as RTP.
    Rtp,
    /// ffmpeg sending H.264 video as MPEG-TS over UDP.
    MpegTs,
    /// The UDP datagrams of a capture, at their own pace, or at the load's rate where it has one.
    Pcap(PathBuf),
}

/// From where to where delay is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scope {
    /// From the sender's egress to the receiver's ingress, without a receiving program.
    #[default]
    StampToStamp,
    /// From the intended time of sending to a receiving application, waking up included.
    Application,
}

impl Load {
    /// A load of the generator at a fixed rate.
    pub(crate) fn paced(
        payload: &str,
        rate: &str,
        subscribers: usize,
        duration: &str,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            measure: None,
            scope: Scope::default(),
            from: LoadSource::Generator,
            payload: Some(quantity(payload)?),
            rate: Some(quantity(rate)?),
            subscribers,
            duration: quantity(duration)?,
            link: Link::default(),
            jitter: None,
            options: BTreeMap::new(),
        })
    }
}

fn quantity<T: FromStr<Err = String>>(text: &str) -> anyhow::Result<T> {
    text.parse().map_err(anyhow::Error::msg)
}

impl JobLoad for Load {
    type Measure = Measure;

    common_keys!();

    fn label(&self) -> String {
        let mut words = Vec::new();
        match &self.from {
            LoadSource::Generator => {}
            LoadSource::Rtp => words.push("rtp-h264".to_owned()),
            LoadSource::MpegTs => words.push("mpeg-ts".to_owned()),
            LoadSource::Pcap(path) => words.push(file_name(path)),
        }
        words.extend(self.payload.map(|size| size.to_string()));
        words.extend(self.rate.map(rate_word));
        if self.subscribers > 0 {
            words.push(format!("N={}", self.subscribers));
        }
        match self.measure {
            Some(Measure::Change) => words.push("churn".to_owned()),
            Some(Measure::Cpu) => words.push("cpu".to_owned()),
            _ => {}
        }
        if self.scope == Scope::Application {
            words.push("application".to_owned());
        }
        if self.link == Link::Bridge {
            words.push("bridge".to_owned());
        }
        words.extend(
            self.jitter
                .map(|jitter| format!("jitter={}", time_word(jitter))),
        );
        words.extend(option_words(&self.options));
        words.join(" ")
    }
}

/// The largest payload of a datagram on the stage's links: IPv4 in 1500 bytes.
const MAX_PAYLOAD_LEN: usize = 1472;
/// Parity is this much longer than the longest payload of its group.
const PARITY: usize = 16;

/// Whether the relay can be offered the load, and measured so under it.
pub(super) fn check(load: &Load, measure: Measure) -> Result<(), String> {
    check_subscribers(load, measure)?;
    match &load.from {
        LoadSource::Generator => check_generated(load, measure)?,
        LoadSource::Rtp | LoadSource::MpegTs => check_media(load, measure)?,
        LoadSource::Pcap(_) => check_capture(load, measure)?,
    }
    if load.scope == Scope::Application
        && (measure != Measure::Delay || load.from != LoadSource::Generator)
    {
        return Err("the scope application is for delay under generated packets".to_owned());
    }
    if load.jitter.is_some() && load.link != Link::Direct {
        return Err("jitter is for direct links".to_owned());
    }
    check_options(load)
}

fn check_subscribers(load: &Load, measure: Measure) -> Result<(), String> {
    // Another one comes and goes.
    let most = MAX_FANOUT - usize::from(measure == Measure::Change);
    if (1..=most).contains(&load.subscribers) {
        return Ok(());
    }
    Err(format!(
        "{} subscribers; give 1 to {most}",
        load.subscribers
    ))
}

fn check_generated(load: &Load, measure: Measure) -> Result<(), String> {
    let most = MAX_PAYLOAD_LEN
        - if load.options.contains_key("fec") {
            PARITY
        } else {
            0
        };
    if let Some(payload) = load.payload
        && !(payload::LEN..=most).contains(&payload.length())
    {
        return Err(format!(
            "a payload of {payload}; datagrams hold {}B (the generated header) to {most}B",
            payload::LEN
        ));
    }
    match (measure, load.rate) {
        (Measure::Video, _) => {
            Err("video needs a stream to decode: from = \"rtp\" or \"mpeg-ts\"".to_owned())
        }
        (Measure::Throughput, Some(rate)) => Err(format!(
            "a rate of {}; throughput is searched for: leave it out",
            rate_word(rate)
        )),
        (Measure::Throughput, None) => Ok(()),
        (_, None) => Err("a rate is missing, such as rate = \"10kpps\"".to_owned()),
        (_, Some(rate)) if f64::from(rate.0) * load.duration.0.as_secs_f64() < 1.0 => {
            let (time, rate) = (time_word(load.duration), rate_word(rate));
            Err(format!("no packet is sent in {time} at {rate}"))
        }
        _ => Ok(()),
    }
}

fn check_media(load: &Load, measure: Measure) -> Result<(), String> {
    if !matches!(measure, Measure::Delay | Measure::Video) {
        return Err("a media stream is measured for delay or video only".to_owned());
    }
    if load.payload.is_some() || load.rate.is_some() {
        return Err("a media stream has its own payload and rate: leave them out".to_owned());
    }
    Ok(())
}

fn check_capture(load: &Load, measure: Measure) -> Result<(), String> {
    if measure != Measure::Delay {
        return Err("a capture is measured for delay only".to_owned());
    }
    if load.payload.is_some() {
        return Err("a capture has its own payloads: leave payload out".to_owned());
    }
    Ok(())
}

/// Options are settings of the relay's stream, which knows best what it takes.
fn check_options(load: &Load) -> Result<(), String> {
    let own: Table = [
        ("name", "stream"),
        ("listen", "192.0.2.1:5004"),
        ("datapath", "recv"),
        ("source", "any"),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), Value::from(value)))
    .collect();
    let mut stream = own.clone();
    for (key, value) in &load.options {
        if own.contains_key(key) || key == "subscriber" {
            return Err(format!(
                "options: {key} is for the experiment to set: leave it out"
            ));
        }
        stream.insert(key.clone(), value.clone());
    }
    let spec: StreamSpec = stream
        .try_into()
        .map_err(|error| format!("options: {}", error.message()))?;
    spec.check(&["recv"], &[])
        .map_err(|problem| format!("options: {problem}"))
}
