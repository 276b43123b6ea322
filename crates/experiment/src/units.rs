//! Sizes, rates and times as people write them: `200B`, `10kpps`, `600ms`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

/// Bytes of UDP payload: `200B`, `1KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Bytes(pub usize);

/// Packets a second: `10kpps`, `1.5Mpps`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct PacketRate(pub f64);

/// A length of time: `600ms`, `30s`, `5m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Span(pub Duration);

/// A quantity that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct ParseQuantityError {
    text: String,
    expected: &'static str,
}

/// Splits `1.5Mpps` into 1.5 and `Mpps`.
fn split(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let value: f64 = text[..end].parse().ok()?;
    Some((value, &text[end..]))
}

impl FromStr for Bytes {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, ParseQuantityError> {
        let factor = |unit: &str| match unit {
            "B" => Some(1.0),
            "KiB" => Some(1024.0),
            "MiB" => Some(1024.0 * 1024.0),
            _ => None,
        };
        split(text)
            .and_then(|(value, unit)| Some(value * factor(unit)?))
            .filter(|bytes| bytes.fract() == 0.0 && *bytes < 1e9)
            .map(|bytes| {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "whole, positive and below 1e9"
                )]
                Self(bytes as usize)
            })
            .ok_or_else(|| ParseQuantityError {
                text: text.to_owned(),
                expected: "a size such as 200B or 1KiB",
            })
    }
}

impl FromStr for PacketRate {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, ParseQuantityError> {
        let factor = |unit: &str| match unit {
            "pps" => Some(1.0),
            "kpps" => Some(1e3),
            "Mpps" => Some(1e6),
            _ => None,
        };
        split(text)
            .and_then(|(value, unit)| Some(value * factor(unit)?))
            .filter(|rate| *rate > 0.0)
            .map(Self)
            .ok_or_else(|| ParseQuantityError {
                text: text.to_owned(),
                expected: "a packet rate such as 10kpps or 1.5Mpps",
            })
    }
}

impl FromStr for Span {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, ParseQuantityError> {
        let factor = |unit: &str| match unit {
            "us" => Some(1e-6),
            "ms" => Some(1e-3),
            "s" => Some(1.0),
            "m" => Some(60.0),
            _ => None,
        };
        split(text)
            .and_then(|(value, unit)| Some(value * factor(unit)?))
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .map(Self)
            .ok_or_else(|| ParseQuantityError {
                text: text.to_owned(),
                expected: "a time such as 600ms or 30s",
            })
    }
}

macro_rules! from_string {
    ($($name:ident)*) => {$(
        impl TryFrom<String> for $name {
            type Error = ParseQuantityError;

            fn try_from(text: String) -> Result<Self, ParseQuantityError> {
                text.parse()
            }
        }
    )*};
}
from_string!(Bytes PacketRate Span);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_micros() {
            us if us > 0 && us.is_multiple_of(1000) => write!(f, "{}ms", us / 1000),
            us => write!(f, "{us}us"),
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}B", self.0)
    }
}

impl fmt::Display for PacketRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            rate if rate >= 1e6 => write!(f, "{}Mpps", rate / 1e6),
            rate if rate >= 1e3 => write!(f, "{}kpps", rate / 1e3),
            rate => write!(f, "{rate}pps"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_and_print_alike() {
        for text in ["200B", "1200B"] {
            assert_eq!(text.parse::<Bytes>().unwrap().to_string(), text);
        }
        for text in ["10kpps", "1.5Mpps", "250pps"] {
            assert_eq!(text.parse::<PacketRate>().unwrap().to_string(), text);
        }
        assert_eq!("600ms".parse::<Span>().unwrap().0.as_millis(), 600);
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "kpps", "10", "10 kpps", "-3kpps", "1e9kpps"] {
            let error = text.parse::<PacketRate>().unwrap_err().to_string();
            assert!(error.contains("10kpps"), "{error}");
        }
    }
}
