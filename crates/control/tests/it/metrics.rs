//! Pages of metrics keep the rules of their formats, and the reader that all jobs' tests use refuses those that do not.

use control::metrics::{Format, Histogram, MetricSet};
use test_support::exposition::{Page, Syntax};

const FORMATS: [(Format, Syntax); 2] = [
    (Format::Prometheus, Syntax::Prometheus),
    (Format::OpenMetrics, Syntax::OpenMetrics),
];

/// Two streams, which interleave their families.
fn metrics() -> MetricSet {
    let mut metrics = MetricSet::new();
    for stream in ["a", "b \"of\" \\\n c"] {
        let labels = [("stream", stream)];
        metrics
            .counter("lowroad_test_bytes_total", "Bytes that came.")
            .sample(&labels, u64::MAX);
        metrics
            .counter("lowroad_test_pause_seconds_total", "Time of pauses.")
            .sample(&labels, 1e-9);
        metrics
            .gauge("lowroad_test_files", "Files.")
            .sample(&labels, 3_usize);
        let histogram = Histogram {
            sum: 1e-6,
            buckets: vec![(1e-6, 0), (0.5, 2), (1.0, 0), (f64::INFINITY, 1)],
        };
        metrics
            .histogram("lowroad_test_lag_seconds", "The lag.")
            .sample(&labels, histogram);
    }
    metrics
}

#[test]
fn a_page_of_every_type_of_metric_keeps_the_rules() {
    for (format, syntax) in FORMATS {
        let text = metrics().encode(format);
        let page = Page::read(&text, syntax);
        let page = page.unwrap_or_else(|complaint| panic!("{complaint}\n{text}"));
        assert_eq!(page.families.len(), 5, "{text}");
        let stream = ("stream", "b \"of\" \\\n c");
        assert_eq!(page.value("lowroad_test_files", &[stream]), 3.0);
        assert_eq!(
            page.value("lowroad_test_pause_seconds_total", &[stream]),
            1e-9
        );
        let bucket = [stream, ("le", "0.5")];
        assert_eq!(page.value("lowroad_test_lag_seconds_bucket", &bucket), 2.0);
    }
}

/// Pages that Prometheus refuses or reads otherwise than they are meant, and the rule that each of them breaks.
const WRONG: [(Syntax, &str, &str); 29] = {
    use Syntax::{OpenMetrics, Prometheus};
    [
        (Prometheus, "a 1", "the last line has no end"),
        (Prometheus, "a 1\n", "no HELP and TYPE precede"),
        (Prometheus, "# HELP a A.\na 1\n", "no HELP and TYPE precede"),
        (
            Prometheus,
            "# TYPE a gauge\na 1\n",
            "no HELP for this family",
        ),
        (
            Prometheus,
            "# HELP a \n# TYPE a gauge\na 1\n",
            "a description is empty",
        ),
        (
            Prometheus,
            "# HELP a A.\n# TYPE a gauge\na 1\n\n",
            "a sample has no value",
        ),
        (
            Prometheus,
            "# HELP a A.\n# TYPE a gauge\na 1\n# TYPE a gauge\n",
            "is repeated",
        ),
        (Prometheus, "# HELP a A.\n# TYPE a gauge\n", "no samples"),
        (
            Prometheus,
            "# HELP a A.\n# TYPE a gauge\na 1\n# HELP b B.\n# TYPE b gauge\nb 1\n# HELP a A.\n# TYPE a gauge\na 2\n",
            "described twice",
        ),
        (
            Prometheus,
            "# HELP a A.\n# TYPE a gauge\na 1\n# HELP b B.\n# TYPE b gauge\nb 1\na{l=\"m\"} 2\n",
            "a belongs to another family",
        ),
        (
            Prometheus,
            "# HELP a A.\n# TYPE a gauge\na 1\na 2\n",
            "appears twice",
        ),
        (
            Prometheus,
            "# HELP a A.\n# TYPE a gauge\na{l=\"1\"} 1\na{m=\"1\"} 2\n",
            "different labels",
        ),
        (
            Prometheus,
            "# HELP a A.\n# TYPE a gauge\na{l=\"1\",l=\"1\"} 1\n",
            "label l appears twice",
        ),
        (
            Prometheus,
            "# HELP a A.\n# TYPE a gauge\na{l=\"\\t\"} 1\n",
            "no escape sequence",
        ),
        (
            Prometheus,
            "# HELP a A.\n# TYPE a gauge\na{l=\"1} 1\n",
            "does not end",
        ),
        (
            Prometheus,
            "# HELP a A.\n# TYPE a gauge\na{__l=\"1\"} 1\n",
            "not the name of a label",
        ),
        (
            Prometheus,
            "# HELP a A.\n# TYPE a gauge\na NaN\n",
            "no finite number",
        ),
        (
            Prometheus,
            "# HELP a A.\n# TYPE a gauge\na 1 1700000000\n",
            "no finite number",
        ),
        (
            Prometheus,
            "# HELP a A.\n# TYPE a counter\na 1\n",
            "does not end with _total",
        ),
        (
            Prometheus,
            "# HELP a_total A.\n# TYPE a_total gauge\na_total 1\n",
            "_total is not for a gauge",
        ),
        (
            Prometheus,
            "# HELP a_total A.\n# TYPE a_total counter\na_total -1\n",
            "is negative",
        ),
        (
            Prometheus,
            "# HELP a_us A.\n# TYPE a_us gauge\na_us 1\n",
            "not a base unit",
        ),
        (OpenMetrics, "# HELP a A.\n# TYPE a gauge\na 1\n", "# EOF"),
        (
            OpenMetrics,
            "# HELP a A.\n# TYPE a counter\na 1\n# EOF\n",
            "a belongs to another family",
        ),
        (
            OpenMetrics,
            "# HELP a_bytes A.\n# TYPE a_bytes gauge\na_bytes 1\n# EOF\n",
            "UNIT is \"\"",
        ),
        (
            OpenMetrics,
            "# HELP a A.\n# TYPE a counter\na_total 1\n# HELP a_total A.\n# TYPE a_total gauge\na_total 1\n# EOF\n",
            "_total is not for a gauge",
        ),
        (
            Prometheus,
            "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n",
            "no bucket +Inf",
        ),
        (
            Prometheus,
            "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n",
            "do not ascend and accumulate",
        ),
        (
            Prometheus,
            "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_count 1\n",
            "no _sum",
        ),
    ]
};

#[test]
fn a_page_that_breaks_a_rule_is_refused() {
    for (syntax, text, rule) in WRONG {
        let complaint = Page::read(text, syntax).expect_err(text);
        assert!(
            complaint.contains(rule),
            "{complaint} instead of {rule}: {text}"
        );
    }
}
