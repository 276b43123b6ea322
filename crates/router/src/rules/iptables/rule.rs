//! One rule: `[!] option value ...`, then `-j TARGET ...`.

use acl::Action;

use crate::budget::{Budget, Exhaustion};
use crate::rules::compile::{Step, Verdict};
use crate::rules::region::{Field, Ranges, Region};
use crate::rules::values;

#[derive(Debug)]
pub(super) struct ParsedRule {
    v6: bool,
    regions: Vec<Region>,
    target: Target,
    /// What regions cannot say.
    pub(super) beyond: Vec<String>,
    /// What nobody does.
    pub(super) lost: Vec<&'static str>,
    pub(super) translates: bool,
}

#[derive(Debug)]
enum Target {
    None,
    Jump(String),
    Goto(String),
}

/// Matches that say nothing themselves, or only what their options say.
const PLAIN: [&str; 8] = [
    "tcp",
    "udp",
    "sctp",
    "dccp",
    "udplite",
    "multiport",
    "iprange",
    "comment",
];

/// Whether a rule is for one family, and not for this one: each of the programs that restore rules leaves out the other's.
pub(super) fn is_foreign<'a>(mut words: impl Iterator<Item = &'a str>, v6: bool) -> bool {
    words.any(|word| match word {
        "-4" | "--ipv4" => v6,
        "-6" | "--ipv6" => !v6,
        _ => false,
    })
}

/// The words of a line; quotes hold words together.
pub(super) fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        let mut word = String::new();
        match letter {
            ' ' | '\t' => continue,
            '"' => loop {
                match letters.next().ok_or("a quote that does not end")? {
                    '"' => break,
                    '\\' => word.extend(letters.next()),
                    letter => word.push(letter),
                }
            },
            _ => {
                word.push(letter);
                while let Some(letter) = letters.next_if(|letter| !matches!(letter, ' ' | '\t')) {
                    word.push(letter);
                }
            }
        }
        words.push(word);
    }
    Ok(words)
}

pub(super) fn parse<'a>(
    words: impl Iterator<Item = &'a str>,
    v6: bool,
    budget: &Budget,
) -> Result<ParsedRule, String> {
    let mut parsed = ParsedRule {
        v6,
        regions: vec![Region::all(v6)],
        target: Target::None,
        beyond: Vec::new(),
        lost: Vec::new(),
        translates: false,
    };
    let mut words = words.peekable();
    let mut negated = false;
    while let Some(option) = words.next() {
        let mut value = || {
            words
                .next()
                .ok_or_else(|| format!("nothing behind {option}"))
        };
        match option {
            "!" => {
                negated = true;
                continue;
            }
            "-s" | "--src-range" => {
                parsed.addresses(Field::Source, value()?, negated, budget)?;
            }
            "-d" | "--dst-range" => {
                parsed.addresses(Field::Destination, value()?, negated, budget)?;
            }
            // 0 is any, as it is for the kernel.
            "-p" => match value()? {
                "all" | "0" => {}
                name => {
                    let protocol = values::protocol(name)?;
                    parsed.keep(&[Field::Protocol], &protocol, negated, budget)?;
                }
            },
            "--sport" | "--sports" | "--dport" | "--dports" | "--ports" => {
                let fields: &[Field] = match option {
                    "--sport" | "--sports" => &[Field::SourcePort],
                    "--dport" | "--dports" => &[Field::DestinationPort],
                    _ => &[Field::SourcePort, Field::DestinationPort],
                };
                let ports = values::ports(value()?, ':')?;
                parsed.keep(fields, &ports, negated, budget)?;
            }
            "-m" => {
                let name = value()?;
                if !PLAIN.contains(&name) {
                    parsed.beyond.push(format!("-m {name}"));
                }
            }
            "--comment" => drop(value()?),
            "-4" | "--ipv4" | "-6" | "--ipv6" => {}
            "-c" => drop((value()?, words.next())),
            "-j" | "-g" => {
                let name = value()?.to_owned();
                parsed.target(option, name);
                // The target's own options.
                words.by_ref().for_each(drop);
            }
            other if other.starts_with('-') => {
                parsed.beyond.push(other.to_owned());
                while words
                    .next_if(|word| !word.starts_with('-') && *word != "!")
                    .is_some()
                {}
            }
            other => return Err(format!("{other:?} where an option should be")),
        }
        negated = false;
    }
    Ok(parsed)
}

