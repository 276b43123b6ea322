//! One rule: statements in order, of which matches say for which packets the next ones are.

use acl::Action;
use serde_json::Value;

use super::members::{only, text};
use super::parts::{Part, hits, misses};
use super::selector::{self, Protocols, Selector, Subject};
use super::{Table, sets};
use crate::budget::{Budget, Exhaustion};
use crate::rules::compile::{Step, Verdict};
use crate::rules::region::{Field, Ranges, Region};

/// Matches of iptables that change nothing, so that others may be left out where they fail.
const PURE: [&str; 20] = [
    "addrtype",
    "ah",
    "conntrack",
    "dscp",
    "esp",
    "icmp",
    "icmp6",
    "iprange",
    "length",
    "mac",
    "mark",
    "multiport",
    "owner",
    "physdev",
    "pkttype",
    "sctp",
    "state",
    "tcp",
    "ttl",
    "udp",
];

#[derive(Debug, Default)]
pub(super) struct ParsedRule {
    /// What regions cannot say.
    pub(super) beyond: Vec<String>,
    /// What nobody does.
    pub(super) lost: Vec<&'static str>,
    /// Whether there are packets that the kernel decides.
    pub(super) uncertain: bool,
    /// Why no packet may meet the rule.
    pub(super) refusal: Option<Refusal>,
}

/// Why a rule cannot be taken where packets meet it.
#[derive(Debug)]
pub(super) enum Refusal {
    /// By a statement or target of this name.
    Translation(String),
    /// An extension of iptables that the listing does not name.
    Unnamed,
}

struct Reader<'a> {
    table: &'a Table<'a>,
    budget: &'a Budget,
    origin: u32,
    parts: Vec<Part>,
    steps: Vec<Step>,
    parsed: ParsedRule,
}

pub(super) fn parse<'a>(
    statements: &'a [Value],
    families: &[bool],
    table: &'a Table<'a>,
    origin: u32,
    budget: &'a Budget,
) -> Result<(ParsedRule, Vec<Step>), String> {
    let all = |v6: &bool| Part {
        region: Region::all(*v6),
        certain: true,
    };
    let mut reader = Reader {
        table,
        budget,
        origin,
        parts: families.iter().map(all).collect(),
        steps: Vec::new(),
        parsed: ParsedRule::default(),
    };
    let mut statements = statements.iter();
    while let Some(statement) = statements.next() {
        if !reader.statement(statement, statements.as_slice())? {
            break;
        }
    }
    let doubted = !reader.parsed.beyond.is_empty();
    reader.parsed.uncertain = doubted && reader.steps.iter().any(|step| !step.certain);
    Ok((reader.parsed, reader.steps))
}

