//! What `iptables-save` and `ip6tables-save` write.
//!
//! Said exactly: addresses, ranges of them, protocols, ports, their negations, chains, jumps,
//! returns, policies. Anything else in a rule makes its packets the kernel's: devices, connection
//! tracking, limits, sets, marks, fragments, TCP flags, ICMP types, rejections. Translation is
//! refused: the replies of a translated connection match no rule. Log entries are not made.
//!
//! Fragments but the first have no ports, and rules with ports do not match them: whoever makes
//! keys must leave them to the kernel.

mod rule;

use std::collections::HashMap;
use std::io::BufRead;

use acl::Action;

use super::compile::{self, Chain, Then};
use super::format::Importer;
use super::{Hook, Note, NoteKind, Options, Origin, RuleSet};
use crate::error::{Fault, Place};
use crate::lines::Lines;
use rule::Parsed;

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

pub(super) const IMPORTER: Importer = Importer {
    recognizes: |head| head.line.starts_with('*'),
    read: |content, options| read(content, options),
};

pub(super) fn read(content: impl BufRead, options: &Options) -> Result<RuleSet, Fault> {
    let mut tables = Tables {
        wanted: &options.tables,
        ..Tables::default()
    };
    let mut lines = Lines::new(content);
    while let Some((number, line)) = lines.next()? {
        tables
            .line(number, line)
            .map_err(|what| Fault::line(number, what))?;
    }
    if tables.open {
        return Err(Fault::new(
            Place::File,
            "cut off: no COMMIT at the end of a table",
        ));
    }
    let path: &[(&str, &str)] = match options.hook {
        Hook::Forward => &FORWARD,
        Hook::Input => &INPUT,
    };
    tables.compile(path)
}

#[derive(Default)]
struct Tables<'a> {
    wanted: &'a [String],
    /// The table that is being read, and whether its rules are wanted.
    table: String,
    taken: bool,
    open: bool,
    v6: bool,
    chains: Vec<Chain>,
    /// Places of chains by table and name.
    names: HashMap<(String, String), usize>,
    /// Chains that are jumped to may come later.
    rules: Vec<Rule>,
    origins: Vec<Origin>,
    notes: Vec<Note>,
}

struct Rule {
    number: u64,
    table: String,
    chain: usize,
    text: String,
    parsed: Parsed,
}

impl Tables<'_> {
    fn line(&mut self, number: u64, line: &str) -> Result<(), String> {
        if line.starts_with('#') || line.is_empty() {
            self.v6 |= line.contains("ip6tables-save");
            return Ok(());
        }
        if let Some(table) = line.strip_prefix('*') {
            self.open = true;
            table.clone_into(&mut self.table);
            self.taken = self.wanted.is_empty() || self.wanted.iter().any(|name| name == table);
            return Ok(());
        }
        if !self.open {
            return Err("before the first table: a table begins with *".into());
        }
        if line == "COMMIT" {
            self.open = false;
            if !self.taken {
                let what = format!("table {} is left out, as asked", self.table);
                self.note(number, NoteKind::LeftOut, what);
            }
            return Ok(());
        }
        if !self.taken {
            return Ok(());
        }
        if let Some(chain) = line.strip_prefix(':') {
            return self.chain(number, line, chain);
        }
        self.rule(number, line)
    }

    /// `:NAME POLICY [packets:bytes]`; chains of users have no policy.
    fn chain(&mut self, number: u64, line: &str, chain: &str) -> Result<(), String> {
        let mut words = chain.split_whitespace();
        let name = words.next().ok_or("a chain without a name")?;
        let policy = match words.next() {
            Some("ACCEPT" | "-") => Action::Accept,
            Some("DROP") => Action::Drop,
            other => return Err(format!("{other:?} is no policy")),
        };
        let origin = self.origin(number, line)?;
        let place = self.chains.len();
        self.chains.push(Chain {
            steps: Vec::new(),
            policy,
            origin,
        });
        self.names
            .insert((self.table.clone(), name.to_owned()), place);
        Ok(())
    }

    fn rule(&mut self, number: u64, line: &str) -> Result<(), String> {
        let words = rule::words(line)?;
        let mut words = words.iter().map(String::as_str);
        // Rules may come with their counters: [packets:bytes] -A CHAIN ...
        let first = words.by_ref().find(|word| !word.starts_with('['));
        if first != Some("-A") {
            return Err(format!("{line:?} is no rule: -A CHAIN ..."));
        }
        let chain = words.next().ok_or("-A without a chain")?;
        let key = (self.table.clone(), chain.to_owned());
        let chain = *self
            .names
            .get(&key)
            .ok_or_else(|| format!("no chain {chain}"))?;
        let parsed = rule::parse(words, self.v6)?;
        if parsed.translates {
            return Err(format!(
                "{line:?}: replies of a translated connection match no rule, so that translation cannot be shared with the kernel; import other tables only"
            ));
        }
        let text = line.to_owned();
        self.rules.push(Rule {
            number,
            table: self.table.clone(),
            chain,
            text,
            parsed,
        });
        Ok(())
    }

    fn compile(mut self, path: &[(&str, &str)]) -> Result<RuleSet, Fault> {
        for rule in std::mem::take(&mut self.rules) {
            let Rule {
                number,
                table,
                chain,
                text,
                parsed,
            } = rule;
            let origin = self
                .origin(number, &text)
                .map_err(|what| Fault::line(number, what))?;
            let place = |name: &str| self.names.get(&(table.clone(), name.to_owned())).copied();
            let step = parsed.step(origin, place);
            if step.then != Then::Continue && !step.certain {
                let why = match parsed.beyond.as_slice() {
                    [] => "its target".to_owned(),
                    beyond => beyond.join(", "),
                };
                let what = format!("left to the kernel for {why}: {text}");
                self.note(number, NoteKind::Punted, what);
            }
            for what in &parsed.lost {
                let what = format!("{what} is not done: {text}");
                self.note(number, NoteKind::Undone, what);
            }
            self.chains[chain].steps.push(step);
        }
        let place = |(table, name): &(&str, &str)| {
            self.names
                .get(&((*table).to_owned(), (*name).to_owned()))
                .copied()
        };
        let bases: Vec<usize> = path.iter().filter_map(place).collect();
        let (origins, notes) = (self.origins, self.notes);
        if bases.is_empty() {
            return Err(Fault::new(
                Place::File,
                "no chain that packets of this hook pass",
            ));
        }
        compile::compile(&self.chains, &bases, origins, notes, &[self.v6])
    }

    fn origin(&mut self, number: u64, text: &str) -> Result<u32, String> {
        let place = u32::try_from(self.origins.len()).map_err(|_| "too many rules")?;
        self.origins.push(Origin {
            place: Place::Line(number),
            text: text.into(),
        });
        Ok(place)
    }

    fn note(&mut self, number: u64, kind: NoteKind, what: String) {
        let place = Place::Line(number);
        self.notes.push(Note { place, kind, what });
    }
}