impl ParsedRule {
    /// Memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        let regions = self.regions.iter().map(Region::bytes).sum::<usize>();
        let beyond = self
            .beyond
            .iter()
            .map(|why| 2 * size_of::<String>() + why.len());
        regions + beyond.sum::<usize>()
    }

    /// The step of this rule, which takes its regions; `chain` knows the places of chains.
    pub(super) fn step(&mut self, origin: u32, chain: impl Fn(&str) -> Option<usize>) -> Step {
        let verdict = match &self.target {
            Target::None => Verdict::Continue,
            Target::Goto(name) => chain(name).map_or(Verdict::Decide(Action::Punt), Verdict::Goto),
            Target::Jump(name) => match name.as_str() {
                "ACCEPT" => Verdict::Decide(Action::Accept),
                "DROP" => Verdict::Decide(Action::Drop),
                "RETURN" => Verdict::Return,
                "LOG" | "NFLOG" => Verdict::Continue,
                name => chain(name).map_or(Verdict::Decide(Action::Punt), Verdict::Jump),
            },
        };
        let known = !matches!(verdict, Verdict::Decide(Action::Punt));
        Step {
            regions: std::mem::take(&mut self.regions),
            certain: self.beyond.is_empty() && known,
            verdict,
            origin,
        }
    }

    fn addresses(
        &mut self,
        field: Field,
        text: &str,
        negated: bool,
        budget: &Budget,
    ) -> Result<(), String> {
        let (v6, addresses) = values::addresses(text)?;
        if v6 != self.v6 {
            return Err(format!(
                "{text} is of the other family: write `# iptables-save` or `# ip6tables-save` before the tables of each"
            ));
        }
        Ok(self.keep(&[field], &addresses, negated, budget)?)
    }

    /// Packets with these values in one of the fields, or in none of them.
    fn keep(
        &mut self,
        fields: &[Field],
        values: &Ranges,
        negated: bool,
        budget: &Budget,
    ) -> Result<(), Exhaustion> {
        if negated {
            for field in fields {
                for region in &mut self.regions {
                    region.keep(*field, values, true, budget)?;
                }
            }
            self.regions.retain(|region| !region.is_empty());
            return Ok(());
        }
        let (mut kept, mut bytes) = (Vec::new(), 0);
        for field in fields {
            for region in &self.regions {
                let mut region = region.clone();
                region.keep(*field, values, false, budget)?;
                bytes += region.bytes();
                budget.room(bytes)?;
                if !region.is_empty() {
                    kept.push(region);
                }
            }
        }
        self.regions = kept;
        Ok(())
    }

    fn target(&mut self, option: &str, name: String) {
        match name.as_str() {
            "DNAT" | "SNAT" | "MASQUERADE" | "REDIRECT" | "NETMAP" => self.translates = true,
            "LOG" | "NFLOG" => self.lost.push("the log entry"),
            "REJECT" | "MARK" | "CONNMARK" | "TCPMSS" | "TTL" | "HL" | "DSCP" | "TOS" | "CT"
            | "NOTRACK" | "TPROXY" | "NFQUEUE" | "QUEUE" | "SET" | "TEE" | "TRACE" | "CLASSIFY"
            | "SYNPROXY" | "CHECKSUM" | "AUDIT" | "SECMARK" | "CONNSECMARK" | "RATEEST"
            | "IDLETIMER" | "HMARK" | "ECN" | "LED" => self.beyond.push(format!("-j {name}")),
            _ => {}
        }
        self.target = if option == "-g" {
            Target::Goto(name)
        } else {
            Target::Jump(name)
        };
    }
}
