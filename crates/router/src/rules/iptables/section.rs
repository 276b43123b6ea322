//! A table of a file before its family is known, and whose output it is.

use std::net::IpAddr;

use crate::budget::{Budget, Exhaustion};

/// A program whose output tables are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Ip { v6: bool },
    Arp,
    Bridge,
}

impl Program {
    /// The one that a comment names: `iptables-save`, `ip6tables-nft-save`, ...
    pub(super) fn named(comment: &str) -> Option<Self> {
        comment.split_whitespace().find_map(|word| {
            let word = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
            let name = word.strip_suffix("-save")?;
            let name = name.strip_suffix("-nft").unwrap_or(name);
            Some(match name.strip_suffix("-legacy").unwrap_or(name) {
                "iptables" => Self::Ip { v6: false },
                "ip6tables" => Self::Ip { v6: true },
                "arptables" => Self::Arp,
                "ebtables" => Self::Bridge,
                _ => return None,
            })
        })
    }
}

/// The lines of a table.
#[derive(Debug)]
pub(super) struct Section {
    /// Of its first line.
    pub(super) number: u64,
    pub(super) name: String,
    lines: Vec<(u64, String)>,
    memory: usize,
}

impl Section {
    pub(super) fn new(number: u64, name: &str) -> Self {
        Self {
            number,
            name: name.trim().to_owned(),
            lines: Vec::new(),
            memory: 0,
        }
    }

    pub(super) fn push(
        &mut self,
        number: u64,
        line: &str,
        budget: &Budget,
    ) -> Result<(), Exhaustion> {
        let memory = 2 * size_of::<(u64, String)>() + line.len();
        budget.hold(memory)?;
        self.memory += memory;
        self.lines.push((number, line.to_owned()));
        Ok(())
    }

    /// The memory of its lines is not needed any more.
    pub(super) fn release(&self, budget: &Budget) {
        budget.release(self.memory);
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = (u64, &str)> {
        self.lines
            .iter()
            .map(|(number, line)| (*number, line.as_str()))
    }

    /// Whether it is more than chains that accept.
    pub(super) fn has_rules(&self) -> bool {
        let harmless = |line: &str| {
            let policy = line.split_whitespace().nth(1);
            line.starts_with(':') && matches!(policy, Some("ACCEPT" | "-"))
        };
        !self.lines().all(|(_, line)| harmless(line))
    }

    /// Whether it is IPv6's, where no comment says whose output it is: by the first rule that can be of one family only.
    pub(super) fn v6(&self) -> bool {
        self.lines()
            .find_map(|(_, line)| family(line))
            .unwrap_or(false)
    }
}

/// Whether a rule is IPv6's, if it says so.
fn family(line: &str) -> Option<bool> {
    let mut words = line.split_whitespace();
    if words
        .clone()
        .any(|word| matches!(word, "-4" | "-6" | "--ipv4" | "--ipv6"))
    {
        return None;
    }
    while let Some(word) = words.next() {
        match word {
            "-s" | "-d" | "--src-range" | "--dst-range" => {
                let value = words.next()?;
                let address = value.split(['/', '-']).next().unwrap_or_default();
                if let Ok(address) = address.parse::<IpAddr>() {
                    return Some(address.is_ipv6());
                }
            }
            "-p" | "-m" => match words.next()? {
                "ipv6-icmp" | "icmpv6" | "icmp6" => return Some(true),
                "icmp" => return Some(false),
                _ => {}
            },
            _ => {}
        }
    }
    None
}
