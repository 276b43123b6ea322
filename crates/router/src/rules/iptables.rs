//! What `iptables-save` and `ip6tables-save` write, also one after the other in one file.
//!
//! Said exactly: addresses, ranges of them, protocols, ports, their negations, chains, jumps,
//! returns, policies. Anything else in a rule makes its packets the kernel's: devices, connection
//! tracking, limits, sets, marks, fragments, TCP flags, ICMP types, rejections. Translation is
//! refused: the replies of a translated connection match no rule. Log entries are not made.
//!
//! Fragments but the first have no ports, and rules with ports do not match them: whoever makes
//! keys must leave them to the kernel.

mod rule;
mod section;

use std::collections::HashMap;
use std::io::BufRead;

use acl::Action;

use super::compile::{self, Chain, Verdict};
use super::format::Importer;
use super::{Hook, NoteKind, Options, RuleSet, hook};
use crate::budget::Budget;
use crate::error::{Fault, Place};
use crate::lines::Lines;
use rule::ParsedRule;
use section::{Program, Section};

/// Base chains in the order in which packets meet them.
const FORWARD: [(&str, &str); 8] = [
    ("raw", "PREROUTING"),
    ("mangle", "PREROUTING"),
    ("nat", "PREROUTING"),
    ("mangle", "FORWARD"),
    ("filter", "FORWARD"),
    ("security", "FORWARD"),
    ("mangle", "POSTROUTING"),
    ("nat", "POSTROUTING"),
];
const INPUT: [(&str, &str); 7] = [
    ("raw", "PREROUTING"),
    ("mangle", "PREROUTING"),
    ("nat", "PREROUTING"),
    ("mangle", "INPUT"),
    ("filter", "INPUT"),
    ("security", "INPUT"),
    ("nat", "INPUT"),
];

/// Tables whose chains packets meet.
const TABLES: [&str; 5] = ["raw", "mangle", "nat", "filter", "security"];

/// Memory of a chain or of its name in maps.
const CHAIN: usize = 4 * size_of::<Chain>() + 128;

pub(super) const IMPORTER: Importer = Importer {
    recognizes: |head| head.line.starts_with('*'),
    read: |content, options, budget| read(content, options, budget),
};

pub(super) fn read(
    content: impl BufRead,
    options: &Options,
    budget: &Budget,
) -> Result<RuleSet, Fault> {
    let mut tables = Tables::new(&options.tables, budget);
    let mut lines = Lines::new(content);
    while let Some((number, line)) = lines.next()? {
        tables.line(number, line)?;
    }
    if let Some(section) = &tables.section {
        let what = format!("cut off: no COMMIT at the end of table {}", section.name);
        return Err(Fault::new(Place::File, what));
    }
    tables.compile(options.hook)
}

/// A table of one family.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Table {
    v6: bool,
    name: String,
}

struct Tables<'a> {
    wanted: &'a [String],
    budget: &'a Budget,
    /// Whose output follows, by the last comment that says it.
    program: Option<Program>,
    section: Option<Section>,
    /// On which lines tables begin.
    begun: HashMap<Table, u64>,
    chains: Vec<Chain>,
    /// Places of chains by table and name.
    names: HashMap<(Table, String), usize>,
    /// Chains that are jumped to may come later.
    rules: Vec<Rule>,
    set: RuleSet,
}

struct Rule {
    number: u64,
    table: Table,
    chain: usize,
    text: String,
    parsed: ParsedRule,
}

impl<'a> Tables<'a> {
    fn new(wanted: &'a [String], budget: &'a Budget) -> Self {
        Self {
            wanted,
            budget,
            program: None,
            section: None,
            begun: HashMap::new(),
            chains: Vec::new(),
            names: HashMap::new(),
            rules: Vec::new(),
            set: RuleSet::default(),
        }
    }

    fn line(&mut self, number: u64, line: &str) -> Result<(), Fault> {
        let fault = |what: String| Err(Fault::line(number, what));
        if let Some(comment) = line.strip_prefix('#') {
            return self.comment(number, comment.trim());
        }
        if line.is_empty() {
            return Ok(());
        }
        match (line.strip_prefix('*'), self.section.take()) {
            (Some(name), None) => {
                self.section = Some(Section::new(number, name));
                Ok(())
            }
            (Some(_), Some(before)) => {
                let name = before.name;
                fault(format!("table {name} before it has no COMMIT at its end"))
            }
            (None, None) => fault("not in a table: a table begins with *".into()),
            (None, Some(section)) if line == "COMMIT" => self.table(&section),
            (None, Some(mut section)) => {
                let pushed = section.push(number, line, self.budget);
                self.section = Some(section);
                pushed.map_err(|exhausted| Fault::line(number, exhausted))
            }
        }
    }

