//! Points in time as users write and read them: RFC 3339.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

/// Days before each month of a year that is no leap year.
const BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
const DAY: u64 = 86_400;
const SECOND: u64 = 1_000_000_000;
/// The last year whose nanoseconds all fit.
const LAST: u64 = 2553;

/// Nanoseconds since the beginning of 1970, UTC: `2026-11-28T10:15:00Z`, `2026-11-28T11:15:00.25+01:00`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub u64);

impl Timestamp {
    pub fn now() -> Self {
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// So much earlier, but not before 1970.
    pub fn before(self, span: Duration) -> Self {
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(span))
    }
}

impl FromStr for Timestamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).ok_or_else(|| {
            format!("\"{text}\" is not a time with a zone; write 2026-11-28T10:15:00Z or 2026-11-28T11:15:00+01:00")
        })
    }
}

fn parse(text: &str) -> Option<Timestamp> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let (time, east, zone) = match time.strip_suffix(['Z', 'z']) {
        Some(time) => (time, true, "00:00"),
        None => {
            let at = time.rfind(['+', '-'])?;
            let (time, zone) = time.split_at_checked(at)?;
            (time, zone.starts_with('+'), zone.get(1..)?)
        }
    };
    let (time, fraction) = match time.split_once('.') {
        Some((time, fraction)) => (time, nanoseconds(fraction)?),
        None => (time, 0),
    };
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let [zone_hour, zone_minute] = numbers(zone, ':', [2, 2])?;
    let valid = (1970..=LAST).contains(&year)
        && (1..=12).contains(&month)
        && (1..=length(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        // A leap second is the first of the next minute, as for the kernel.
        && second <= 60
        && zone_hour < 24
        && zone_minute < 60;
    let before = BEFORE.get(usize::try_from(month).ok()?.checked_sub(1)?)?;
    let day = valid.then(|| days_before(year) + before + leap_day(year, month) + day - 1)?;
    let local = day * DAY + hour * 3600 + minute * 60 + second;
    let offset = zone_hour * 3600 + zone_minute * 60;
    let seconds = match east {
        true => local.checked_sub(offset)?,
        false => local + offset,
    };
    Some(Timestamp(
        seconds.checked_mul(SECOND)?.checked_add(fraction)?,
    ))
}

/// Numbers of so many digits each.
fn numbers<const N: usize>(text: &str, between: char, digits: [usize; N]) -> Option<[u64; N]> {
    let mut parts = text.split(between);
    let mut found = [0; N];
    for (number, digits) in found.iter_mut().zip(digits) {
        let part = parts.next()?;
        let plain = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
        *number = plain.then(|| part.parse().ok())??;
    }
    parts.next().is_none().then_some(found)
}

/// Of the digits behind the point; those behind the ninth are cut off.
fn nanoseconds(fraction: &str) -> Option<u64> {
    let plain = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let nine: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    plain.then(|| nine.parse().ok())?
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
}

/// The leap day, where a month comes behind it.
fn leap_day(year: u64, month: u64) -> u64 {
    u64::from(month > 2 && is_leap(year))
}

fn length(year: u64, month: u64) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from the beginning of 1970 to that of a year.
fn days_before(year: u64) -> u64 {
    let leap_years = |before: u64| before / 4 - before / 100 + before / 400;
    (year - 1970) * 365 + leap_years(year - 1) - leap_years(1969)
}

/// In UTC, with as many digits of a second as it takes.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, fraction) = (self.0 / SECOND, self.0 % SECOND);
        let (days, second) = (seconds / DAY, seconds % DAY);
        let mut year = 1970 + days / 366;
        while days_before(year + 1) <= days {
            year += 1;
        }
        let mut day = days - days_before(year);
        let mut month = 1;
        while day >= length(year, month) {
            day -= length(year, month);
            month += 1;
        }
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(
            f,
            "{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}",
            day + 1
        )?;
        match fraction {
            0 => {}
            _ if fraction.is_multiple_of(1_000_000) => write!(f, ".{:03}", fraction / 1_000_000)?,
            _ if fraction.is_multiple_of(1000) => write!(f, ".{:06}", fraction / 1000)?,
            _ => write!(f, ".{fraction:09}")?,
        }
        f.write_str("Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(text: &str) -> u64 {
        text.parse::<Timestamp>().unwrap().0
    }

    #[test]
    fn known_times_are_read() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2000-03-01T00:00:00z", 951_868_800),
            ("2026-11-28T10:15:00Z", 1_795_860_900),
            ("2026-11-28 10:15:00Z", 1_795_860_900),
            ("2026-11-28T11:15:00+01:00", 1_795_860_900),
            ("2026-11-28t04:45:00-05:30", 1_795_860_900),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
            ("2016-12-31T23:59:60Z", 1_483_228_800),
        ] {
            assert_eq!(ns(text), seconds * SECOND, "{text}");
        }
        assert_eq!(ns("1970-01-01T00:00:00.25Z"), SECOND / 4);
        assert_eq!(ns("1970-01-01T00:00:00.1234567899Z"), 123_456_789);
    }

    #[test]
    fn what_is_no_time_with_a_zone_is_refused() {
        for text in [
            "",
            "now",
            "2026-11-28",
            "2026-11-28T10:15:00",
            "2026-11-28T10:15Z",
            "2026-13-28T10:15:00Z",
            "2026-02-29T10:15:00Z",
            "2026-11-31T10:15:00Z",
            "2026-00-10T10:15:00Z",
            "2026-11-00T10:15:00Z",
            "2026-11-28T24:15:00Z",
            "2026-11-28T10:60:00Z",
            "2026-11-28T10:15:61Z",
            "2026-11-28T10:15:00+24:00",
            "2026-11-28T10:15:00+0100",
            "2026-11-28T10:15:00.Z",
            "2026-11-28T10:15:00.5",
            "26-11-28T10:15:00Z",
            "2026-11-28T1:15:00Z",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
            "2554-01-01T00:00:00Z",
            "+026-11-28T10:15:00Z",
        ] {
            let refused = text.parse::<Timestamp>().unwrap_err();
            assert!(refused.contains("2026-11-28T10:15:00Z"), "{refused}");
        }
    }

    #[test]
    fn what_is_shown_is_read_as_the_same() {
        let mut at = 0_u64;
        while let Some(next) = at.checked_add(86_400 * SECOND * 13 + 123_456_789_123) {
            let shown = Timestamp(at).to_string();
            if shown.as_str() >= "2554" {
                return;
            }
            assert_eq!(ns(&shown), at, "{shown}");
            at = next;
        }
        panic!("the last year was not reached");
    }

    #[test]
    fn a_second_has_only_the_digits_that_it_takes() {
        for (at, shown) in [
            (0, "1970-01-01T00:00:00Z"),
            (250_000_000, "1970-01-01T00:00:00.250Z"),
            (250_001_000, "1970-01-01T00:00:00.250001Z"),
            (1, "1970-01-01T00:00:00.000000001Z"),
            (951_825_600 * SECOND, "2000-02-29T12:00:00Z"),
        ] {
            assert_eq!(Timestamp(at).to_string(), shown);
        }
    }
}
