//! What `nft -j list ruleset` writes.
//!
//! Said exactly: addresses, protocols, ports and families, alone, in sets and concatenations, their
//! negations, verdict maps, chains, jumps, returns, policies. Anything else in a rule makes its
//! packets the kernel's: connection tracking, devices, limits, marks, rejections, sets that change
//! by themselves. Translation is refused: the replies of a translated connection match no rule. Log
//! entries are not made, counters not counted.
//!
//! Fragments but the first have no ports, and rules with ports do not match them; the next header of
//! an IPv6 packet with extension headers is not its protocol: whoever makes keys must leave both to
//! the kernel. A listing without the elements of its sets (`-t`) looks as one with empty sets.

mod hooks;
mod members;
mod parts;
mod rule;
mod selector;
mod sets;

use std::collections::{HashMap, HashSet};
use std::io::Read;

use acl::Action;
use serde::Deserialize;
use serde_json::Value;

use super::compile::Chain;
use super::format::Importer;
use super::{Hook, Note, NoteKind, Options, Origin, RuleSet};
use crate::error::{Fault, Place};
use hooks::Base;
use members::{list, only, text};
use sets::Set;

/// Family and name of a table.
type Name<'a> = (&'a str, &'a str);

const OUTSIDE: &str = "packets meet it before IP's hooks, where it cannot be punted to: leave its table out by naming the other tables";

pub(super) const IMPORTER: Importer = Importer {
    recognizes: |head| head.text.starts_with('{') && head.text.contains("\"nftables\""),
    read: |content, options| read(content, options),
};

pub(super) fn read(content: impl Read, options: &Options) -> Result<RuleSet, Fault> {
    let listing: Listing = serde_json::from_reader(content).map_err(Fault::json)?;
    let mut tables = Tables {
        wanted: &options.tables,
        ..Tables::default()
    };
    for (number, entry) in (1..).zip(&listing.nftables) {
        let fault = |what| Fault::new(Place::Entry(number), what);
        tables.entry(number, entry).map_err(fault)?;
    }
    let path: &[&str] = match options.hook {
        Hook::Forward => &["prerouting", "forward", "postrouting"],
        Hook::Input => &["prerouting", "input"],
    };
    tables.steps()?;
    hooks::compile(tables, path)
}

#[derive(Deserialize)]
struct Listing {
    nftables: Vec<Value>,
}

#[derive(Default)]
struct Tables<'a> {
    wanted: &'a [String],
    /// Family and name of tables whose entries are not read.
    left_out: HashSet<Name<'a>>,
    chains: Vec<Chain>,
    bases: Vec<Base<'a>>,
    tables: HashMap<Name<'a>, Table<'a>>,
    /// Chains that are jumped to, and sets, may come later.
    rules: Vec<Rule<'a>>,
    origins: Vec<Origin>,
    notes: Vec<Note>,
}

/// What rules of a table refer to by name.
#[derive(Default)]
struct Table<'a> {
    chains: HashMap<&'a str, usize>,
    sets: HashMap<&'a str, Set<'a>>,
}

struct Rule<'a> {
    number: u64,
    table: Name<'a>,
    chain: usize,
    /// Chain and handle.
    place: String,
    text: String,
    statements: &'a [Value],
}

impl<'a> Tables<'a> {
    fn entry(&mut self, number: u64, entry: &'a Value) -> Result<(), String> {
        let (kind, body) = only(entry).ok_or("no entry of a listing: an object of one member")?;
        match kind {
            "metainfo" => match body.get("json_schema_version").and_then(Value::as_u64) {
                None | Some(1) => Ok(()),
                Some(version) => Err(format!("version {version} of the format: 1 is read")),
            },
            "table" => self.table(number, body),
            "flowtable" | "counter" | "quota" | "limit" | "ct helper" | "ct timeout"
            | "ct expectation" | "secmark" | "synproxy" | "tunnel" => Ok(()),
            "chain" | "rule" | "set" | "map" => {
                let at = (text(body, "family")?, text(body, "table")?);
                if self.left_out.contains(&at) {
                    return Ok(());
                }
                match kind {
                    "chain" => self.chain(number, at, body),
                    "rule" => self.rule(number, at, body),
                    _ => {
                        let sets = &mut self.tables.entry(at).or_default().sets;
                        sets.insert(text(body, "name")?, Set::new(body));
                        Ok(())
                    }
                }
            }
            other => Err(format!(
                "{other:?} is no entry of a listing: take what `nft -j list ruleset` writes"
            )),
        }
    }

    fn table(&mut self, number: u64, body: &'a Value) -> Result<(), String> {
        let (family, name) = (text(body, "family")?, text(body, "name")?);
        let full = format!("{family} {name}");
        let wanted = |wanted: &String| wanted == name || *wanted == full;
        let why = if !self.wanted.is_empty() && !self.wanted.iter().any(wanted) {
            "as asked"
        } else if family == "arp" {
            "as no IP packet meets it"
        } else if dormant(body)? {
            "as it is dormant"
        } else {
            return Ok(());
        };
        self.left_out.insert((family, name));
        let what = format!("table {full} is left out, {why}");
        self.note(number, NoteKind::LeftOut, what);
        Ok(())
    }