impl<'a> Reader<'a> {
    /// Whether packets come to the next statement.
    fn statement(&mut self, statement: &'a Value, rest: &[Value]) -> Result<bool, String> {
        let (name, body) = only(statement).ok_or("no statement: an object of one member")?;
        match name {
            "counter" | "last" | "comment" => {}
            "log" => self.parsed.lost.push("the log entry"),
            "match" => return self.matched(body),
            "vmap" => {
                let counts = |statement: &Value| {
                    only(statement).is_some_and(|(name, _)| matches!(name, "counter" | "last"))
                };
                let alone = rest.iter().all(counts);
                if !alone || !self.map(body)? {
                    self.punt(describe_map(body))?;
                }
                return Ok(false);
            }
            "dnat" | "snat" | "masquerade" | "redirect" => {
                self.parsed.refusal = Some(Refusal::Translation(name.to_owned()));
                return Ok(false);
            }
            "xt" => return self.extension(body),
            _ => {
                match verdict(statement, self.table)? {
                    Some(verdict) => self.decide(self.parts.clone(), verdict)?,
                    None => self.punt(name.to_owned())?,
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn matched(&mut self, body: &'a Value) -> Result<bool, String> {
        let nothing = Value::Null;
        let side = |name: &str| body.get(name).unwrap_or(&nothing);
        let left = body.get("left").ok_or("a match without its left side")?;
        let right = body.get("right").ok_or("a match without its right side")?;
        let operator = side("op").as_str().unwrap_or("==");
        let Some(selectors) = selector::key(left) else {
            return self.unknown(left);
        };
        let Some((packets, negated)) = self.compared(operator, right, &selectors)? else {
            return self.unknown(left);
        };
        let vague = self.guard(&selectors)?;
        if !negated {
            self.parts = hits(&self.parts, &packets, self.budget)?;
        } else if let Some(kept) = misses(&self.parts, &packets, self.budget)? {
            self.parts = kept;
        } else {
            self.mark_uncertain(format!("!= of {} concatenations", packets.len()));
        }
        if let (Some(v6), "==") = (unsaid_family(right, &selectors)?, operator) {
            let mut doubted = false;
            for part in self.parts.iter_mut().filter(|part| part.region.v6 != v6) {
                part.certain = false;
                doubted = true;
            }
            if doubted {
                self.beyond("a family that listings leave out".to_owned());
            }
        }
        self.parts.extend(vague);
        Ok(true)
    }

    /// Packets that a comparison is true of, or of which it is not.
    fn compared(
        &self,
        operator: &str,
        right: &'a Value,
        selectors: &[Selector],
    ) -> Result<Option<(Vec<Region>, bool)>, String> {
        let (below, negated) = match operator {
            "==" | "in" | "!=" => {
                let Some(elements) = sets::elements(right, self.table)? else {
                    return Ok(None);
                };
                let packets = sets::packets(elements, selectors, self.budget)?;
                return Ok(packets.map(|packets| (packets, operator == "!=")));
            }
            "<" => (true, false),
            ">=" => (true, true),
            ">" => (false, true),
            "<=" => (false, false),
            _ => return Ok(None),
        };
        let [selector] = selectors else {
            return Ok(None);
        };
        let Some((value, _)) = sets::values(right, *selector)? else {
            return Ok(None);
        };
        // Less than the value, or at most it.
        let most = if below {
            value.checked_sub(1)
        } else {
            Some(value)
        };
        let values = Ranges::new(most.map(|most| (0, most)).into_iter().collect());
        let packets = sets::regions(&[(*selector, values)], self.budget)?;
        Ok(Some((packets, negated)))
    }

    /// Keeps the packets that have what is selected; returns those that may.
    fn guard(&mut self, selectors: &[Selector]) -> Result<Vec<Part>, Exhaustion> {
        let mut vague = Vec::new();
        let mut parts = std::mem::take(&mut self.parts);
        if selectors.iter().any(|of| of.protocols == Protocols::Ports) {
            for part in &parts {
                let mut part = part.clone();
                part.certain = false;
                part.region
                    .keep(Field::Protocol, &selector::with_ports(), true, self.budget)?;
                if !part.region.is_empty() {
                    vague.push(part);
                }
            }
            if !vague.is_empty() {
                self.beyond("th of protocols without ports".to_owned());
            }
        }
        for selector in selectors {
            parts = selector.guard_all(parts, self.budget)?;
        }
        self.parts = parts;
        Ok(vague)
    }

    /// After a match that only the kernel knows.
    fn unknown(&mut self, left: &Value) -> Result<bool, String> {
        if let Some(implied) = selector::implied(left) {
            let parts = std::mem::take(&mut self.parts);
            self.parts = implied.guard_all(parts, self.budget)?;
        }
        // It counts the packets that come to it.
        if only(left).is_some_and(|(name, _)| name == "numgen") {
            self.punt(selector::describe(left))?;
            return Ok(false);
        }
        self.mark_uncertain(selector::describe(left));
        Ok(true)
    }

    fn mark_uncertain(&mut self, why: String) {
        self.beyond(why);
        for part in &mut self.parts {
            part.certain = false;
        }
    }

    /// Leaves what has come so far to the kernel, which may change packets or its own state.
    fn punt(&mut self, why: String) -> Result<(), Exhaustion> {
        self.mark_uncertain(why);
        self.decide(self.parts.clone(), Verdict::Decide(Action::Punt))
    }

    fn beyond(&mut self, why: String) {
        if !self.parsed.beyond.contains(&why) {
            self.parsed.beyond.push(why);
        }
    }

    fn decide(&mut self, parts: Vec<Part>, verdict: Verdict) -> Result<(), Exhaustion> {
        if verdict == Verdict::Continue {
            return Ok(());
        }
        let (sure, unsure): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| part.certain);
        for (certain, parts) in [(true, sure), (false, unsure)] {
            let regions: Vec<_> = parts.into_iter().map(|part| part.region).collect();
            if !regions.is_empty() {
                let step = Step {
                    regions,
                    certain,
                    verdict,
                    origin: self.origin,
                };
                self.budget.hold(step.bytes())?;
                self.steps.push(step);
            }
        }
        Ok(())
    }

    /// A map of verdicts; false, with nothing done, if it cannot be said.
    fn map(&mut self, body: &'a Value) -> Result<bool, String> {
        let (Some(key), Some(data)) = (body.get("key"), body.get("data")) else {
            return Err("a vmap without key or data".into());
        };
        let Some(selectors) = selector::key(key) else {
            return Ok(false);
        };
        let Some(elements) = sets::elements(data, self.table)? else {
            return Ok(false);
        };
        let (mut back, mut decided, mut rest) = (Vec::new(), Vec::new(), None);
        let mut bytes = 0;
        for element in elements {
            let Some([values, target]) = element.as_array().map(Vec::as_slice) else {
                return Ok(false);
            };
            let Some(verdict) = verdict(target, self.table)? else {
                return Ok(false);
            };
            if sets::plain(values).is_some_and(|values| values == "*") {
                rest = Some(verdict);
                continue;
            }
            let Some(packets) = sets::packets([values], &selectors, self.budget)? else {
                return Ok(false);
            };
            bytes += packets.iter().map(Region::bytes).sum::<usize>();
            self.budget.room(bytes)?;
            // What comes back must not meet the element for all others; the rest is decided by then.
            if matches!(verdict, Verdict::Jump(_) | Verdict::Continue) {
                back.push(values);
            }
            decided.push((packets, verdict));
        }
        let before = self.parts.clone();
        let vague = self.guard(&selectors)?;
        let others = match (rest, sets::packets(back, &selectors, self.budget)?) {
            (Some(verdict), Some(back)) => {
                let others = misses(&self.parts, &back, self.budget)?;
                others.map(|others| (others, verdict))
            }
            _ => None,
        };
        if rest.is_some() && others.is_none() {
            self.parts = before;
            return Ok(false);
        }
        for (packets, verdict) in decided {
            let met = hits(&self.parts, &packets, self.budget)?;
            self.decide(met, verdict)?;
        }
        if let Some((others, verdict)) = others {
            self.decide(others, verdict)?;
        }
        self.decide(vague, Verdict::Decide(Action::Punt))?;
        Ok(true)
    }

    /// A match or target of iptables.
    fn extension(&mut self, body: &Value) -> Result<bool, String> {
        let word = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
        let name = word("name");
        match (word("type"), name) {
            ("match", "comment") => Ok(true),
            ("match", _) if PURE.contains(&name) => {
                self.mark_uncertain(format!("-m {name}"));
                Ok(true)
            }
            ("target", "LOG" | "NFLOG") => {
                self.parsed.lost.push("the log entry");
                Ok(true)
            }
            ("target", "DNAT" | "SNAT" | "MASQUERADE" | "REDIRECT" | "NETMAP") => {
                self.parsed.refusal = Some(Refusal::Translation(name.to_owned()));
                Ok(false)
            }
            // A listing that does not name it may hide a translation.
            ("match" | "target", _) => {
                self.punt(format!("xt {name}"))?;
                Ok(false)
            }
            _ => {
                self.parsed.refusal = Some(Refusal::Unnamed);
                Ok(false)
            }
        }
    }
}

/// Whether a match of `meta l4proto` is for IPv6, where listings leave out that there was a match of
/// `meta nfproto` before it.
fn unsaid_family(right: &Value, selectors: &[Selector]) -> Result<Option<bool>, String> {
    let [selector] = selectors else {
        return Ok(None);
    };
    if selector.of != Subject::Field(Field::Protocol) || selector.v6.is_some() || !is_one(right) {
        return Ok(None);
    }
    Ok(match sets::values(right, *selector)? {
        Some((1, 1)) => Some(false),
        Some((58, 58)) => Some(true),
        _ => None,
    })
}

fn is_one(right: &Value) -> bool {
    right.is_number() || right.as_str().is_some_and(|word| !word.starts_with('@'))
}

/// The verdict that a statement is.
fn verdict(statement: &Value, table: &Table<'_>) -> Result<Option<Verdict>, String> {
    let Some((name, body)) = only(statement) else {
        return Ok(None);
    };
    let target = || {
        let name = text(body, "target")?;
        let chain = table.chains.get(name).copied();
        chain.ok_or_else(|| format!("no chain {name} in the table"))
    };
    Ok(Some(match name {
        "accept" => Verdict::Decide(Action::Accept),
        "drop" => Verdict::Decide(Action::Drop),
        "continue" => Verdict::Continue,
        "return" => Verdict::Return,
        "jump" => Verdict::Jump(target()?),
        "goto" => Verdict::Goto(target()?),
        _ => return Ok(None),
    }))
}

/// A map of verdicts in words.
fn describe_map(body: &Value) -> String {
    let key = body.get("key").map_or_else(String::new, selector::describe);
    format!("{key} vmap")
}
