//! A run's counters over HTTP, for Prometheus.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use control::http::{Config, Server};
use control::metrics::Text;
use control::{Error, Limits};
use features::counters::REFUSALS;
use features::live::LiveCounters;
use features::recording::Recorded;

use super::model_counters::ModelCounters;
use crate::exit::{Failure, OrFail as _};

#[derive(Debug, Args)]
pub(super) struct Metrics {
    /// Serve counters to Prometheus: GET /metrics
    #[arg(long, value_name = "ADDR:PORT", requires = "metrics_token")]
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
    recorded: Option<Recorded>,
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
                latest.text().to_string()
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
        recorded: Option<Recorded>,
    ) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Latest {
            counters: *counters,
            models,
            recorded,
        };
    }
}

impl Latest {
    fn text(&self) -> Text {
        let mut text = text(&self.counters);
        self.models.metrics(&mut text);
        if let Some(recorded) = &self.recorded {
            let help = "Packets in the capture that is written.";
            text.counter("lowroad_features_recorded_packets_total", help)
                .sample(&[], recorded.packets);
            let help = "Packets that are missing from it.";
            text.counter("lowroad_features_unrecorded_packets_total", help)
                .sample(&[], recorded.lost);
        }
        text
    }
}

fn text(counters: &LiveCounters) -> Text {
    let (seen, exported) = (&counters.account.seen, &counters.account.exported);
    let mut text = Text::new();
    for (name, help, value) in [
        (
            "lowroad_features_seen_packets_total",
            "Packets that came.",
            seen.packets,
        ),
        (
            "lowroad_features_seen_bytes_total",
            "Bytes that they had on the wire.",
            seen.bytes,
        ),
        (
            "lowroad_features_filtered_packets_total",
            "Packets that the filter was false for.",
            seen.filtered,
        ),
        (
            "lowroad_features_sampled_out_packets_total",
            "Packets that passed the filter and were not among those sampled.",
            seen.sampled_out,
        ),
        (
            "lowroad_features_rate_limited_packets_total",
            "Packets beyond those that may come in a second.",
            seen.rate_limited,
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
            "Of these, flows that ended because the table was full.",
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
        text.counter(name, help).sample(&[], value);
    }
    drops(&mut text, counters);
    text.gauge(
        "lowroad_features_open_packets",
        "Packets in flows that have not ended.",
    )
    .sample(&[], counters.account.open);
    text
}

/// Packets that are in no flow: refused, or never handed over.
fn drops(text: &mut Text, counters: &LiveCounters) {
    let family = text.counter(
        "lowroad_features_dropped_packets_total",
        "Packets in no flow, by reason; those without room did not come.",
    );
    for why in REFUSALS {
        family.sample(
            &[("reason", why.name())],
            counters.account.seen.refused(why),
        );
    }
    family.sample(&[("reason", "no_room")], counters.no_room);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_that_a_packet_can_go_is_shown() {
        let mut counters = LiveCounters {
            no_room: 7,
            lost_rows: 3,
            ..LiveCounters::default()
        };
        counters.account.seen.packets = 9;
        let text = text(&counters).to_string();
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
