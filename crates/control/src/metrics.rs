//! The metrics of a job: families of samples, made from counters that the job keeps anyway, and their text formats.
//!
//! The names follow Prometheus's conventions: `lowroad_<job>_<noun>_<unit>`, in seconds and bytes, and `_total` at the
//! end of a counter.

mod format;

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

pub use format::Format;

/// The suffixes that the encoder adds to a family's name.
const TOTAL: &str = "_total";
const INFO: &str = "_info";

type Labels = Vec<(String, String)>;

/// The families of one scrape, each of them once, in the order in which they were first named. A family without samples
/// is left out.
#[derive(Debug)]
pub struct MetricSet {
    families: Vec<MetricFamily>,
}

/// All samples of one name.
#[derive(Debug)]
pub struct MetricFamily {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    samples: Vec<(Labels, Value)>,
}

/// The value of a sample.
#[derive(Clone, Debug)]
pub enum Value {
    Integer(u64),
    Float(f64),
    Histogram(Histogram),
}

/// A distribution of observations.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// The sum of all observations.
    pub sum: f64,
    /// Inclusive upper bounds in ascending order, the last of which is infinity, and the number of observations in each
    /// bucket alone. The formats have cumulative numbers, which the encoder computes.
    pub buckets: Vec<(f64, u64)>,
}

impl Default for MetricSet {
    fn default() -> Self {
        Self::new()
    }
}

impl MetricSet {
    /// A set with `lowroad_build_info`, which has the version of lowroad.
    pub fn new() -> Self {
        let mut metrics = Self {
            families: Vec::new(),
        };
        let help = "The version of lowroad that answers; the value is always 1.";
        metrics
            .family("lowroad_build_info", help, MetricType::Info)
            .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1_u64);
        metrics
    }

    /// A count that only grows. The name ends with `_total`.
    pub fn counter(&mut self, name: &'static str, help: &'static str) -> &mut MetricFamily {
        debug_assert!(name.ends_with(TOTAL), "{name} is the name of a counter");
        self.family(name, help, MetricType::Counter)
    }

    /// A value that goes up and down.
    pub fn gauge(&mut self, name: &'static str, help: &'static str) -> &mut MetricFamily {
        debug_assert!(!name.ends_with(TOTAL), "{name} is the name of a gauge");
        self.family(name, help, MetricType::Gauge)
    }

    /// Distributions of values in the unit that the name ends with.
    pub fn histogram(&mut self, name: &'static str, help: &'static str) -> &mut MetricFamily {
        self.family(name, help, MetricType::Histogram)
    }

    fn family(
        &mut self,
        name: &'static str,
        help: &'static str,
        kind: MetricType,
    ) -> &mut MetricFamily {
        debug_assert!(is_name(name), "{name} is the name of a metric");
        let known = self.families.iter().position(|family| family.name == name);
        let at = known.unwrap_or_else(|| {
            self.families.push(MetricFamily {
                name,
                help,
                kind,
                samples: Vec::new(),
            });
            self.families.len() - 1
        });
        let family = &mut self.families[at];
        debug_assert_eq!(family.kind, kind, "{name} has one type");
        family
    }

    /// The page that a client gets.
    pub fn encode(self, format: Format) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut page = String::new();
        let encoded = match format {
            Format::Prometheus => prometheus_text::encode(&mut page, &registry),
            Format::OpenMetrics => text::encode(&mut page, &registry),
        };
        // Only the writer can fail, and a string takes everything.
        debug_assert!(encoded.is_ok());
        page
    }
}

impl Collector for MetricSet {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let has_samples = |family: &&MetricFamily| !family.samples.is_empty();
        let mut families = self.families.iter().filter(has_samples);
        families.try_for_each(|family| family.encode(&mut encoder))
    }
}

impl MetricFamily {
    /// Adds one value. No two samples of a family have the same labels; label values may be any text.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Into<Value>) -> &mut Self {
        debug_assert!(labels.iter().all(|(label, _)| is_name(label)), "{labels:?}");
        let value = value.into();
        let is_histogram = matches!(value, Value::Histogram(_));
        debug_assert_eq!(
            is_histogram,
            self.kind == MetricType::Histogram,
            "{}",
            self.name
        );
        let owned = |(label, text): &(&str, &str)| ((*label).to_owned(), (*text).to_owned());
        self.samples
            .push((labels.iter().map(owned).collect(), value));
        self
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (name, unit) = self.stem();
        let mut family = encoder.encode_descriptor(name, self.help, unit.as_ref(), self.kind)?;
        for (labels, value) in &self.samples {
            if self.kind == MetricType::Info {
                family.encode_info(labels)?;
            } else if labels.is_empty() {
                value.encode(self.kind, &mut family)?;
            } else {
                value.encode(self.kind, &mut family.encode_family(labels)?)?;
            }
        }
        Ok(())
    }

    /// The name without the suffixes that the encoder adds, and the unit among them.
    fn stem(&self) -> (&'static str, Option<Unit>) {
        let suffix = match self.kind {
            MetricType::Counter => TOTAL,
            MetricType::Info => INFO,
            MetricType::Gauge | MetricType::Histogram | MetricType::Unknown => "",
        };
        let name = self.name.strip_suffix(suffix).unwrap_or(self.name);
        for unit in [Unit::Seconds, Unit::Bytes] {
            let rest = name.strip_suffix(unit.as_str());
            if let Some(stem) = rest.and_then(|rest| rest.strip_suffix('_')) {
                return (stem, Some(unit));
            }
        }
        (name, None)
    }
}

