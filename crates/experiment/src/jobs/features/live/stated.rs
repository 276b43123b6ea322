//! What an experiment file may say of live captures.

use packet::payload;
use toml::Value;

use crate::plan::{Link, Load, LoadSource, Measure, Scope};

/// The largest payload of a datagram on the stage's link: IPv4 in 1500 bytes.
const LARGEST: usize = 1472;
/// Each has a port.
const MOST_FLOWS: usize = 20_000;
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

/// Whether a live capture can be offered the load, and measured so under it.
pub(in crate::jobs::features) fn check(load: &Load, measure: Measure) -> Result<(), String> {
    if load.from != LoadSource::Generator || load.packets.is_some() {
        return Err(
            "what is captured live comes from the generator: leave from and packets out".to_owned(),
        );
    }
    if load.subscribers > 0 || load.jitter.is_some() || load.scope != Scope::StampToStamp {
        return Err("a capture has no subscribers, jitter and scope: leave them out".to_owned());
    }
    if load.link == Link::Bridge {
        return Err("a capture is on a direct link, or on the loopback device".to_owned());
    }
    if !load
        .flows
        .is_some_and(|flows| (1..=MOST_FLOWS).contains(&flows))
    {
        return Err(format!("a live load has flows = 1 to {MOST_FLOWS}"));
    }
    if let Some(payload) = load.payload
        && !(payload::LEN..=LARGEST).contains(&payload.0)
    {
        return Err(format!(
            "a payload of {payload}; datagrams hold {}B (the generated header) to {LARGEST}B",
            payload::LEN
        ));
    }
    match (load.rate, measure) {
        (None, Measure::Goodput) => {}
        (None, _) => return Err("a rate is missing, such as rate = \"10kpps\"".to_owned()),
        (Some(rate), _) if rate.0 < 100.0 && load.link == Link::Direct => {
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
                "options: no {key:?}; there are: {}",
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

    fn load(text: &str) -> Load {
        toml::from_str(&format!("duration = \"1s\"\n{text}")).unwrap()
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
            let refused = check(&load(text), measure).unwrap_err();
            assert!(refused.contains(words), "{text}: {refused}");
        }
        assert_eq!(check(&load("flows = 4"), Measure::Goodput), Ok(()));
        let lo = "flows = 4\nrate = \"50pps\"\nlink = \"loopback\"";
        assert_eq!(check(&load(lo), Measure::Cpu), Ok(()));
    }
}
