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
mod listing;
mod members;
mod parts;
mod rule;
mod selector;
mod sets;

use std::collections::{HashMap, HashSet};
use std::io::Read;

use acl::Action;
use serde_json::Value;

use super::compile::Chain;
use super::format::Importer;
use super::{Hook, NoteKind, Options, RuleSet, hook};
use crate::budget::Budget;
use crate::error::{Fault, Place};
use hooks::Base;
use listing::Entry;
use members::{list, text};
use rule::{ParsedRule, Refusal};
use sets::Set;

/// Family and name of a table.
type Name<'a> = (&'a str, &'a str);

const OUTSIDE: &str = "packets meet it before IP's hooks, where it cannot be punted to: leave its table out by naming the other tables";

pub(super) const IMPORTER: Importer = Importer {
    recognizes: |head| head.text.starts_with('{') && head.text.contains("\"nftables\""),
    read: |content, options, budget| read(content, options, budget),
};

/// Memory of a chain and of its name in maps.
const CHAIN: usize = 4 * size_of::<Chain>() + 128;

pub(super) fn read(
    content: impl Read,
    options: &Options,
    budget: &Budget,
) -> Result<RuleSet, Fault> {
    let entries = listing::read(content, budget)?;
    let mut tables = Tables::new(&options.tables, budget);
    for entry in &entries {
        let fault = |what| Fault::new(Place::Entry(entry.number), what);
        tables.entry(entry).map_err(fault)?;
    }
    let path: &[&str] = match options.hook {
        Hook::Forward => &["prerouting", "forward", "postrouting"],
        Hook::Input => &["prerouting", "input"],
    };
    tables.steps()?;
    hooks::compile(tables, path)
}

struct Tables<'a> {
    wanted: &'a [String],
    budget: &'a Budget,
    /// Family and name of tables whose entries are not read.
    left_out: HashSet<Name<'a>>,
    chains: Vec<Chain>,
    bases: Vec<Base<'a>>,
    tables: HashMap<Name<'a>, Table<'a>>,
    /// Chains that are jumped to, and sets, may come later.
    rules: Vec<Rule<'a>>,
    set: RuleSet,
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
    /// What its statements come to, without the steps, which are the chain's.
    parsed: ParsedRule,
}

impl<'a> Tables<'a> {
    fn new(wanted: &'a [String], budget: &'a Budget) -> Self {
        Self {
            wanted,
            budget,
            left_out: HashSet::new(),
            chains: Vec::new(),
            bases: Vec::new(),
            tables: HashMap::new(),
            rules: Vec::new(),
            set: RuleSet::default(),
        }
    }

    fn entry(&mut self, entry: &'a Entry) -> Result<(), String> {
        let (number, kind, body) = entry.parts();
        if kind == "table" {
            return self.table(number, body);
        }
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
        Ok(self
            .set
            .note(Place::Entry(number), NoteKind::LeftOut, what, self.budget)?)
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
        self.budget.hold(CHAIN)?;
        let place = Place::Entry(number);
        let origin = self
            .set
            .origin(place, &format!("{full}: policy"), self.budget)?;
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
        let text = format!("{place}: {expressions}");
        self.budget
            .hold(2 * size_of::<Rule<'_>>() + 2 * place.len() + text.len())?;
        self.rules.push(Rule {
            number,
            table: (family, table),
            chain,
            text,
            place,
            statements,
            parsed: ParsedRule::default(),
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
        let mut rules = std::mem::take(&mut self.rules);
        for rule in &mut rules {
            let place = Place::Entry(rule.number);
            let fault = |what: String| Fault::new(place, format!("{}: {what}", rule.place));
            let origin = self.set.origin(place, &rule.text, self.budget);
            let origin = origin.map_err(fault)?;
            let nothing = Table::default();
            let table = self.tables.get(&rule.table).unwrap_or(&nothing);
            let families = hooks::families(rule.table.0);
            let parsed = rule::parse(rule.statements, families, table, origin, self.budget);
            let (parsed, steps) = parsed.map_err(fault)?;
            self.chains[rule.chain].steps.extend(steps);
            rule.parsed = parsed;
        }
        self.rules = rules;
        Ok(())
    }

    /// Says what of a rule that packets meet is not done here, or refuses it.
    /// `refused` are the tables that have a rule as can be refused.
    fn account(&mut self, rule: &Rule<'_>, refused: &HashSet<Name<'_>>) -> Result<(), Fault> {
        let (place, text) = (Place::Entry(rule.number), &rule.text);
        if let Some(why) = &rule.parsed.refusal {
            let what = format!("{}: {}", rule.place, self.refusal(why, refused));
            return Err(Fault::new(place, what));
        }
        let mut notes = Vec::new();
        if rule.parsed.uncertain {
            let why = rule.parsed.beyond.join(", ");
            let what = format!("left to the kernel for {why}: {text}");
            notes.push((NoteKind::Punted, what));
        }
        let lost = rule.parsed.lost.iter();
        notes.extend(lost.map(|what| (NoteKind::Undone, format!("{what} is not done: {text}"))));
        for (kind, what) in notes {
            let noted = self.set.note(place, kind, what, self.budget);
            noted.map_err(|exhausted| Fault::new(place, exhausted))?;
        }
        Ok(())
    }

    /// Why a rule is refused, and which tables could be taken without it.
    fn refusal(&self, why: &Refusal, refused: &HashSet<Name<'_>>) -> String {
        match why {
            Refusal::Translation(name) => {
                let others = self.tables.keys().filter(|other| !refused.contains(*other));
                let others = others.map(|(family, name)| format!("{family} {name}"));
                let others = hook::suggest_tables(others);
                format!("{name}: {}: {others}", hook::TRANSLATION)
            }
            Refusal::Unnamed => {
                "an extension of iptables that nft does not name: read what iptables-save writes"
                    .to_owned()
            }
        }
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

impl Rule<'_> {
    fn chain_name(&self) -> String {
        let place = self.place.split(" handle ").next().unwrap_or_default();
        place.to_owned()
    }
}
