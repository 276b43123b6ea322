//! `lowroad router inspect`: the contents of a table image, and their memory.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use lpm::{Address, Rib};
use router::image::{Image, SectionSize, Tables};
use router::rules::RuleSet;
use serde_json::{Value, json};

use super::report;
use crate::exit::{self, Failure};

/// The text lists at most this number of next hops; the JSON has all.
const MAX_LISTED_HOPS: usize = 20;

#[derive(Debug, Args)]
pub(super) struct Inspect {
    /// Table image
    image: PathBuf,
}

impl Inspect {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let sections = Image::sections(&self.image)?;
        let image = Image::open(&self.image)?;
        if json {
            return exit::print(&format!("{:#}\n", account(&sections, &image)));
        }
        let mut text = String::new();
        for source in &image.sources {
            text += &format!("{}\n", source.report.join("\n  "));
        }
        if let Some(tables) = &image.tables {
            text += &tables_text(tables);
        }
        if let Some(rules) = &image.rules {
            text += &rules_text(image.rules_name(), rules);
        }
        text += "\nsection              bytes  of each   offset\n";
        for section in &sections {
            let SectionSize {
                name,
                bytes,
                element,
                offset,
            } = section;
            // Writing to a string never fails.
            let _ = writeln!(text, "{name:<14} {bytes:>11} {element:>8} {offset:>8}");
        }
        exit::print(&text)
    }
}

fn tables_text(tables: &Tables) -> String {
    let (rib4, rib6) = (tables.fib4.rib(), tables.fib6.rib());
    let mut text = String::new();
    for (family, lengths) in [("IPv4", lengths(rib4)), ("IPv6", lengths(rib6))] {
        if lengths.is_empty() {
            continue;
        }
        let lengths = lengths
            .iter()
            .map(|(length, count)| format!("/{length} {count}"));
        let lengths = lengths.collect::<Vec<_>>().join("  ");
        text += &format!("\n{family} prefixes by length\n  {lengths}\n");
    }
    for (family, hops, uses) in [
        ("IPv4", &tables.hops4, uses(rib4, tables.hops4.len())),
        ("IPv6", &tables.hops6, uses(rib6, tables.hops6.len())),
    ] {
        if hops.is_empty() {
            continue;
        }
        text += &format!("\n{} next hops of {family}\n", hops.len());
        for ((number, hop), uses) in (1..).zip(hops).zip(uses).take(MAX_LISTED_HOPS) {
            text += &format!("  {number:>5}  {uses:>8} routes  {hop}\n");
        }
        if hops.len() > MAX_LISTED_HOPS {
            text += &format!(
                "         and {} more: --json has all\n",
                hops.len() - MAX_LISTED_HOPS
            );
        }
    }
    text += "\nmemory\n";
    for (structure, bytes) in memory(tables) {
        text += &format!("  {structure:<16} {bytes:>11} bytes\n");
    }
    text
}

fn rules_text(name: &str, rules: &RuleSet) -> String {
    let mut text = format!(
        "\n{} IPv4 and {} IPv6 rules\n",
        rules.v4.len(),
        rules.v6.len()
    );
    for (action, count) in actions(rules) {
        text += &format!("  {action:<7} {count:>8}\n");
    }
    for note in &rules.notes {
        text += &format!("  {}: {}\n", note.place.within(name), note.what);
    }
    text
}

fn account(sections: &[SectionSize], image: &Image) -> Value {
    let sections = sections.iter().map(|section| {
        json!({
            "name": section.name,
            "bytes": section.bytes,
            "element_bytes": section.element,
            "offset": section.offset,
        })
    });
    json!({
        "sources": image.sources,
        "sections": sections.collect::<Vec<_>>(),
        "routes": image.tables.as_ref().map(tables_json),
        "rules": image.rules.as_ref().map(|rules| json!({
            "v4": rules.v4.len(),
            "v6": rules.v6.len(),
            "actions": actions(rules).into_iter().collect::<serde_json::Map<_, _>>(),
            "notes": report::notes_json(image.rules_name(), rules),
        })),
    })
}

fn tables_json(tables: &Tables) -> Value {
    let (rib4, rib6) = (tables.fib4.rib(), tables.fib6.rib());
    let family = |lengths: Vec<(u8, usize)>, hops: &[router::routes::Target], uses: Vec<usize>| {
        let lengths = lengths
            .iter()
            .map(|(length, count)| (length.to_string(), json!(count)));
        let hops = hops
            .iter()
            .zip(uses)
            .map(|(hop, uses)| json!({"next_hop": hop.to_string(), "routes": uses}));
        json!({
            "by_length": lengths.collect::<serde_json::Map<_, _>>(),
            "next_hops": hops.collect::<Vec<_>>(),
        })
    };
    let memory = memory(tables).map(|(structure, bytes)| (structure.to_owned(), json!(bytes)));
    json!({
        "layout": tables.layout4.name(),
        "v4": family(lengths(rib4), &tables.hops4, uses(rib4, tables.hops4.len())),
        "v6": family(lengths(rib6), &tables.hops6, uses(rib6, tables.hops6.len())),
        "memory_bytes": memory.into_iter().collect::<serde_json::Map<_, _>>(),
    })
}

fn memory(tables: &Tables) -> [(&'static str, usize); 4] {
    [
        ("IPv4 lookup", tables.fib4.bytes()),
        ("IPv4 prefixes", tables.fib4.rib().bytes()),
        ("IPv6 lookup", tables.fib6.bytes()),
        ("IPv6 prefixes", tables.fib6.rib().bytes()),
    ]
}

/// Lengths that there are, and how many prefixes have them.
fn lengths<A: Address>(rib: &Rib<A>) -> Vec<(u8, usize)> {
    let mut counts = [0; 129];
    for (prefix, _) in rib {
        counts[usize::from(prefix.len())] += 1;
    }
    (0..).zip(counts).filter(|(_, count)| *count > 0).collect()
}

/// Routes of each next hop.
fn uses<A: Address>(rib: &Rib<A>, hops: usize) -> Vec<usize> {
    let mut uses = vec![0; hops];
    for (_, hop) in rib {
        uses[usize::from(hop.get()) - 1] += 1;
    }
    uses
}

fn actions(rules: &RuleSet) -> Vec<(String, Value)> {
    let all = rules.v4.iter().map(|rule| rule.action);
    let all: Vec<_> = all.chain(rules.v6.iter().map(|rule| rule.action)).collect();
    let count = |action| all.iter().filter(|of| **of == action).count();
    [acl::Action::Accept, acl::Action::Drop, acl::Action::Punt]
        .map(|action| {
            (
                router::rules::action(action).to_owned(),
                json!(count(action)),
            )
        })
        .to_vec()
}
