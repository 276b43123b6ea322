//! `lowroad router explain`: how a packet is handled, and why.

use std::ffi::OsString;
use std::path::Path;

use anyhow::anyhow;
use clap::Args;
use router::check::{self, CheckResult};
use router::explain::{self, Explanation, Packet, RouteLookup, RuleLookup, RuleMatch, Verdict};
use router::image::Image;
use serde_json::{Value, json};

use super::table_source::TableSource;
use crate::exit::{self, Failure, OrFail as _};

#[derive(Debug, Args)]
pub(super) struct Explain {
    /// Table image, unless --rib or --rules are given, and packet:
    /// '10.0.0.1:5000 -> 192.0.2.7:80/udp', '[2001:db8::1]:5000 -> [2001:db8::2]:80/tcp'
    #[arg(value_names = ["IMAGE", "PACKET"], num_args = 1..=2, required = true)]
    words: Vec<OsString>,
    #[command(flatten)]
    source: TableSource,
}

impl Explain {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let (file, packet) = match self.words.as_slice() {
            [file, packet] => (Some(Path::new(file)), packet),
            [packet] => (None, packet),
            _ => return Err(Failure::Input("name an image and a packet".to_owned())),
        };
        let packet: Packet = packet.to_string_lossy().parse().map_err(Failure::Input)?;
        let image = self.source.image(file)?;
        let explanation = explain::explain(&image, &packet);
        let engines = engines(image, &packet)?;
        exit::print(&if json {
            format!("{:#}\n", account(&explanation, &engines))
        } else {
            text(&explanation, &engines)
        })?;
        let wrong = engines.iter().filter(|engine| engine.wrong > 0).count();
        match wrong {
            0 => Ok(()),
            wrong => Err(Failure::Failed(anyhow!(
                "{wrong} engines do not agree: lowroad router diff looks at all of the tables"
            ))),
        }
    }
}

/// The answer of every engine.
fn engines(image: Image, packet: &Packet) -> Result<Vec<CheckResult>, Failure> {
    let mut engines = Vec::new();
    if let Some(tables) = image.tables {
        let (v4, v6) = match packet {
            Packet::V4(key) => (vec![key.destination()], Vec::new()),
            Packet::V6(key) => (Vec::new(), vec![key.destination()]),
        };
        let checked = check::addresses(tables, v4, v6)?.1;
        engines.extend(checked.into_iter().filter(|engine| engine.keys > 0));
    }
    if let Some(rules) = &image.rules {
        engines.extend(check::packet(rules, packet).or_fail()?);
    }
    Ok(engines)
}

fn text(explanation: &Explanation, engines: &[CheckResult]) -> String {
    let verdict = match &explanation.verdict {
        Verdict::Forwarded(to) => format!("forward {to}"),
        Verdict::Accepted => "accept".to_owned(),
        Verdict::Dropped(why) => format!("drop: {why}"),
        Verdict::Punted(why) => format!("punt: {why}"),
    };
    let mut text = format!("{verdict}\n");
    if let Some(route) = &explanation.route {
        text += &route_text(route);
    }
    if let Some(filter) = &explanation.filter {
        text += &filter_text(filter);
    }
    let wrong: Vec<&CheckResult> = engines.iter().filter(|engine| engine.wrong > 0).collect();
    text += &format!(
        "  {} of {} engines agree\n",
        engines.len() - wrong.len(),
        engines.len()
    );
    for engine in wrong {
        for first in &engine.first {
            let (name, answer, right) = (&engine.engine, &first.answer, &first.right);
            text += &format!("    {name}: {answer}, where {right} is right\n");
        }
    }
    text
}

fn route_text(route: &RouteLookup) -> String {
    let Some((first, covering)) = route.prefixes.split_first() else {
        return "  route   none\n".to_owned();
    };
    let mut text = format!(
        "  route   {}  {}  (next hop {})\n",
        first.prefix, first.target, first.hop
    );
    for above in covering {
        text += &format!("    within {}  {}\n", above.prefix, above.target);
    }
    text
}

fn filter_text(filter: &RuleLookup) -> String {
    let Some(rule) = &filter.rule else {
        return "  rule    none: accepted\n".to_owned();
    };
    let mut text = format!("  rule    {}  {}: {}\n", rule.rule, rule.place, rule.text);
    for later in &filter.also {
        let relation = if later.shadowed {
            "never comes first, as this rule covers it"
        } else {
            "would match as well"
        };
        let (rule, place) = (&later.rule, &later.place);
        text += &format!("    {relation}: {rule}  {place}: {}\n", later.text);
    }
    text
}

fn account(explanation: &Explanation, engines: &[CheckResult]) -> Value {
    let verdict = &explanation.verdict;
    let (to, why) = match verdict {
        Verdict::Forwarded(to) => (Some(to), None),
        Verdict::Accepted => (None, None),
        Verdict::Dropped(why) | Verdict::Punted(why) => (None, Some(why)),
    };
    let prefixes = |route: &RouteLookup| -> Vec<Value> {
        let shown = route.prefixes.iter().map(|found| {
            json!({
                "prefix": found.prefix,
                "next_hop": found.target.to_string(),
                "number": found.hop,
            })
        });
        shown.collect()
    };
    let filter = |filter: &RuleLookup| {
        json!({
            "rule": filter.rule.as_ref().map(rule_json),
            "also": filter.also.iter().map(rule_json).collect::<Vec<_>>(),
        })
    };
    let engines = engines
        .iter()
        .map(|engine| json!({"engine": engine.engine, "agrees": engine.wrong == 0}));
    json!({
        "verdict": verdict.name(),
        "to": to,
        "why": why,
        "routes": explanation.route.as_ref().map(prefixes),
        "rules": explanation.filter.as_ref().map(filter),
        "engines": engines.collect::<Vec<_>>(),
    })
}

fn rule_json(rule: &RuleMatch) -> Value {
    json!({
        "number": rule.number,
        "rule": rule.rule,
        "action": router::rules::action(rule.action),
        "place": rule.place,
        "text": rule.text,
        "shadowed": rule.shadowed,
    })
}
