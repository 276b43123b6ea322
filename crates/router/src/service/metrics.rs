//! What a router counts, in the Prometheus text format.

use control::metrics::Text;

use super::Status;
use crate::follow::{Lag, Routes};

/// One scrape.
pub(super) fn text(status: &Status) -> String {
    let mut text = Text::new();
    packets(&mut text, status);
    following(&mut text, status);
    lag(&mut text, &status.routes.event_lag_us);
    text.counter(
        "lowroad_router_rule_reloads_total",
        "Reloads of the rules, by outcome.",
    )
    .sample(&[("outcome", "taken")], status.rules.reloads)
    .sample(&[("outcome", "refused")], status.rules.failed_reloads);
    text.to_string()
}

fn packets(text: &mut Text, status: &Status) {
    for traffic in &status.packets {
        let end = [("end", traffic.end)];
        text.counter(
            "lowroad_router_packets_total",
            "Packets, by what became of them.",
        )
        .sample(&end, traffic.packets);
        if let Some(bytes) = traffic.bytes {
            text.counter(
                "lowroad_router_bytes_total",
                "Bytes of frames, by what became of them.",
            )
            .sample(&end, bytes);
        }
    }
}

fn following(text: &mut Text, status: &Status) {
    let routes = &status.routes;
    for (family, routes) in [("ipv4", &routes.ipv4), ("ipv6", &routes.ipv6)] {
        family_of(text, family, routes);
    }
    let changes = &routes.changes;
    text.counter(
        "lowroad_router_changes_total",
        "Changes of the kernel's tables, by table.",
    )
    .sample(&[("of", "routes")], changes.routes)
    .sample(&[("of", "neighbours")], changes.neighbours)
    .sample(&[("of", "links")], changes.links)
    .sample(&[("of", "addresses")], changes.addresses)
    .sample(&[("of", "next-hops")], changes.next_hops)
    .sample(&[("of", "rules")], changes.rules);
    text.counter(
        "lowroad_router_plane_calls_total",
        "What the data plane was told, by kind.",
    )
    .sample(&[("kind", "route")], routes.plane_calls.routes)
    .sample(&[("kind", "next-hop")], routes.plane_calls.next_hops);
    text.counter(
        "lowroad_router_plane_refusals_total",
        "What the data plane refused.",
    )
    .sample(&[], routes.plane_calls.refusals);
    text.counter(
        "lowroad_router_overruns_total",
        "Times that changes were lost and all was listed.",
    )
    .sample(&[], routes.overruns);
    text.counter(
        "lowroad_router_listings_total",
        "Times that all tables were listed.",
    )
    .sample(&[], routes.listings);
}

fn family_of(text: &mut Text, family: &str, routes: &Routes) {
    let family = ("family", family);
    text.gauge("lowroad_router_prefixes", "Prefixes, by where they are.")
        .sample(&[family, ("in", "kernel")], routes.prefixes)
        .sample(&[family, ("in", "datapath")], routes.installed)
        .sample(&[family, ("in", "neither")], routes.unplaced);
    let hops = &routes.next_hops;
    text.gauge(
        "lowroad_router_next_hops",
        "Next hops in use, by what they mean.",
    )
    .sample(&[family, ("means", "neighbour")], hops.neighbours)
    .sample(&[family, ("means", "group")], hops.groups)
    .sample(&[family, ("means", "unresolved")], hops.unresolved)
    .sample(&[family, ("means", "kernel")], hops.kernel)
    .sample(&[family, ("means", "drop")], hops.drops);
}

fn lag(text: &mut Text, lag: &Lag) {
    let help = "Changes, by microseconds until the data plane had all that follows, cumulative.";
    let mut sum = 0;
    for (bits, count) in lag.buckets.iter().enumerate() {
        sum += count;
        let le = (1_u64 << bits).to_string();
        text.counter("lowroad_router_event_lag_us_bucket", help)
            .sample(&[("le", &le)], sum);
    }
    text.gauge(
        "lowroad_router_event_lag_us_max",
        "The longest of them, in microseconds.",
    )
    .sample(&[], lag.max);
}