    fn comment(&mut self, number: u64, comment: &str) -> Result<(), Fault> {
        // What `iptables-nft-save` cannot list it names in comments.
        if comment.contains("is incompatible, use") || comment.contains("tables present, use") {
            let what = format!("not in this listing, and so left out: {comment}");
            return self.note(number, NoteKind::LeftOut, what);
        }
        self.program = Program::named(comment).or(self.program);
        Ok(())
    }

    /// Takes a table that is complete.
    fn table(&mut self, section: &Section) -> Result<(), Fault> {
        let v6 = match self.program {
            Some(Program::Ip { v6 }) => v6,
            Some(other) => return self.other(section, other),
            None => section.v6(),
        };
        let number = section.number;
        let table = Table {
            v6,
            name: section.name.clone(),
        };
        let why = if !self.is_wanted(&table) {
            "as asked"
        } else if !TABLES.contains(&&*table.name) {
            "as no packet meets it: those that packets meet are raw, mangle, nat, filter, security"
        } else {
            ""
        };
        if !why.is_empty() {
            let what = format!("table {} is left out, {why}", table.full());
            self.note(number, NoteKind::LeftOut, what)?;
        } else if let Some(before) = self.begun.insert(table.clone(), number) {
            let what = format!(
                "table {} comes again, after that of line {before}: give one, or write `# ip6tables-save` before the tables of IPv6",
                table.full()
            );
            return Err(Fault::line(number, what));
        } else {
            for (number, line) in section.lines() {
                let read = match line.strip_prefix(':') {
                    Some(chain) => self.chain(number, &table, line, chain),
                    None => self.rule(number, &table, line),
                };
                read.map_err(|what| Fault::line(number, what))?;
            }
        }
        section.release(self.budget);
        Ok(())
    }

    fn is_wanted(&self, table: &Table) -> bool {
        let family = if table.v6 { "ip6" } else { "ip" };
        let full = format!("{family} {}", table.name);
        let wanted = |wanted: &String| *wanted == table.name || *wanted == full;
        self.wanted.is_empty() || self.wanted.iter().any(wanted)
    }

    /// A table of `arptables-save` or `ebtables-save`.
    fn other(&mut self, section: &Section, program: Program) -> Result<(), Fault> {
        let (number, name) = (section.number, &section.name);
        let why = match program {
            Program::Bridge if section.has_rules() => {
                let what = format!(
                    "table {name} of ebtables: packets meet it before IP's hooks, where it cannot be punted to: remove it from the file"
                );
                return Err(Fault::line(number, what));
            }
            Program::Bridge => "table {} of ebtables is left out, as it has no rules",
            _ => "table {} of arptables is left out, as no IP packet meets it",
        };
        self.note(number, NoteKind::LeftOut, why.replace("{}", name))?;
        section.release(self.budget);
        Ok(())
    }

    /// `:NAME POLICY [packets:bytes]`; chains of users have no policy.
    fn chain(&mut self, number: u64, table: &Table, line: &str, chain: &str) -> Result<(), String> {
        let mut words = chain.split_whitespace();
        let name = words.next().ok_or("a chain without a name")?;
        let policy = match words.next() {
            Some("ACCEPT" | "-") => Action::Accept,
            Some("DROP") => Action::Drop,
            other => return Err(format!("{other:?} is no policy")),
        };
        self.budget.hold(CHAIN + 2 * name.len())?;
        let origin = self.set.origin(Place::Line(number), line, self.budget)?;
        let place = self.chains.len();
        self.chains.push(Chain {
            steps: Vec::new(),
            policy,
            origin,
        });
        let key = (table.clone(), name.to_owned());
        match self.names.insert(key, place) {
            None => Ok(()),
            Some(_) => Err(format!("chain {name} comes twice in the table")),
        }
    }

    fn rule(&mut self, number: u64, table: &Table, line: &str) -> Result<(), String> {
        let words = rule::words(line)?;
        let mut words = words.iter().map(String::as_str);
        if rule::is_foreign(words.clone(), table.v6) {
            let what = format!("left out, as it is for the other family: {line}");
            let place = Place::Line(number);
            return Ok(self.set.note(place, NoteKind::LeftOut, what, self.budget)?);
        }
        // Rules may come with their counters: [packets:bytes] -A CHAIN ...
        let first = words.by_ref().find(|word| !word.starts_with('['));
        if first != Some("-A") {
            return Err(format!("{line:?} is no rule: -A CHAIN ..."));
        }
        let chain = words.next().ok_or("-A without a chain")?;
        let key = (table.clone(), chain.to_owned());
        let chain = *self
            .names
            .get(&key)
            .ok_or_else(|| format!("no chain {chain}"))?;
        let parsed = rule::parse(words, table.v6, self.budget)?;
        self.budget
            .hold(2 * size_of::<Rule>() + line.len() + parsed.bytes())?;
        self.rules.push(Rule {
            number,
            table: table.clone(),
            chain,
            text: line.to_owned(),
            parsed,
        });
        Ok(())
    }

