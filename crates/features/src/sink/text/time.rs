//! Timestamps in the format of RFC 3339, with 0, 3, 6 or 9 digits of a second as the value needs.

use std::fmt::Write;

use arrow_schema::TimeUnit;
use chrono::NaiveDate;

const DAY: i64 = 24 * 60 * 60;

/// Writes timestamps of one unit and one time zone.
pub(super) struct Timestamps {
    /// Units in a second, and nanoseconds in a unit.
    per_second: i64,
    nanoseconds: i64,
    /// Seconds east of UTC.
    offset: i64,
    /// `Z`, `+05:30`, or nothing if the zone is unknown.
    zone: String,
    /// The date of the last value: consecutive rows are mostly of the same day.
    day: i64,
    date: String,
}

impl Timestamps {
    /// `offset` is in seconds east of UTC, and `None` if the zone is unknown.
    pub(super) fn new(unit: TimeUnit, offset: Option<i64>) -> Self {
        let per_second = match unit {
            TimeUnit::Second => 1,
            TimeUnit::Millisecond => 1_000,
            TimeUnit::Microsecond => 1_000_000,
            TimeUnit::Nanosecond => 1_000_000_000,
        };
        Self {
            per_second,
            nanoseconds: 1_000_000_000 / per_second,
            offset: offset.unwrap_or(0),
            zone: offset.map_or_else(String::new, zone),
            day: 0,
            date: date_text(0),
        }
    }

    /// Whether a value is within the range of the calendar, in UTC and in the zone.
    pub(super) fn has_date(&self, value: i64) -> bool {
        let seconds = value.div_euclid(self.per_second);
        let has = |seconds: i64| date(seconds.div_euclid(DAY)).is_some();
        has(seconds) && has(seconds.saturating_add(self.offset))
    }

    /// Appends a value, which must be within the range of the calendar.
    pub(super) fn write(&mut self, value: i64, out: &mut Vec<u8>) {
        let seconds = value.div_euclid(self.per_second) + self.offset;
        let (day, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
        if day != self.day {
            self.day = day;
            self.date = date_text(day);
        }
        out.extend_from_slice(self.date.as_bytes());
        let [hour, minute, second] = [second / 3600, second / 60 % 60, second % 60];
        for (mark, number) in [(b'T', hour), (b':', minute), (b':', second)] {
            out.push(mark);
            digits::<2>(number, out);
        }
        fraction(value.rem_euclid(self.per_second) * self.nanoseconds, out);
        out.extend_from_slice(self.zone.as_bytes());
    }
}

/// The offset in seconds east of UTC of a zone: `UTC`, `+05:30`, `+0530` or `+05`. Other names would
/// need a database of time zones.
pub(super) fn offset(zone: &str) -> Option<i64> {
    if zone == "UTC" {
        return Some(0);
    }
    let (sign, digits) = match zone.as_bytes() {
        [sign, hours @ .., b':', tens, ones] if hours.len() == 2 => {
            (sign, [hours, &[*tens, *ones]].concat())
        }
        [sign, hours @ ..] if hours.len() == 2 => (sign, [hours, b"00"].concat()),
        [sign, digits @ ..] if digits.len() == 4 => (sign, digits.to_vec()),
        _ => return None,
    };
    let number = |pair: &[u8]| {
        let digit = |byte: u8| byte.is_ascii_digit().then(|| i64::from(byte - b'0'));
        Some(digit(pair[0])? * 10 + digit(pair[1])?)
    };
    let seconds = number(&digits[..2])? * 3600 + number(&digits[2..])? * 60;
    let sign = match sign {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    (seconds < DAY).then_some(sign * seconds)
}

fn zone(offset: i64) -> String {
    if offset == 0 {
        return "Z".to_owned();
    }
    let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.abs() / 60);
    format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

fn date(day: i64) -> Option<NaiveDate> {
    NaiveDate::from_epoch_days(i32::try_from(day).ok()?)
}

/// `2024-02-29`. Years after 9999 and before 0 have a sign.
fn date_text(day: i64) -> String {
    let mut text = String::new();
    if let Some(date) = date(day) {
        // A string accepts every write.
        let _ = write!(text, "{date:?}");
    }
    text
}

fn fraction(nanoseconds: i64, out: &mut Vec<u8>) {
    if nanoseconds == 0 {
        return;
    }
    out.push(b'.');
    if nanoseconds % 1_000_000 == 0 {
        digits::<3>(nanoseconds / 1_000_000, out);
    } else if nanoseconds % 1_000 == 0 {
        digits::<6>(nanoseconds / 1_000, out);
    } else {
        digits::<9>(nanoseconds, out);
    }
}

/// Appends the last `N` digits of a number, with leading zeros.
fn digits<const N: usize>(mut number: i64, out: &mut Vec<u8>) {
    let mut digits = [b'0'; N];
    for digit in digits.iter_mut().rev() {
        *digit += u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
    }
    out.extend_from_slice(&digits);
}
