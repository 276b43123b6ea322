//! What was read of routes and rules, in words and as JSON.

use std::fmt::Write;

use router::routes::{Report, RouteImport};
use router::rules::{self, Note, NoteKind, RuleSet, Shadows};
use serde_json::{Value, json};

pub(super) fn routes_text(name: &str, imported: &RouteImport) -> String {
    let RouteImport { routes, report } = imported;
    let mut text = format!(
        "{name}: {} IPv4 and {} IPv6 routes to {} next hops, read as {}\n",
        routes.v4.len(),
        routes.v6.len(),
        next_hops(imported),
        report.format,
    );
    text += &duplicates(report);
    if report.nested > 0 {
        text += &format!("  {} of them lie within another route\n", report.nested);
    }
    for left_out in &report.left_out {
        let (why, count) = (&left_out.why, left_out.count);
        text += &format!(
            "  left out: {count} {why}, the first at {}\n",
            left_out.first
        );
    }
    for peer in report.peers.iter().filter(|peer| peer.taken > 0) {
        let (address, number) = (peer.address, peer.autonomous_system);
        text += &format!("  {} by peer {address} AS{number}\n", peer.taken);
    }
    text
}

fn duplicates(report: &Report) -> String {
    let duplicates = &report.duplicates;
    let Some(first) = duplicates.first else {
        return String::new();
    };
    let behind = match duplicates.behind {
        0 => String::new(),
        behind => format!(", {behind} behind an equal one"),
    };
    format!(
        "  duplicates: {} the same, {} replaced by a later one{behind}, {} with a worse metric, the first at {first}\n",
        duplicates.same, duplicates.replaced, duplicates.worse
    )
}

pub(super) fn rules_text(name: &str, rules: &RuleSet) -> String {
    let mut text = rules_head(name, rules);
    text += &shadows_text(name, rules);
    for note in &rules.notes {
        // Writing to a string never fails.
        let _ = writeln!(text, "  {}: {}", note.place.within(name), note.what);
    }
    text
}

fn shadows_text(name: &str, set: &RuleSet) -> String {
    let mut text = String::new();
    for (family, shadows) in ["IPv4", "IPv6"].into_iter().zip(rules::find_shadows(set)) {
        if let Some(first) = first_place(name, set, &shadows) {
            let count = shadows.count;
            text += &format!(
                "  shadowed: {count} {family} rules whose packets an earlier rule matches all, the first at {first}\n"
            );
        }
        if shadows.unknown > 0 {
            let unknown = shadows.unknown;
            text += &format!(
                "  the last {unknown} {family} rules are too many to tell which are shadowed\n"
            );
        }
    }
    text
}

fn first_place(name: &str, set: &RuleSet, shadows: &Shadows) -> Option<String> {
    let origin = set.origins.get(shadows.first? as usize);
    origin.map(|origin| origin.place.within(name))
}

/// Its first line, without notes.
pub(super) fn rules_head(name: &str, rules: &RuleSet) -> String {
    format!(
        "{name}: {} IPv4 and {} IPv6 rules from {} lines\n",
        rules.v4.len(),
        rules.v6.len(),
        rules.origins.len()
    )
}

pub(super) fn routes_json(name: &str, imported: &RouteImport) -> Value {
    let RouteImport { routes, report } = imported;
    let duplicates = &report.duplicates;
    let left_out = report.left_out.iter().map(|left_out| {
        json!({"why": left_out.why, "count": left_out.count, "first": left_out.first.to_string()})
    });
    let peers = report.peers.iter().map(
        |peer| json!({"address": peer.address, "as": peer.autonomous_system, "taken": peer.taken}),
    );
    json!({
        "file": name,
        "format": report.format.name(),
        "read": report.read,
        "v4": routes.v4.len(),
        "v6": routes.v6.len(),
        "next_hops": next_hops(imported),
        "nested": report.nested,
        "duplicates": {
            "same": duplicates.same,
            "replaced": duplicates.replaced,
            "behind": duplicates.behind,
            "worse": duplicates.worse,
            "first": duplicates.first.map(|first| first.to_string()),
        },
        "left_out": left_out.collect::<Vec<_>>(),
        "peers": peers.collect::<Vec<_>>(),
    })
}

pub(super) fn rules_json(name: &str, rules: &RuleSet) -> Value {
    let [v4, v6] = rules::find_shadows(rules);
    let shadowed = |shadows: &Shadows| {
        json!({
            "count": shadows.count,
            "first": first_place(name, rules, shadows),
            "unknown": shadows.unknown,
        })
    };
    json!({
        "file": name,
        "v4": rules.v4.len(),
        "v6": rules.v6.len(),
        "origins": rules.origins.len(),
        "shadowed": {"v4": shadowed(&v4), "v6": shadowed(&v6)},
        "notes": notes_json(name, rules),
    })
}

pub(super) fn notes_json(name: &str, rules: &RuleSet) -> Vec<Value> {
    let note = |note: &Note| {
        let kind = match note.kind {
            NoteKind::Punted => "punted",
            NoteKind::Undone => "undone",
            NoteKind::LeftOut => "left_out",
        };
        json!({"place": note.place.within(name), "kind": kind, "what": note.what})
    };
    rules.notes.iter().map(note).collect()
}

/// Targets that a route leads to; those that `--spread` replaced are not among them.
fn next_hops(imported: &RouteImport) -> usize {
    let routes = &imported.routes;
    let mut used = vec![false; routes.targets.len()];
    let targets = routes.v4.iter().map(|route| route.target);
    for target in targets.chain(routes.v6.iter().map(|route| route.target)) {
        used[target as usize] = true;
    }
    used.into_iter().filter(|used| *used).count()
}
