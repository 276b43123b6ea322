//! Values of metrics that a program prints: where they are in its output.

use anyhow::{Context, Result, anyhow, bail};
use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use serde::Deserialize;
use serde_json::Value;

/// A value of a metric, as an arm's file states it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportedValue {
    pub(crate) metric: String,
    /// The path of a number in the output, which is JSON: keys and indices between dots.
    json: Option<String>,
    /// A regular expression, the first group of which is the number.
    pattern: Option<String>,
    /// The factor that converts the number to the metric's unit.
    scale: Option<f64>,
}

impl Eq for ReportedValue {}

impl ReportedValue {
    /// Whether it makes sense.
    pub(crate) fn check(&self) -> Result<(), String> {
        match (&self.json, &self.pattern) {
            (Some(_), None) => {}
            (None, Some(pattern)) => {
                let regex = regex(pattern)?;
                if regex
                    .group_info()
                    .group_len(regex_automata::PatternID::ZERO)
                    < 2
                {
                    return Err("pattern has no group for the number, such as ([0-9.]+)".to_owned());
                }
            }
            _ => return Err("each of values has either json or pattern".to_owned()),
        }
        match self.scale {
            Some(scale) if !scale.is_normal() => Err(format!("scale is {scale}")),
            _ => Ok(()),
        }
    }

    /// The value that an output has.
    ///
    /// # Errors
    /// It has none.
    pub(crate) fn of(&self, output: &str) -> Result<f64> {
        let number = match (&self.json, &self.pattern) {
            (Some(path), _) => in_json(output, path)?,
            (None, Some(pattern)) => by_pattern(output, pattern)?,
            (None, None) => bail!("{}: neither json nor pattern", self.metric),
        };
        Ok(number * self.scale.unwrap_or(1.0))
    }
}

/// Bytes, not characters: tables of Unicode are not linked.
fn regex(pattern: &str) -> Result<Regex, String> {
    let syntax = syntax::Config::new()
        .unicode(false)
        .utf8(false)
        .multi_line(true);
    let regex = Regex::builder().syntax(syntax).build(pattern);
    regex.map_err(|error| {
        let why = error.syntax_error();
        let why = why.map_or_else(|| error.to_string(), ToString::to_string);
        let last = why.lines().last().unwrap_or_default().trim().to_owned();
        format!("pattern {pattern:?}: {last}")
    })
}

fn by_pattern(output: &str, pattern: &str) -> Result<f64> {
    let regex = regex(pattern).map_err(|what| anyhow!(what))?;
    let mut captures = regex.create_captures();
    regex.captures(output, &mut captures);
    let group = captures.get_group(1);
    let group = group.with_context(|| format!("no text matches the pattern {pattern:?}"))?;
    let text = &output[group.range()];
    text.parse()
        .map_err(|_| anyhow!("the pattern {pattern:?} found {text:?}, which is not a number"))
}

fn in_json(output: &str, path: &str) -> Result<f64> {
    let output: Value = serde_json::from_str(output.trim()).context("the output is not JSON")?;
    let found = path
        .split('.')
        .try_fold(&output, |value, key| match key.parse::<usize>() {
            Ok(index) if value.is_array() => value.get(index),
            _ => value.get(key),
        });
    let number = found.and_then(Value::as_f64);
    number.with_context(|| format!("the output has no number at {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> ReportedValue {
        toml::from_str(&format!("metric = \"tcp_rr_us_p50\"\n{text}")).unwrap()
    }

    #[test]
    fn number_is_found_in_what_a_program_prints() {
        let json = r#"{"end": {"streams": [{"rate": 1}, {"rate": 2.5e9}]}}"#;
        let rate = value("json = \"end.streams.1.rate\"\nscale = 1e-6");
        assert!((rate.of(json).unwrap() - 2500.0).abs() < 1e-9);
        let text = "sockperf: percentile 99.000 = 31.5\nsockperf: percentile 50.000 =   12.25\n";
        let median = value(r"pattern = '^.*percentile 50\.000 =\s*([0-9.]+)$'");
        assert!((median.of(text).unwrap() - 12.25).abs() < 1e-9);
        for (value, output, what) in [
            (&rate, "{}", "no number at end.streams.1.rate"),
            (&rate, "rate 7", "not JSON"),
            (&median, "percentile 90", "no text matches"),
        ] {
            let error = format!("{:#}", value.of(output).unwrap_err());
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn value_without_a_place_is_refused() {
        for (text, what) in [
            ("", "either json or pattern"),
            ("json = \"a\"\npattern = \"(b)\"", "either json or pattern"),
            ("pattern = \"[0-9]+\"", "no group"),
            ("pattern = \"([0-9\"", "pattern \"([0-9\": "),
            ("json = \"a\"\nscale = 0.0", "scale"),
        ] {
            let refused = value(text).check().unwrap_err();
            assert!(
                refused.contains(what) && refused.lines().count() == 1,
                "{refused}"
            );
        }
        assert_eq!(value("pattern = '([0-9.]+) us'").check(), Ok(()));
    }
}