    fn chain(
        &mut self,
        number: u64,
        (family, table): Name<'a>,
        body: &'a Value,
    ) -> Result<(), String> {
        let name = text(body, "name")?;
        let full = format!("chain {family} {table} {name}");
        let policy = match body.get("policy").map(Value::as_str) {
            None | Some(Some("accept")) => Action::Accept,
            Some(Some("drop")) => Action::Drop,
            Some(_) => return Err(format!("{full}: its policy is neither accept nor drop")),
        };
        let origin = self.origin(number, &format!("{full}: policy"))?;
        let chain = self.chains.len();
        if body.get("hook").is_some() {
            let base = Base {
                chain,
                family,
                hook: text(body, "hook")?,
                priority: body
                    .get("prio")
                    .and_then(Value::as_i64)
                    .ok_or_else(|| format!("{full}: no number as its priority"))?,
                nat: body.get("type").and_then(Value::as_str) == Some("nat"),
            };
            if base.outside() && policy != Action::Accept {
                return Err(format!("{full}: {OUTSIDE}"));
            }
            self.bases.push(base);
        }
        self.chains.push(Chain {
            steps: Vec::new(),
            policy,
            origin,
        });
        let chains = &mut self.tables.entry((family, table)).or_default().chains;
        if chains.insert(name, chain).is_some() {
            return Err(format!("{full} is there twice"));
        }
        Ok(())
    }

    fn rule(
        &mut self,
        number: u64,
        (family, table): Name<'a>,
        body: &'a Value,
    ) -> Result<(), String> {
        let name = text(body, "chain")?;
        let handle = body.get("handle").and_then(Value::as_u64);
        let handle = handle.map_or(String::new(), |handle| format!(" handle {handle}"));
        let place = format!("{family} {table} {name}{handle}");
        let known = self.tables.get(&(family, table));
        let chain = known.and_then(|known| known.chains.get(name)).copied();
        let chain =
            chain.ok_or_else(|| format!("{place}: no chain of this name comes before it"))?;
        let outside = |base: &Base<'_>| base.chain == chain && base.outside();
        if matches!(family, "bridge" | "netdev") || self.bases.iter().any(outside) {
            return Err(format!("{place}: {OUTSIDE}"));
        }
        let expressions = body.get("expr").unwrap_or(&Value::Null);
        let statements = expressions
            .as_array()
            .ok_or_else(|| format!("{place}: no array of expressions"))?;
        self.rules.push(Rule {
            number,
            table: (family, table),
            chain,
            text: format!("{place}: {expressions}"),
            place,
            statements,
        });
        Ok(())
    }

    /// Makes the steps of all rules, once all chains and sets are known.
    fn steps(&mut self) -> Result<(), Fault> {
        // Listings do not always say which sets rules change.
        for rule in &self.rules {
            for changed in rule.statements.iter().filter_map(sets::changed) {
                let table = self.tables.get_mut(&rule.table);
                if let Some(set) = table.and_then(|table| table.sets.get_mut(changed)) {
                    set.changes = true;
                }
            }
        }
        for rule in std::mem::take(&mut self.rules) {
            let fault = |what: String| {
                let what = format!("{}: {what}", rule.place);
                Fault::new(Place::Entry(rule.number), what)
            };
            let origin = self.origin(rule.number, &rule.text).map_err(fault)?;
            let nothing = Table::default();
            let table = self.tables.get(&rule.table).unwrap_or(&nothing);
            let families = hooks::families(rule.table.0);
            let parsed = rule::parse(rule.statements, families, table, origin);
            let parsed = parsed.map_err(fault)?;
            let text = &rule.text;
            if !parsed.beyond.is_empty() && parsed.steps.iter().any(|step| !step.certain) {
                let why = parsed.beyond.join(", ");
                let what = format!("left to the kernel for {why}: {text}");
                self.note(rule.number, NoteKind::Punted, what);
            }
            for what in &parsed.lost {
                let what = format!("{what} is not done: {text}");
                self.note(rule.number, NoteKind::Undone, what);
            }
            self.chains[rule.chain].steps.extend(parsed.steps);
        }
        Ok(())
    }

    fn origin(&mut self, number: u64, text: &str) -> Result<u32, String> {
        let place = u32::try_from(self.origins.len()).map_err(|_| "too many rules")?;
        self.origins.push(Origin {
            place: Place::Entry(number),
            text: text.into(),
        });
        Ok(place)
    }

    fn note(&mut self, number: u64, kind: NoteKind, what: String) {
        let place = Place::Entry(number);
        self.notes.push(Note { place, kind, what });
    }
}

/// Whether no packet meets the table's chains.
fn dormant(body: &Value) -> Result<bool, String> {
    let mut dormant = false;
    for flag in list(body, "flags") {
        match flag.as_str() {
            Some("dormant") => dormant = true,
            Some("owner" | "persist") => {}
            // Some versions of nft write the table's name.
            _ => {
                return Err(format!(
                    "a table with flags that nft does not tell, {flag}: a dormant one must be left out by naming the other tables"
                ));
            }
        }
    }
    Ok(dormant)
}
