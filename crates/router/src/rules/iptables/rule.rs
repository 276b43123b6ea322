//! One rule: `[!] option value ...`, then `-j TARGET ...`.

use acl::Action;

use crate::rules::compile::{Step, Then};
use crate::rules::region::{Field, Ranges, Region};
use crate::rules::values;

#[derive(Debug)]
pub(super) struct Parsed {
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

pub(super) fn parse<'a>(words: impl Iterator<Item = &'a str>, v6: bool) -> Result<Parsed, String> {
    let mut parsed = Parsed {
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
            "-s" => parsed.addresses(Field::Source, value()?, negated)?,
            "-d" => parsed.addresses(Field::Destination, value()?, negated)?,
            "--src-range" => parsed.addresses(Field::Source, value()?, negated)?,
            "--dst-range" => parsed.addresses(Field::Destination, value()?, negated)?,
            // 0 is any, as it is for the kernel.
            "-p" => match value()? {
                "all" | "0" => {}
                name => parsed.keep(&[Field::Protocol], &values::protocol(name)?, negated),
            },
            "--sport" | "--sports" => {
                parsed.keep(
                    &[Field::SourcePort],
                    &values::ports(value()?, ':')?,
                    negated,
                );
            }
            "--dport" | "--dports" => {
                parsed.keep(
                    &[Field::DestinationPort],
                    &values::ports(value()?, ':')?,
                    negated,
                );
            }
            "--ports" => {
                let either = [Field::SourcePort, Field::DestinationPort];
                parsed.keep(&either, &values::ports(value()?, ':')?, negated);
            }
            "-m" => {
                let name = value()?;
                if !PLAIN.contains(&name) {
                    parsed.beyond.push(format!("-m {name}"));
                }
            }
            "--comment" => drop(value()?),
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
    parsed.regions.retain(|region| !region.is_empty());
    Ok(parsed)
}

impl Parsed {
    /// The step of this rule; `chain` knows the places of chains.
    pub(super) fn step(&self, origin: u32, chain: impl Fn(&str) -> Option<usize>) -> Step {
        let then = match &self.target {
            Target::None => Then::Continue,
            Target::Goto(name) => chain(name).map_or(Then::Decide(Action::Punt), Then::Goto),
            Target::Jump(name) => match name.as_str() {
                "ACCEPT" => Then::Decide(Action::Accept),
                "DROP" => Then::Decide(Action::Drop),
                "RETURN" => Then::Return,
                "LOG" | "NFLOG" => Then::Continue,
                name => chain(name).map_or(Then::Decide(Action::Punt), Then::Jump),
            },
        };
        let known = !matches!(then, Then::Decide(Action::Punt));
        Step {
            regions: self.regions.clone(),
            certain: self.beyond.is_empty() && known,
            then,
            origin,
        }
    }

    fn addresses(&mut self, field: Field, text: &str, negated: bool) -> Result<(), String> {
        let (v6, addresses) = values::addresses(text)?;
        if self.regions.iter().any(|region| region.v6 != v6) {
            return Err(format!(
                "{text} is of the other family: import each family by itself"
            ));
        }
        self.keep(&[field], &addresses, negated);
        Ok(())
    }

    /// Packets with these values in one of the fields, or in none of them.
    fn keep(&mut self, fields: &[Field], values: &Ranges, negated: bool) {
        let kept = |field: &Field| {
            let mut regions = self.regions.clone();
            for region in &mut regions {
                region.keep(*field, values, negated);
            }
            regions
        };
        if negated {
            for field in fields {
                for region in &mut self.regions {
                    region.keep(*field, values, true);
                }
            }
        } else {
            self.regions = fields.iter().flat_map(kept).collect();
        }
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