    fn compile(mut self, hook: Hook) -> Result<RuleSet, Fault> {
        let path: &[(&str, &str)] = match hook {
            Hook::Forward => &FORWARD,
            Hook::Input => &INPUT,
        };
        let rules = self.steps()?;
        let bases = [false, true].map(|v6| self.bases(v6, path));
        if bases.iter().all(Vec::is_empty) {
            return Err(Fault::new(Place::File, hook::NO_CHAIN));
        }
        let reachable = compile::find_reachable(&self.chains, bases.iter().flatten().copied());
        for (rule, step) in rules.iter().filter(|(rule, _)| reachable[rule.chain]) {
            self.account(rule, *step)?;
        }
        let unmet = rules.iter().filter(|(rule, _)| !reachable[rule.chain]);
        let unmet = unmet.map(|(rule, _)| (Place::Line(rule.number), rule.chain_name()));
        if let Some((place, what)) = hook::describe_unreachable(unmet) {
            let noted = self.set.note(place, NoteKind::LeftOut, what, self.budget);
            noted.map_err(|exhausted| Fault::new(place, exhausted))?;
        }
        let mut set = self.set;
        for (v6, bases) in [false, true].into_iter().zip(bases) {
            if !bases.is_empty() {
                set = compile::compile(&self.chains, &bases, set, &[v6], self.budget)?;
            }
        }
        Ok(set)
    }

    /// Makes the steps of all rules, once all chains are known; returns the rules, and whether each decides for certain.
    fn steps(&mut self) -> Result<Vec<(Rule, bool)>, Fault> {
        let mut rules = Vec::with_capacity(self.rules.len());
        for mut rule in std::mem::take(&mut self.rules) {
            let number = rule.number;
            let origin = self
                .set
                .origin(Place::Line(number), &rule.text, self.budget)
                .map_err(|what| Fault::line(number, what))?;
            let place = |name: &str| {
                let key = (rule.table.clone(), name.to_owned());
                self.names.get(&key).copied()
            };
            let step = rule.parsed.step(origin, place);
            let certain = step.verdict == Verdict::Continue || step.certain;
            self.chains[rule.chain].steps.push(step);
            rules.push((rule, certain));
        }
        Ok(rules)
    }

    /// The places of a family's chains on the way of packets.
    fn bases(&self, v6: bool, path: &[(&str, &str)]) -> Vec<usize> {
        let place = |(table, chain): &(&str, &str)| {
            let name = (*table).to_owned();
            let key = (Table { v6, name }, (*chain).to_owned());
            self.names.get(&key).copied()
        };
        path.iter().filter_map(place).collect()
    }

    /// Says what of a rule that packets meet is not done here, or refuses it.
    fn account(&mut self, rule: &Rule, certain: bool) -> Result<(), Fault> {
        let (number, text) = (rule.number, &rule.text);
        if rule.parsed.translates {
            let is_other = |table: &&Table| table.name != rule.table.name;
            let others = self.begun.keys().filter(is_other);
            let others = hook::suggest_tables(others.map(|table| table.name.clone()));
            return Err(Fault::line(
                number,
                format!("{text:?}: {}: {others}", hook::TRANSLATION),
            ));
        }
        if !certain {
            let why = match rule.parsed.beyond.as_slice() {
                [] => "its target".to_owned(),
                beyond => beyond.join(", "),
            };
            let what = format!("left to the kernel for {why}: {text}");
            self.note(number, NoteKind::Punted, what)?;
        }
        for what in &rule.parsed.lost {
            let what = format!("{what} is not done: {text}");
            self.note(number, NoteKind::Undone, what)?;
        }
        Ok(())
    }

    fn note(&mut self, number: u64, kind: NoteKind, what: String) -> Result<(), Fault> {
        let noted = self.set.note(Place::Line(number), kind, what, self.budget);
        noted.map_err(|exhausted| Fault::line(number, exhausted))
    }
}

impl Table {
    fn family(&self) -> &'static str {
        if self.v6 { "IPv6" } else { "IPv4" }
    }

    fn full(&self) -> String {
        format!("{} of {}", self.name, self.family())
    }
}

impl Rule {
    fn chain_name(&self) -> String {
        let mut words = self.text.split_whitespace();
        let chain = words.by_ref().find(|word| *word == "-A");
        let chain = chain.and_then(|_| words.next()).unwrap_or_default();
        format!("{} {chain} of {}", self.table.name, self.table.family())
    }
}
