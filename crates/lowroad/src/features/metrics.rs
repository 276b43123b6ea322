//! A run's counters over HTTP, for Prometheus.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use control::http::{Config, Server};
use control::metrics::MetricSet;
use control::{Error, Limits};
use features::counters::REFUSALS;
use features::live::LiveCounters;
use features::recording::RecordingCounters;
use units::socket_address;

use super::model_counters::ModelCounters;
use crate::exit::{Failure, OrFail as _};

#[derive(Debug, Args)]
#[command(next_help_heading = "Metrics")]
pub(super) struct Metrics {
    /// Serve counters to Prometheus: GET /metrics
    #[arg(long, value_name = "ADDR:PORT", value_parser = socket_address, requires = "metrics_token")]
    metrics: Option<SocketAddr>,
    /// Read the bearer token that Prometheus presents from this file of mode 0600
    #[arg(long, value_name = "FILE", requires = "metrics")]
    metrics_token: Option<PathBuf>,
}

/// Serves the latest counters until it is dropped.
#[derive(Debug, Default)]
pub(super) struct MetricsServer {
    latest: Arc<Mutex<Latest>>,
    _server: Option<Server>,
}

#[derive(Debug, Default)]
struct Latest {
    counters: LiveCounters,
    models: ModelCounters,
    recorded: Option<RecordingCounters>,
}

impl Metrics {
    pub(super) fn serve(&self) -> Result<MetricsServer, Failure> {
        let latest = Arc::<Mutex<Latest>>::default();
        let (Some(address), Some(token)) = (self.metrics, &self.metrics_token) else {
            return Ok(MetricsServer::default());
        };
        let config = Config {
            address,
            token: token.clone(),
            hosts: Vec::new(),
            limits: Limits::default(),
        };
        let served = Arc::clone(&latest);
        let server = Server::start(
            config,
            |request| Err(Error::unknown_method(&request.method)),
            move || {
                let latest = served.lock().unwrap_or_else(PoisonError::into_inner);
                latest.metrics()
            },
        );
        let server = server.or_fail()?;
        Ok(MetricsServer {
            latest,
            _server: Some(server),
        })
    }
}

impl MetricsServer {
    pub(super) fn update(
        &self,
        counters: &LiveCounters,
        models: ModelCounters,
        recorded: Option<RecordingCounters>,
    ) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Latest {
            counters: *counters,
            models,
            recorded,
        };
    }
}

impl Latest {
    fn metrics(&self) -> MetricSet {
        let mut metrics = MetricSet::new();
        add_account(&mut metrics, &self.counters);
        self.models.add_to(&mut metrics);
        if let Some(recorded) = &self.recorded {
            let help = "Packets in the capture that is written.";
            metrics
                .counter("lowroad_features_recorded_packets_total", help)
                .sample(&[], recorded.packets);
            let help = "Packets that are missing from the capture that is written.";
            metrics
                .counter("lowroad_features_unrecorded_packets_total", help)
                .sample(&[], recorded.lost);
        }
        metrics
    }
}

fn add_account(metrics: &mut MetricSet, counters: &LiveCounters) {
    let (seen, exported) = (&counters.account.seen, &counters.account.exported);
    for (name, help, value) in [
        (
            "lowroad_features_seen_packets_total",
            "Packets that came.",
            seen.packets,
        ),
        (
            "lowroad_features_seen_bytes_total",
            "Bytes that the packets had on the wire.",
            seen.bytes,
        ),
        (
            "lowroad_features_filtered_packets_total",
            "Packets that the filter left out.",
            seen.filtered,
        ),
        (
            "lowroad_features_sampled_out_packets_total",
            "Packets that passed the filter and were not sampled.",
            seen.sampled_out,
        ),
        (
            "lowroad_features_rate_limited_packets_total",
            "Packets over the packet rate.",
            seen.rate_limited,
        ),
        (
            "lowroad_features_unread_packets_total",
            "Packets that were only counted, because the output had failed.",
            seen.unread,
        ),
        (
            "lowroad_features_exported_packets_total",
            "Packets in flows that have ended.",
            exported.packets,
        ),
        (
            "lowroad_features_exported_flows_total",
            "Flows that have ended.",
            exported.flows,
        ),
        (
            "lowroad_features_displaced_flows_total",
            "Flows that ended because the table was full.",
            exported.table_full,
        ),
        (
            "lowroad_features_written_rows_total",
            "Rows that the output has or will have.",
            counters.rows,
        ),
        (
            "lowroad_features_lost_rows_total",
            "Rows that the output did not take.",
            counters.lost_rows,
        ),
    ] {
        metrics.counter(name, help).sample(&[], value);
    }
    add_drops(metrics, counters);
    let help = "Packets in flows that have not ended.";
    metrics
        .gauge("lowroad_features_open_packets", help)
        .sample(&[], counters.account.open);
}

/// Packets that are in no flow: refused, or never handed over.
fn add_drops(metrics: &mut MetricSet, counters: &LiveCounters) {
    let help =
        "Packets in no flow, by reason; seen_packets_total has all of them but those of no_room.";
    let family = metrics.counter("lowroad_features_dropped_packets_total", help);
    for why in REFUSALS {
        let packets = counters.account.seen.refused(why);
        family.sample(&[("reason", why.name())], packets);
    }
    family.sample(&[("reason", "no_room")], counters.no_room);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use control::metrics::Format;
    use test_support::exposition::{Page, Syntax};

    use super::super::model_counters::KernelAnswers;
    use super::*;

    #[test]
    fn the_book_lists_the_metrics_there_are() {
        const BOOK: &str = include_str!("../../../../docs/src/metrics.md");
        let kernel = KernelAnswers {
            flows: BTreeMap::from([("benign".to_owned(), 3)]),
            ..KernelAnswers::default()
        };
        let latest = Latest {
            models: ModelCounters {
                kernel: Some(kernel),
                unscored: Some(0),
            },
            recorded: Some(RecordingCounters::default()),
            ..Latest::default()
        };
        let page = latest.metrics().encode(Format::Prometheus);
        let page = Page::read(&page, Syntax::Prometheus).unwrap();
        page.assert_documented(BOOK);
        page.assert_complete(BOOK, "lowroad_features_");
    }

    #[test]
    fn every_way_that_a_packet_can_go_is_shown() {
        let mut counters = LiveCounters {
            no_room: 7,
            lost_rows: 3,
            ..LiveCounters::default()
        };
        counters.account.seen.packets = 9;
        let mut metrics = MetricSet::new();
        add_account(&mut metrics, &counters);
        let text = metrics.encode(Format::Prometheus);
        assert!(
            text.contains("\nlowroad_features_seen_packets_total 9\n"),
            "{text}"
        );
        assert!(
            text.contains("_dropped_packets_total{reason=\"no_room\"} 7\n"),
            "{text}"
        );
        assert!(
            text.contains("\nlowroad_features_lost_rows_total 3\n"),
            "{text}"
        );
        for why in REFUSALS {
            assert!(text.contains(why.name()), "{}", why.name());
        }
    }
}
