//! Numbers for tables and sentences, rounded to what a reader takes in.

/// A nonnegative number with at least three digits: `8.12`, `61.2`, `812`, `12300`.
pub fn short(value: f64) -> String {
    let places = if value < 10.0 {
        2
    } else {
        usize::from(value < 100.0)
    };
    format!("{value:.places$}")
}

/// A number with three significant digits, and all digits of a larger one's whole part: `0.0123`, `1.20`, `27.1`,
/// `12300`. Infinities and NaN are `-`.
pub fn digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0" } else { "-" }.to_owned();
    }
    let magnitude = value.abs().log10().floor();
    let step = 10f64.powf(magnitude - 2.0);
    let rounded = (value / step).round() * step;
    // 9.996 rounds up into the next magnitude and then needs a place less.
    let magnitude = rounded.abs().log10().floor();
    let mut places = 0;
    let mut shown = magnitude;
    while shown < 2.0 {
        places += 1;
        shown += 1.0;
    }
    format!("{rounded:.places$}")
}

/// A value in its unit with three significant digits. Times and packet rates move to the next larger unit while they
/// have four digits before the point: 4712 `ns` is `4.71 us`. The unit `pct` is written `%`.
pub fn quantity(value: f64, unit: &str) -> String {
    let (value, unit) = scaled(value, unit);
    format!("{} {unit}", digits(value))
}

fn scaled(value: f64, unit: &str) -> (f64, &str) {
    const LADDERS: [&[&str]; 2] = [&["ns", "us", "ms", "s"], &["pps", "kpps", "Mpps"]];
    for ladder in LADDERS {
        if let Some(at) = ladder.iter().position(|step| *step == unit) {
            let (mut value, mut at) = (value, at);
            while value.abs() >= 1000.0 && at + 1 < ladder.len() {
                value /= 1000.0;
                at += 1;
            }
            return (value, ladder[at]);
        }
    }
    (value, if unit == "pct" { "%" } else { unit })
}

/// Events in thousands or millions, for a column whose head has the unit: `812 k`, `1.50 M`.
pub fn rate(events: f64) -> String {
    if events < 1e6 {
        format!("{:.0} k", events / 1e3)
    } else {
        format!("{:.2} M", events / 1e6)
    }
}

/// Bytes in mebibytes: `1.5 MiB`.
pub fn mebibytes(bytes: usize) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    format!("{mebibytes:.1} MiB")
}

/// A length of time from seconds to hours: `45 s`, `12 min`, `2.5 h`.
pub fn duration(seconds: f64) -> String {
    if seconds < 120.0 {
        format!("{seconds:.0} s")
    } else if seconds < 7200.0 {
        format!("{:.0} min", seconds / 60.0)
    } else {
        format!("{:.1} h", seconds / 3600.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_significant_digits() {
        for (value, text) in [
            (0.0, "0"),
            (27.123, "27.1"),
            (3.4, "3.40"),
            (9.996, "10.0"),
            (999.6, "1000"),
            (0.012_345, "0.0123"),
            (12_345.0, "12300"),
            (-1.234, "-1.23"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(digits(value), text);
        }
    }

    #[test]
    fn units_climb_their_ladder() {
        assert_eq!(quantity(4712.0, "ns"), "4.71 us");
        assert_eq!(quantity(1_500_000.0, "pps"), "1.50 Mpps");
        assert_eq!(quantity(5.2, "pct"), "5.20 %");
        assert_eq!(quantity(40_000.0, "mib"), "40000 mib");
    }

    #[test]
    fn short_numbers_have_three_digits() {
        for (value, text) in [
            (0.0, "0.00"),
            (8.123, "8.12"),
            (61.23, "61.2"),
            (812.4, "812"),
            (12_345.0, "12345"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn rates_sizes_and_durations_change_units() {
        assert_eq!([rate(812_400.0), rate(1.5e6)], ["812 k", "1.50 M"]);
        assert_eq!(mebibytes(3 << 19), "1.5 MiB");
        let durations = [119.0, 120.0, 7200.0].map(duration);
        assert_eq!(durations, ["119 s", "2 min", "2.0 h"]);
    }
}
