//! Quantities as users write them in arguments and files. Each is a decimal number with a unit, is exact or refused, and
//! is never rounded.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Packets per second, from 1 to `u32::MAX`: `800pps`, `50kpps`, `1.5Mpps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pps(pub u32);

/// A rate of messages, as `0.5pps` or `50kpps`, or of payload bits, as `10mbps` or `2.5gbps`. Above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Messages a second.
    Messages(f64),
    /// Bits a second.
    Bits(f64),
}

/// A length of time in whole microseconds, in `us`, `ms`, `s`, `m`, `h` or `d`: `250ms`, `1.5s`, `5m`. Parts from the largest
/// unit to the smallest add up, as in `1h30m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

/// Bytes, a whole number of at least one. `kB` (or `KB`), `MB`, `GB` and `TB` are powers of 1000; `KiB`, `MiB`, `GiB` and `TiB`,
/// or `K`, `M`, `G` and `T` as in dd, are powers of 1024: `100MB`, `0.5GiB`, `64K`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// Bytes per second, as a size with or without `/s`, or as payload bits: `50MiB/s`, `100MB`, `800mbps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRate(pub u64);

impl Size {
    /// The bytes as a length in memory. A size beyond the address space is the longest length.
    pub fn length(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for Pps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is not a rate; write 800pps, 50kpps or 1.5Mpps");
        let number = text.strip_suffix("pps").ok_or_else(wrong)?;
        let (number, unit) = match number.char_indices().last() {
            Some((at, 'k')) => (&number[..at], 1_000),
            Some((at, 'M')) => (&number[..at], 1_000_000),
            _ => (number, 1),
        };
        let rate = scaled(number, unit).ok_or_else(wrong)?;
        u32::try_from(rate)
            .ok()
            .filter(|rate| *rate > 0)
            .map(Self)
            .ok_or_else(wrong)
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is not a rate; write 0.5pps, 50kpps, 10mbps or 2.5gbps");
        let letters = text.find(|c: char| c.is_ascii_alphabetic());
        let (number, unit) = text.split_at(letters.ok_or_else(wrong)?);
        let (of, factor): (fn(f64) -> Self, f64) = match unit {
            "pps" => (Self::Messages, 1.0),
            "kpps" => (Self::Messages, 1e3),
            "Mpps" => (Self::Messages, 1e6),
            "bps" => (Self::Bits, 1.0),
            "kbps" => (Self::Bits, 1e3),
            "mbps" | "Mbps" => (Self::Bits, 1e6),
            "gbps" | "Gbps" => (Self::Bits, 1e9),
            _ => return Err(wrong()),
        };
        let plain = number
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.');
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let rate = number * factor;
        match plain && rate > 0.0 && rate.is_finite() {
            true => Ok(of(rate)),
            false => Err(wrong()),
        }
    }
}

/// The units of a [`Span`] in microseconds, from the largest to the smallest.
const SPAN_UNITS: [(&str, u64); 6] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || refusal(text, "a duration", "s", "250ms, 30s, 5m or 1h30m");
        let mut rest = text;
        let mut units = SPAN_UNITS.iter();
        let mut total: u64 = 0;
        loop {
            let (number, after) = split_number(rest);
            let (unit, after) = split_letters(after);
            // Each part has a smaller unit than the one before.
            let (_, microseconds) = units.find(|(name, _)| *name == unit).ok_or_else(wrong)?;
            let part = scaled(number, *microseconds).ok_or_else(wrong)?;
            total = total.checked_add(part).ok_or_else(wrong)?;
            if after.is_empty() {
                return Ok(Self(Duration::from_micros(total)));
            }
            rest = after;
        }
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || refusal(text, "a size", "MiB", "64kB, 256MiB or 1GiB");
        let (number, unit) = split_number(text);
        let unit: u64 = match unit {
            "B" => 1,
            "kB" | "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "TB" => 1_000_000_000_000,
            "K" | "KiB" => 1 << 10,
            "M" | "MiB" => 1 << 20,
            "G" | "GiB" => 1 << 30,
            "T" | "TiB" => 1 << 40,
            _ => return Err(wrong()),
        };
        let size = scaled(number, unit).filter(|size| *size > 0);
        size.map(Self).ok_or_else(wrong)
    }
}

impl FromStr for ByteRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is not a rate; write 50MiB/s, 100MB/s or 800mbps");
        if let Ok(Rate::Bits(bits)) = text.parse() {
            let bytes = (bits / 8.0).round();
            // Rates below 2^53 bytes a second are exact.
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "in range"
            )]
            let bytes = (1.0..9e15).contains(&bytes).then_some(bytes as u64);
            return bytes.map(Self).ok_or_else(wrong);
        }
        let size = text.strip_suffix("/s").unwrap_or(text).parse::<Size>();
        size.map(|Size(bytes)| Self(bytes)).map_err(|_| wrong())
    }
}

/// What is wrong with a text, and what to write. It is kept out of line for the sake of the agent's size.
#[cold]
#[inline(never)]
fn refusal(text: &str, what: &str, unit: &str, examples: &str) -> String {
    match is_number(text) {
        true => format!("\"{text}\" has no unit; write {what} such as {text}{unit}"),
        false => format!("\"{text}\" is not {what}; write {examples}"),
    }
}