impl Value {
    fn encode(&self, kind: MetricType, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        match (self, kind) {
            (Self::Integer(value), MetricType::Counter) => {
                encoder.encode_counter::<NoLabelSet, _, f64>(value, None)
            }
            (Self::Float(value), MetricType::Counter) => {
                encoder.encode_counter::<NoLabelSet, _, f64>(value, None)
            }
            (Self::Integer(value), _) => encoder.encode_gauge(value),
            (Self::Float(value), _) => encoder.encode_gauge(value),
            (Self::Histogram(Histogram { sum, buckets }), _) => {
                let count = buckets.iter().map(|(_, count)| count).sum();
                encoder.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)
            }
        }
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Integer(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Integer(value.into())
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::Integer(value as u64)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<Histogram> for Value {
    fn from(value: Histogram) -> Self {
        Self::Histogram(value)
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

    /// The page without the family of the version.
    fn page(metrics: MetricSet, format: Format) -> String {
        let page = metrics.encode(format);
        let (version, rest) = page.split_once("\"} 1\n").unwrap();
        assert!(version.contains("lowroad_build_info{version="), "{version}");
        rest.to_owned()
    }

    fn relay() -> MetricSet {
        let mut metrics = MetricSet::new();
        metrics
            .counter("lowroad_relay_bytes_total", "Bytes received.")
            .sample(&[("stream", "a")], 1_u64);
        metrics
            .gauge("lowroad_relay_subscribers", "Subscribers now.")
            .sample(&[], 2_u64);
        metrics
            .counter("lowroad_relay_bytes_total", "Bytes received.")
            .sample(&[("stream", "b"), ("datapath", "xdp")], u64::MAX);
        metrics
    }

    #[test]
    fn a_family_is_described_once_and_its_samples_stay_together() {
        assert_eq!(
            page(relay(), Format::Prometheus),
            "# HELP lowroad_relay_bytes_total Bytes received.\n\
             # TYPE lowroad_relay_bytes_total counter\n\
             lowroad_relay_bytes_total{stream=\"a\"} 1\n\
             lowroad_relay_bytes_total{stream=\"b\",datapath=\"xdp\"} 18446744073709551615\n\
             # HELP lowroad_relay_subscribers Subscribers now.\n\
             # TYPE lowroad_relay_subscribers gauge\n\
             lowroad_relay_subscribers 2\n"
        );
    }

    #[test]
    fn open_metrics_has_units_and_an_end() {
        assert_eq!(
            page(relay(), Format::OpenMetrics),
            "# HELP lowroad_relay_bytes Bytes received.\n\
             # TYPE lowroad_relay_bytes counter\n\
             # UNIT lowroad_relay_bytes bytes\n\
             lowroad_relay_bytes_total{stream=\"a\"} 1\n\
             lowroad_relay_bytes_total{stream=\"b\",datapath=\"xdp\"} 18446744073709551615\n\
             # HELP lowroad_relay_subscribers Subscribers now.\n\
             # TYPE lowroad_relay_subscribers gauge\n\
             lowroad_relay_subscribers 2\n\
             # EOF\n"
        );
    }

    #[test]
    fn the_version_is_an_info_metric() {
        let version = env!("CARGO_PKG_VERSION");
        let sample = format!("lowroad_build_info{{version=\"{version}\"}} 1");
        for (format, name) in [
            (Format::Prometheus, "lowroad_build_info gauge"),
            (Format::OpenMetrics, "lowroad_build info"),
        ] {
            let page = MetricSet::new().encode(format);
            let lines: Vec<_> = page.lines().collect();
            assert_eq!(lines[1..3], [&format!("# TYPE {name}"), &sample], "{page}");
        }
    }

    #[test]
    fn label_values_may_be_any_text() {
        for format in [Format::Prometheus, Format::OpenMetrics] {
            let mut metrics = MetricSet::new();
            metrics
                .gauge("up", "Whether it is up.")
                .sample(&[("l", "a \"b\" \\ \n c")], 0.5);
            let page = metrics.encode(format);
            assert!(
                page.contains("\nup{l=\"a \\\"b\\\" \\\\ \\n c\"} 0.5\n"),
                "{page}"
            );
        }
    }

    #[test]
    fn a_histogram_has_cumulative_buckets_a_sum_and_a_count() {
        for format in [Format::Prometheus, Format::OpenMetrics] {
            let mut metrics = MetricSet::new();
            let histogram = Histogram {
                sum: 0.75,
                buckets: vec![(0.25, 2), (0.5, 1), (f64::INFINITY, 3)],
            };
            metrics
                .histogram("lag_seconds", "The lag.")
                .sample(&[], histogram);
            let page = metrics.encode(format);
            for line in [
                "# TYPE lag_seconds histogram",
                "lag_seconds_sum 0.75",
                "lag_seconds_count 6",
                "lag_seconds_bucket{le=\"0.25\"} 2",
                "lag_seconds_bucket{le=\"0.5\"} 3",
                "lag_seconds_bucket{le=\"+Inf\"} 6",
            ] {
                assert!(page.lines().any(|found| found == line), "{line}: {page}");
            }
        }
    }
}
