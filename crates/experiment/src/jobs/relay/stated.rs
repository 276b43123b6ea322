//! What an experiment file may say of the relay: its arms, and loads that it can be offered.

use packet::payload;
use relay::plan::MAX_FANOUT;
use relay::spec::StreamSpec;
use toml::{Table, Value};

use super::{FLOOR, NULL_PROBE, peers};
use crate::plan::{Link, Load, LoadSource, Measure, Scope};

/// The largest payload of a datagram on the stage's links: IPv4 in 1500 bytes.
const LARGEST: usize = 1472;
/// Parity is this much longer than the longest payload of its group.
const PARITY: usize = 16;

/// Every arm there is.
pub(crate) fn arms() -> Vec<&'static str> {
    let datapaths = relay::datapaths();
    let datapaths = datapaths.iter().map(|datapath| datapath.name());
    datapaths
        .chain([FLOOR, NULL_PROBE])
        .chain(peers::names())
        .collect()
}

/// Whether the relay can be offered the load, and measured so under it.
pub(crate) fn check(load: &Load, measure: Measure) -> Result<(), String> {
    check_subscribers(load, measure)?;
    match measure {
        Measure::File => return Err("a relay reads no captures".to_owned()),
        Measure::Goodput | Measure::RowLatency | Measure::Freed => {
            return Err("goodput, row-latency and freed are of features".to_owned());
        }
        Measure::Lookup
        | Measure::Updates
        | Measure::Build
        | Measure::Forward
        | Measure::Process => {
            return Err("lookup, updates, build, forward and process are of the router".to_owned());
        }
        Measure::Writes | Measure::Requests | Measure::Lag => {
            return Err("writes, requests and lag are of replicate".to_owned());
        }
        Measure::Exchange => return Err("exchange is of netbench".to_owned()),
        _ => {}
    }
    if load.table.is_some() || load.traffic.is_some() {
        return Err("tables and what is looked up in them are of the router".to_owned());
    }
    if load.flows.is_some() || load.link == Link::Loopback {
        return Err("flows and the loopback device are of features".to_owned());
    }
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
        "{} subscribers; there are 1 to {most}",
        load.subscribers
    ))
}

fn check_generated(load: &Load, measure: Measure) -> Result<(), String> {
    let most = LARGEST
        - if load.options.contains_key("fec") {
            PARITY
        } else {
            0
        };
    if let Some(payload) = load.payload
        && !(payload::LEN..=most).contains(&payload.0)
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
            "a rate of {rate}; throughput is searched for: leave it out"
        )),
        (Measure::Throughput, None) => Ok(()),
        (_, None) => Err("a rate is missing, such as rate = \"10kpps\"".to_owned()),
        (_, Some(rate)) if rate.0 * load.duration.0.as_secs_f64() < 1.0 => Err(format!(
            "not one packet is sent in {} at {rate}",
            load.duration
        )),
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
