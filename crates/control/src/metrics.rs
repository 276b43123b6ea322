//! Metrics in the Prometheus text format, written from counters the program already keeps.

use std::fmt::{self, Display, Write};

/// One scrape's worth of metrics: samples in any order, one group a name on output.
#[derive(Debug, Default)]
pub struct Text {
    families: Vec<Family>,
}

/// All samples of one name.
#[derive(Debug)]
pub struct Family {
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    samples: String,
}

impl Text {
    pub fn new() -> Self {
        Self::default()
    }

    /// A count that only grows, named `lowroad_<job>_<noun>_<unit>_total`.
    pub fn counter(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.family(name, help, "counter")
    }

    /// A value that goes up and down.
    pub fn gauge(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.family(name, help, "gauge")
    }

    fn family(
        &mut self,
        name: &'static str,
        help: &'static str,
        kind: &'static str,
    ) -> &mut Family {
        debug_assert!(is_name(name), "{name} is not a metric name");
        let known = self.families.iter().position(|family| family.name == name);
        let at = known.unwrap_or_else(|| {
            self.families.push(Family {
                name,
                help,
                kind,
                samples: String::new(),
            });
            self.families.len() - 1
        });
        let family = &mut self.families[at];
        debug_assert_eq!(family.kind, kind, "{name} is both");
        family
    }
}

impl Family {
    /// One value; labels in the caller's order, values of any text.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) -> &mut Self {
        self.samples.push_str(self.name);
        for (index, (label, text)) in labels.iter().enumerate() {
            debug_assert!(is_name(label), "{label} is not a label name");
            self.samples.push(if index == 0 { '{' } else { ',' });
            let _ = write!(self.samples, "{label}=\"{}\"", LabelValue(text, true));
        }
        if !labels.is_empty() {
            self.samples.push('}');
        }
        let _ = writeln!(self.samples, " {value}");
        self
    }
}

impl Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for family in &self.families {
            let Family {
                name, help, kind, ..
            } = family;
            writeln!(f, "# HELP {name} {}", LabelValue(help, false))?;
            writeln!(f, "# TYPE {name} {kind}")?;
            f.write_str(&family.samples)?;
        }
        Ok(())
    }
}

/// Text as the format wants it; quotes are escaped in label values only.
struct LabelValue<'a>(&'a str, bool);

impl Display for LabelValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '"' if self.1 => f.write_str("\\\"")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

fn is_name(name: &str) -> bool {
    !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_described_once_and_its_samples_stay_together() {
        let mut text = Text::new();
        text.counter("lowroad_relay_packets_total", "Packets received.")
            .sample(&[("stream", "a")], 1_u64);
        text.gauge("lowroad_relay_subscribers", "Subscribers now.")
            .sample(&[], 2);
        text.counter("lowroad_relay_packets_total", "Packets received.")
            .sample(&[("stream", "b"), ("datapath", "xdp")], u64::MAX);
        assert_eq!(
            text.to_string(),
            "# HELP lowroad_relay_packets_total Packets received.\n\
             # TYPE lowroad_relay_packets_total counter\n\
             lowroad_relay_packets_total{stream=\"a\"} 1\n\
             lowroad_relay_packets_total{stream=\"b\",datapath=\"xdp\"} 18446744073709551615\n\
             # HELP lowroad_relay_subscribers Subscribers now.\n\
             # TYPE lowroad_relay_subscribers gauge\n\
             lowroad_relay_subscribers 2\n"
        );
    }

    #[test]
    fn label_values_may_be_any_text() {
        let mut text = Text::new();
        text.gauge("up", "a \"b\" \\ \n c")
            .sample(&[("l", "a \"b\" \\ \n c")], 0.5);
        assert_eq!(
            text.to_string(),
            "# HELP up a \"b\" \\\\ \\n c\n# TYPE up gauge\n\
             up{l=\"a \\\"b\\\" \\\\ \\n c\"} 0.5\n"
        );
    }
}
