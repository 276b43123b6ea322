//! The text formats that Prometheus reads, and the choice between them for a client.

/// A text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus's own, version 0.0.4, which every scraper and the textfile collector of node_exporter read.
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The value of the header `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => prometheus_client::encoding::prometheus_text::CONTENT_TYPE,
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format for a client whose `Accept` headers have these values (RFC 9110, section 12.5.1). It is OpenMetrics if
    /// the client names that and does not prefer the other: `*/*` alone is what people's tools send.
    pub fn negotiate<'a>(accept: impl IntoIterator<Item = &'a str>) -> Self {
        let (mut open_metrics, mut prometheus) = (0.0, 0.0);
        let values = accept.into_iter().flat_map(|value| value.split(','));
        for range in values.filter_map(MediaRange::parse) {
            let quality = match (&*range.name, range.version) {
                ("application/openmetrics-text", None | Some("1.0.0")) => &mut open_metrics,
                ("text/plain", None | Some("0.0.4")) | ("text/*" | "*/*", _) => &mut prometheus,
                _ => continue,
            };
            *quality = range.quality.max(*quality);
        }
        if open_metrics > 0.0 && open_metrics >= prometheus {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }
}

/// `text/plain;version=0.0.4;q=0.5`
struct MediaRange<'a> {
    name: String,
    version: Option<&'a str>,
    quality: f32,
}

impl<'a> MediaRange<'a> {
    /// `None` unless the quality is a number from 0 to 1.
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let mut range = Self {
            name: parts.next()?.to_ascii_lowercase(),
            version: None,
            quality: 1.0,
        };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name.trim().to_ascii_lowercase().as_str() {
                "version" => range.version = Some(value.trim().trim_matches('"')),
                "q" => range.quality = value.trim().parse().ok()?,
                _ => {}
            }
        }
        (0.0..=1.0).contains(&range.quality).then_some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::Format::{self, OpenMetrics, Prometheus};

    #[test]
    fn a_client_gets_the_format_that_it_prefers() {
        for (accept, format) in [
            // Prometheus 2 and 3, and 3 where `scrape_protocols` begins with `PrometheusText0.0.4`.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                OpenMetrics,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                 application/openmetrics-text;version=0.0.1;q=0.5,\
                 text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                OpenMetrics,
            ),
            (
                "text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.2",
                Prometheus,
            ),
            (
                "Application/OpenMetrics-Text; Version=\"1.0.0\"; Q=0.5",
                OpenMetrics,
            ),
            ("application/openmetrics-text", OpenMetrics),
            ("application/openmetrics-text;version=0.0.1", Prometheus),
            ("application/openmetrics-text;q=0", Prometheus),
            ("application/openmetrics-text;q=2", Prometheus),
            ("application/openmetrics-text;q=nan", Prometheus),
            ("*/*", Prometheus),
            ("text/html, application/json", Prometheus),
            ("", Prometheus),
            (";;=,;q=,", Prometheus),
        ] {
            assert_eq!(Format::negotiate([accept]), format, "{accept}");
        }
        let separate = ["text/plain;q=0.5", "application/openmetrics-text"];
        assert_eq!(Format::negotiate(separate), OpenMetrics);
        assert_eq!(Format::negotiate([]), Prometheus);
    }
}
