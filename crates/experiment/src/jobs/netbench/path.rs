//! The path between the two hosts of a load: a direct link with a set capacity, delay and loss.

use std::fmt;

use serde::Deserialize;
use testbed::{Impairment, LinkKind, LinkSpec};
use units::Span;

use crate::load::time_word;

/// Capacity, delay and loss of the path in each direction. At least one is given.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Path {
    /// Bits of Ethernet frames a second: `10mbps`.
    capacity: Option<Capacity>,
    /// How long a frame may wait for the capacity.
    queue: Option<Span>,
    delay: Option<Span>,
    /// Percent of the frames.
    loss_pct: f64,
}

/// Whole bits a second.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
struct Capacity(u64);

/// Between 1 kbit/s, at which a full frame takes 12 s, and 100 Gbit/s.
const CAPACITIES: std::ops::RangeInclusive<f64> = 1e3..=1e11;
/// Longer delays and queues are mistakes.
const MAX_DELAY_S: f64 = 10.0;

impl TryFrom<String> for Capacity {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.parse() {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "positive and in range"
            )]
            Ok(units::Rate::Bits(bits)) if CAPACITIES.contains(&bits) => Ok(Self(bits as u64)),
            _ => Err(format!(
                "\"{text}\" is not a capacity; write 10mbps or 1gbps, from 1kbps to 100gbps"
            )),
        }
    }
}

impl fmt::Display for Capacity {
    #[expect(clippy::cast_precision_loss, reason = "a label")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 as f64 {
            bits if bits >= 1e9 => write!(f, "{}gbps", bits / 1e9),
            bits if bits >= 1e6 => write!(f, "{}mbps", bits / 1e6),
            bits => write!(f, "{}kbps", bits / 1e3),
        }
    }
}

impl Path {
    pub(super) fn check(&self) -> Result<(), String> {
        if *self == Self::default() {
            return Err("path needs capacity, delay or loss-pct".to_owned());
        }
        if self.queue.is_some() && self.capacity.is_none() {
            return Err("queue needs a capacity: without one no frame waits".to_owned());
        }
        if self.queue.is_some_and(|queue| queue.0.as_micros() == 0) {
            return Err("queue is at least 1us".to_owned());
        }
        let times = [self.queue, self.delay];
        let long = |time: &Span| time.0.as_secs_f64() > MAX_DELAY_S;
        if times.iter().flatten().any(long) {
            return Err(format!("queue and delay are at most {MAX_DELAY_S} s"));
        }
        match (0.0..=100.0).contains(&self.loss_pct) {
            true => Ok(()),
            false => Err("loss-pct is from 0 to 100".to_owned()),
        }
    }

    /// The words of a load's label.
    pub(super) fn words(&self) -> Vec<String> {
        let word = |name: &str, value: &dyn fmt::Display| format!("{name}={value}");
        let mut words = Vec::new();
        words.extend(self.capacity.map(|capacity| word("capacity", &capacity)));
        words.extend(self.queue.map(|queue| word("queue", &time_word(queue))));
        words.extend(self.delay.map(|delay| word("delay", &time_word(delay))));
        if self.loss_pct > 0.0 {
            words.push(word("loss", &format_args!("{}%", self.loss_pct)));
        }
        words
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most a million, and not negative"
    )]
    fn impairment(&self) -> Impairment {
        let us = |time: Option<Span>| {
            let us = time.map_or(0, |time| time.0.as_micros());
            u32::try_from(us).unwrap_or(u32::MAX)
        };
        Impairment {
            capacity_bps: self.capacity.map_or(0, |capacity| capacity.0),
            queue_us: us(self.queue),
            delay_us: us(self.delay),
            loss_ppm: (self.loss_pct * 1e4).round() as u32,
            keep_order: true,
            ..Impairment::default()
        }
    }
}

/// The link between `ends`: direct, or of `path`.
pub(super) fn link(path: Option<&Path>, ends: &[&str]) -> LinkSpec {
    match path {
        Some(path) => LinkSpec::impaired(ends, path.impairment()),
        None => LinkSpec::new(LinkKind::Direct, ends),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Result<Path, String> {
        let path: Path = toml::from_str(text).map_err(|error| error.to_string())?;
        path.check()?;
        Ok(path)
    }

    #[test]
    fn paths_are_labelled_and_become_impairments() {
        let shaped = path("capacity = '2.5gbps'\nqueue = '20ms'").unwrap();
        assert_eq!(shaped.words(), ["capacity=2.5gbps", "queue=20ms"]);
        let impairment = shaped.impairment();
        assert_eq!(
            (impairment.capacity_bps, impairment.queue_us),
            (2_500_000_000, 20_000)
        );
        let long = path("delay = '20ms'\nloss-pct = 0.5").unwrap();
        assert_eq!(long.words(), ["delay=20ms", "loss=0.5%"]);
        let impairment = long.impairment();
        assert_eq!((impairment.delay_us, impairment.loss_ppm), (20_000, 5000));
        assert_eq!(
            path("capacity = '10mbps'").unwrap().words(),
            ["capacity=10mbps"]
        );
    }

    #[test]
    fn paths_out_of_range_are_refused() {
        for (text, message) in [
            ("", "path needs"),
            ("queue = '1ms'", "needs a capacity"),
            ("capacity = '10kpps'", "10mbps"),
            ("capacity = '1bps'", "from 1kbps"),
            ("capacity = 'much'", "not a capacity"),
            ("capacity = '1mbps'\nqueue = '0ms'", "queue is at least 1us"),
            ("delay = '11s'", "at most 10 s"),
            ("loss-pct = 101", "from 0 to 100"),
            ("jitter = '1ms'", "unknown field"),
        ] {
            let error = path(text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
