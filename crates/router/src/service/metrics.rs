//! The metrics of a router: its [`Status`] in families.

use std::time::Duration;

use control::metrics::{Histogram, MetricSet};

use super::Status;
use crate::follow::{Lag, Routes};

/// One scrape.
pub(super) fn collect(status: &Status) -> MetricSet {
    let mut metrics = MetricSet::new();
    add_packets(&mut metrics, status);
    for (family, routes) in [("ipv4", &status.routes.ipv4), ("ipv6", &status.routes.ipv6)] {
        add_tables(&mut metrics, family, routes);
    }
    add_changes(&mut metrics, status);
    add_lag(&mut metrics, &status.routes.event_lag_us);
    let help = "Reloads of the rules, by outcome.";
    metrics
        .counter("lowroad_router_rule_reloads_total", help)
        .sample(&[("outcome", "taken")], status.rules.reloads)
        .sample(&[("outcome", "refused")], status.rules.failed_reloads);
    metrics
}

fn add_packets(metrics: &mut MetricSet, status: &Status) {
    for traffic in &status.packets {
        let end = [("end", traffic.end)];
        let help = "Packets, by what became of them.";
        metrics
            .counter("lowroad_router_packets_total", help)
            .sample(&end, traffic.packets);
        if let Some(bytes) = traffic.bytes {
            let help = "Bytes of frames, by what became of them.";
            metrics
                .counter("lowroad_router_bytes_total", help)
                .sample(&end, bytes);
        }
    }
}

fn add_tables(metrics: &mut MetricSet, family: &str, routes: &Routes) {
    let family = ("family", family);
    for (name, help, prefixes) in [
        (
            "lowroad_router_kernel_prefixes",
            "Prefixes that the kernel has routes for.",
            routes.prefixes,
        ),
        (
            "lowroad_router_installed_prefixes",
            "Prefixes in the datapath, those of neighbours included.",
            routes.installed,
        ),
        (
            "lowroad_router_unplaced_prefixes",
            "Prefixes without room in the datapath, whose packets are left to the kernel.",
            routes.unplaced,
        ),
    ] {
        metrics.gauge(name, help).sample(&[family], prefixes);
    }
    let hops = &routes.next_hops;
    let help = "Next hops in use, by kind.";
    metrics
        .gauge("lowroad_router_next_hops", help)
        .sample(&[family, ("kind", "neighbour")], hops.neighbours)
        .sample(&[family, ("kind", "group")], hops.groups)
        .sample(&[family, ("kind", "unresolved")], hops.unresolved)
        .sample(&[family, ("kind", "kernel")], hops.kernel)
        .sample(&[family, ("kind", "drop")], hops.drops);
}

fn add_changes(metrics: &mut MetricSet, status: &Status) {
    let routes = &status.routes;
    let changes = &routes.changes;
    let help = "Changes of the kernel's tables that were followed, by table.";
    metrics
        .counter("lowroad_router_changes_total", help)
        .sample(&[("table", "routes")], changes.routes)
        .sample(&[("table", "neighbours")], changes.neighbours)
        .sample(&[("table", "links")], changes.links)
        .sample(&[("table", "addresses")], changes.addresses)
        .sample(&[("table", "next-hops")], changes.next_hops)
        .sample(&[("table", "rules")], changes.rules);
    let help = "Changes made in the datapath, by kind.";
    metrics
        .counter("lowroad_router_plane_calls_total", help)
        .sample(&[("kind", "route")], routes.plane_calls.routes)
        .sample(&[("kind", "next-hop")], routes.plane_calls.next_hops);
    for (name, help, count) in [
        (
            "lowroad_router_plane_refusals_total",
            "Changes that the datapath refused.",
            routes.plane_calls.refusals,
        ),
        (
            "lowroad_router_overruns_total",
            "Times that notifications of the kernel were lost and all tables were read again.",
            routes.overruns,
        ),
        (
            "lowroad_router_listings_total",
            "Times that all tables were read, the first included.",
            routes.listings,
        ),
    ] {
        metrics.counter(name, help).sample(&[], count);
    }
}

fn add_lag(metrics: &mut MetricSet, lag: &Lag) {
    let last = lag.buckets.len() - 1;
    let bucket = |(bits, count): (usize, &u64)| {
        let bound = if bits == last {
            f64::INFINITY
        } else {
            seconds(1 << bits)
        };
        (bound, *count)
    };
    let histogram = Histogram {
        sum: seconds(lag.sum),
        buckets: lag.buckets.iter().enumerate().map(bucket).collect(),
    };
    let help = "Time from a change of the kernel's tables until the datapath had all that follows from it.";
    metrics
        .histogram("lowroad_router_event_lag_seconds", help)
        .sample(&[], histogram);
    let help = "The longest time that a change took since the start.";
    metrics
        .gauge("lowroad_router_event_lag_max_seconds", help)
        .sample(&[], seconds(lag.max));
}

fn seconds(microseconds: u64) -> f64 {
    Duration::from_micros(microseconds).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use control::metrics::Format;

    use super::*;

    #[test]
    fn a_lag_is_in_the_bucket_of_its_seconds() {
        let mut observed = Lag::default();
        // 3 us, 0.7 s and an hour.
        for bits in [2, 20, 31] {
            observed.buckets[bits] += 1;
        }
        let mut metrics = MetricSet::new();
        add_lag(&mut metrics, &observed);
        let page = metrics.encode(Format::OpenMetrics);
        let bucket = |line: &str| {
            let line = line.strip_prefix("lowroad_router_event_lag_seconds_bucket{le=\"")?;
            let (bound, count) = line.split_once("\"} ")?;
            Some((bound.parse().ok()?, count.parse().ok()?))
        };
        let buckets: Vec<(f64, u64)> = page.lines().filter_map(bucket).collect();
        assert_eq!(buckets.len(), 32, "{page}");
        let up_to = |lag: f64| buckets.iter().find(|(bound, _)| lag <= *bound).unwrap().1;
        assert_eq!([2e-6, 3e-6].map(up_to), [0, 1], "{page}");
        assert_eq!([0.5, 0.7].map(up_to), [1, 2], "{page}");
        assert_eq!([1000.0, 3600.0].map(up_to), [2, 3], "{page}");
    }
}