/// Whether the text is a decimal number without a unit.
fn is_number(text: &str) -> bool {
    !text.is_empty() && split_number(text).1.is_empty() && scaled(text, 1_000_000_000).is_some()
}

fn split_number(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    text.split_at(end.unwrap_or(text.len()))
}

fn split_letters(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_alphabetic());
    text.split_at(end.unwrap_or(text.len()))
}

/// A decimal number times a unit, when that is whole.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let mut value = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    if !fraction.is_empty() {
        let power = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
        let part = fraction.parse::<u64>().ok()?.checked_mul(unit)?;
        if part % power != 0 {
            return None;
        }
        value = value.checked_add(part / power)?;
    }
    Some(value)
}

impl fmt::Display for Pps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            rate if rate % 1_000_000 == 0 => write!(f, "{}Mpps", rate / 1_000_000),
            rate if rate % 1_000 == 0 => write!(f, "{}kpps", rate / 1_000),
            rate => write!(f, "{rate}pps"),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_micros() {
            span if span % 1_000_000 == 0 => write!(f, "{}s", span / 1_000_000),
            span if span % 1_000 == 0 => write!(f, "{}ms", span / 1_000),
            span => write!(f, "{span}us"),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}B", self.0)
    }
}

/// Reads a quantity from text. A value of another type is refused with an example.
struct TextVisitor<T> {
    expected: &'static str,
    marker: PhantomData<T>,
}

impl<T: FromStr<Err = String>> de::Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

macro_rules! deserialize_text {
    ($($name:ident: $expected:literal,)*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let marker = PhantomData;
                deserializer.deserialize_str(TextVisitor { expected: $expected, marker })
            }
        }
    )*};
}
deserialize_text!(
    Pps: "a rate such as \"50kpps\"",
    Span: "a duration such as \"30s\"",
    Size: "a size such as \"64MiB\"",
    ByteRate: "a rate such as \"50MiB/s\"",
);

macro_rules! serialize_text {
    ($($name:ident)*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}
serialize_text!(Pps Span);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_durations_are_exact_or_refused() {
        let rate = |text: &str| text.parse::<Pps>().map(|rate| rate.0).ok();
        assert_eq!(rate("800pps"), Some(800));
        assert_eq!(rate("50kpps"), Some(50_000));
        assert_eq!(rate("1.5Mpps"), Some(1_500_000));
        for wrong in [
            "", "pps", "kpps", "0pps", "-1pps", "0.5pps", "50k", "9999Mpps", "1..5kpps",
        ] {
            assert_eq!(rate(wrong), None, "{wrong}");
        }
        let span = |text: &str| text.parse::<Span>().map(|span| span.0.as_millis()).ok();
        assert_eq!(span("250ms"), Some(250));
        assert_eq!(span("1.5s"), Some(1500));
        assert_eq!(span("5m"), Some(300_000));
        assert_eq!(span("1h30m"), Some(5_400_000));
        assert_eq!(span("1d1ms"), Some(86_400_001));
        for wrong in ["", "30", "s", "-1s", "1 s", "1w", "30m1h", "1s1s", "1h30"] {
            assert_eq!(span(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn rates_are_messages_or_bits() {
        for (text, rate) in [
            ("0.5pps", Rate::Messages(0.5)),
            ("1.5kpps", Rate::Messages(1500.0)),
            ("10mbps", Rate::Bits(1e7)),
            ("2.5Gbps", Rate::Bits(2.5e9)),
            ("800bps", Rate::Bits(800.0)),
        ] {
            assert_eq!(text.parse(), Ok(rate), "{text}");
        }
        for wrong in [
            "", "10", "0pps", "-1pps", "1e3pps", "10mb", "infbps", "pps", "1 mbps",
        ] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_exact_or_refused() {
        assert_eq!("256MiB".parse(), Ok(Size(268_435_456)));
        assert_eq!("100kB".parse(), Ok(Size(100_000)));
        assert_eq!("64KB".parse(), Ok(Size(64_000)));
        assert_eq!("64K".parse(), Ok(Size(65_536)));
        assert_eq!("0.5GiB".parse(), Ok(Size(1 << 29)));
        for wrong in [
            "",
            "5",
            "0B",
            "0.3KiB",
            "1.5B",
            "-1B",
            "5 MiB",
            "99999999999GiB",
        ] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn byte_rates_are_sizes_or_bits() {
        for (text, rate) in [("50MiB/s", 50 << 20), ("1kB", 1000), ("8mbps", 1_000_000)] {
            assert_eq!(text.parse(), Ok(ByteRate(rate)), "{text}");
        }
        for wrong in ["", "5", "0bps", "5kpps", "5MB/h"] {
            assert!(wrong.parse::<ByteRate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn errors_show_what_to_write() {
        assert_eq!(
            "120".parse::<Span>().unwrap_err(),
            "\"120\" has no unit; write a duration such as 120s"
        );
        assert_eq!(
            "64".parse::<Size>().unwrap_err(),
            "\"64\" has no unit; write a size such as 64MiB"
        );
    }

    #[test]
    fn display_is_parsed_again() {
        for text in ["800pps", "50kpps", "2Mpps"] {
            assert_eq!(text.parse::<Pps>().unwrap().to_string(), text);
        }
        for text in ["250ms", "30s", "7us"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        assert_eq!(Size(4096).to_string().parse(), Ok(Size(4096)));
    }
}
