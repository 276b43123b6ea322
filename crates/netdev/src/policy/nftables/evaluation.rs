//! What a ruleset does with packets of one kind: an interpreter of rules over partly known packets.
//!
//! Each expression is evaluated over what is known of the packet. A comparison that the known bits do not decide may hold
//! or not, and the interpreter follows both ways at once: it goes through the rules in order and notes every verdict
//! that is possible. The result is a decision only where all possible verdicts are the same.

use std::collections::BTreeMap;

use super::expression::{Decision, Expression, Register};
use super::ruleset::{Chain, Mapped, Rule, Ruleset, Set, TableKey};
use super::xtables;
use crate::policy::packet::{Bits, Device, Header, MAX_BYTES, PacketClass, Truth};

/// Rules and elements that one question may look at.
const BUDGET: usize = 1_000_000;
/// As the kernel limits jumps.
const MAX_DEPTH: usize = 16;

/// A point of the network stack at which chains are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    Ingress,
    Prerouting,
    Input,
    Forward,
    Output,
    Postrouting,
    Egress,
}

/// What becomes of every packet of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All pass, and nothing else happens to them.
    Accept,
    /// None passes, because of what the text names.
    Drop(String),
    /// The kernel has to decide for each packet, because of what the text names.
    Kernel(String),
}

impl Verdict {
    /// The verdict of one step after the other.
    #[must_use]
    pub fn then(self, next: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Accept => next(),
            Self::Drop(_) => self,
            // A later step that drops everything makes no difference to what may happen before it.
            Self::Kernel(_) => self,
        }
    }
}

/// Connection tracking is attached here. Before it, no packet has a state.
const CONNTRACK_PRIORITY: i32 = -200;

/// What the chains of a hook do with every packet of a kind, in the order of their priorities.
pub(crate) fn evaluate(ruleset: &Ruleset, hook: Hook, class: &PacketClass) -> Verdict {
    let mut chains = attached(ruleset, hook, class);
    chains.sort_by_key(|(_, _, _, priority)| *priority);
    let mut verdict = Verdict::Accept;
    for (table, name, chain, priority) in chains {
        verdict = verdict.then(|| {
            let at = At {
                ruleset,
                table,
                hook,
                class,
                tracked: !hook.is_of_device() && priority > CONNTRACK_PRIORITY,
            };
            at.base_chain(name, chain)
        });
    }
    verdict
}

fn attached<'a>(
    ruleset: &'a Ruleset,
    hook: Hook,
    class: &PacketClass,
) -> Vec<(&'a TableKey, &'a str, &'a Chain, i32)> {
    let device = match hook {
        Hook::Ingress => class.ingress.as_ref(),
        Hook::Egress => class.egress.as_ref(),
        _ => None,
    };
    let mut attached = Vec::new();
    for (table, chains) in &ruleset.chains {
        for (name, chain) in chains {
            let Some(base) = &chain.base else { continue };
            if !hook.matches(table.0, base.hook, class.v4) {
                continue;
            }
            if device.is_some_and(|device| !base.is_attached_to(&device.name)) {
                continue;
            }
            attached.push((table, name.as_str(), chain, base.priority));
        }
    }
    attached
}

impl Hook {
    /// Whether chains are attached to devices here. Before the network layer, packets have no state
    /// of connection tracking, and the protocol family is that of the device.
    fn is_of_device(self) -> bool {
        matches!(self, Self::Ingress | Self::Egress)
    }

    /// Whether a chain of this family and hook number sees the packets of an IP version here.
    fn matches(self, family: u8, number: u32, v4: bool) -> bool {
        const INET: u8 = 1;
        const IPV4: u8 = 2;
        const NETDEV: u8 = 5;
        const IPV6: u8 = 10;
        let of_version = match family {
            INET => true,
            IPV4 => v4,
            IPV6 => !v4,
            _ => false,
        };
        match self {
            Self::Ingress => (family, number) == (NETDEV, 0) || (family, number) == (INET, 5),
            Self::Egress => (family, number) == (NETDEV, 1),
            Self::Prerouting => of_version && number == 0,
            Self::Input => of_version && number == 1,
            Self::Forward => of_version && number == 2,
            Self::Output => of_version && number == 3,
            Self::Postrouting => of_version && number == 4,
        }
    }
}

/// Where an evaluation takes place.
struct At<'a> {
    ruleset: &'a Ruleset,
    table: &'a TableKey,
    hook: Hook,
    class: &'a PacketClass,
    /// Whether packets have a state of connection tracking by now.
    tracked: bool,
}

/// Verdicts that are possible, and the first reason for each.
#[derive(Default)]
struct Possible {
    accepts: bool,
    drops: Option<String>,
    kernel: Option<String>,
}

/// Whether a chain ends the evaluation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    Always,
    Maybe,
    Never,
}

impl At<'_> {
    fn base_chain(&self, name: &str, chain: &Chain) -> Verdict {
        let mut possible = Possible::default();
        let states: &[u32] = if self.tracked {
            self.class.states
        } else {
            &[0]
        };
        for state in states {
            let mut run = Run {
                at: self,
                state: self.tracked.then_some(*state),
                possible: &mut possible,
                budget: BUDGET,
            };
            let ends = run.chain(name, chain, 0);
            if ends != Ends::Always {
                let drops = chain.base.as_ref().is_some_and(|base| base.drops);
                if drops {
                    possible.drop(|| format!("the policy of {}", self.name(name)));
                } else {
                    possible.accepts = true;
                }
            }
        }
        possible.verdict()
    }

    /// As `nft` names a chain: `chain inet filter input`.
    fn name(&self, chain: &str) -> String {
        let family = match self.table.0 {
            1 => "inet",
            2 => "ip",
            5 => "netdev",
            10 => "ip6",
            _ => "bridge",
        };
        format!("chain {family} {} {chain}", self.table.1)
    }

    fn chains(&self) -> Option<&BTreeMap<String, Chain>> {
        self.ruleset.chains.get(self.table)
    }

    fn set(&self, name: &str) -> Option<&Set> {
        self.ruleset.sets.get(self.table)?.get(name)
    }
}

impl Possible {
    fn drop(&mut self, why: impl FnOnce() -> String) {
        self.drops.get_or_insert_with(why);
    }

    fn kernel(&mut self, why: impl FnOnce() -> String) {
        self.kernel.get_or_insert_with(why);
    }

    fn verdict(self) -> Verdict {
        match (self.kernel, self.drops, self.accepts) {
            (Some(why), _, _) => Verdict::Kernel(why),
            (None, Some(why), true) => Verdict::Kernel(format!("{why} drops some of its packets")),
            (None, Some(why), false) => Verdict::Drop(why),
            (None, None, _) => Verdict::Accept,
        }
    }
}

/// One pass through the chains of a hook.
struct Run<'a> {
    at: &'a At<'a>,
    /// The state of connection tracking that this pass assumes; none before connection tracking.
    state: Option<u32>,
    possible: &'a mut Possible,
    budget: usize,
}

/// What is known while the expressions of one rule run.
struct Registers {
    bits: Bits,
    matches: Truth,
    /// What the rule decides, and whether it surely does.
    jumps: Vec<(Truth, Decision)>,
}

impl Run<'_> {
    /// Whether the packets that enter a chain end in it.
    fn chain(&mut self, name: &str, chain: &Chain, depth: usize) -> Ends {
        // Whether some packets have ended, and whether some have left the chain by a return.
        let (mut ended, mut left) = (false, false);
        for rule in &chain.rules {
            if !self.spend(1) || depth > MAX_DEPTH {
                let chain = self.at.name(name);
                self.possible
                    .kernel(|| format!("{chain} is too long to evaluate"));
                return Ends::Maybe;
            }
            for (truth, decision) in self.rule(name, rule) {
                let (inner, leaves) = match self.decide(name, rule, &decision, depth) {
                    Inner::Ends(inner) => (inner, false),
                    Inner::Leaves(inner) => (inner, true),
                };
                ended |= inner != Ends::Never;
                left |= leaves && inner != Ends::Always;
                if truth == Truth::True && (leaves || inner == Ends::Always) {
                    // No packet goes on to the next rule.
                    return match (ended, left) {
                        (true, false) => Ends::Always,
                        (true, true) => Ends::Maybe,
                        (false, _) => Ends::Never,
                    };
                }
            }
        }
        if ended { Ends::Maybe } else { Ends::Never }
    }

    fn decide(&mut self, name: &str, rule: &Rule, decision: &Decision, depth: usize) -> Inner {
        let at = |run: &Self| format!("rule handle {} of {}", rule.handle, run.at.name(name));
        match decision {
            Decision::Accept => self.possible.accepts = true,
            Decision::Drop => {
                let why = at(self);
                self.possible.drop(|| why);
            }
            Decision::Queue => {
                let why = at(self);
                self.possible
                    .kernel(|| format!("{why} queues to userspace"));
            }
            Decision::Continue => return Inner::Ends(Ends::Never),
            Decision::Return => return Inner::Leaves(Ends::Never),
            Decision::Jump(to) => return Inner::Ends(self.call(to, depth)),
            Decision::Goto(to) => return Inner::Leaves(self.call(to, depth)),
        }
        Inner::Ends(Ends::Always)
    }

    fn call(&mut self, name: &str, depth: usize) -> Ends {
        let at = self.at;
        let Some(chain) = at.chains().and_then(|chains| chains.get(name)) else {
            self.possible
                .kernel(|| format!("{} changes", at.name(name)));
            return Ends::Maybe;
        };
        self.chain(name, chain, depth + 1)
    }

    fn spend(&mut self, steps: usize) -> bool {
        self.budget = self.budget.saturating_sub(steps);
        self.budget > 0
    }

    fn rule(&mut self, name: &str, rule: &Rule) -> Vec<(Truth, Decision)> {
        let mut registers = Registers {
            bits: Bits::unknown(MAX_BYTES),
            matches: Truth::True,
            jumps: Vec::new(),
        };
        for expression in &rule.expressions {
            if let Err(effect) = self.expression(expression, &mut registers) {
                let chain = self.at.name(name);
                let handle = rule.handle;
                self.possible
                    .kernel(|| format!("rule handle {handle} of {chain} {effect}"));
            }
            if registers.matches == Truth::False {
                return Vec::new();
            }
        }
        registers.jumps
    }

    /// Evaluates one expression; the error is an effect that only the kernel can have.
    fn expression(
        &mut self,
        expression: &Expression,
        registers: &mut Registers,
    ) -> Result<(), String> {
        let Registers {
            bits,
            matches,
            jumps,
        } = registers;
        match expression {
            Expression::Payload { .. }
            | Expression::Meta { .. }
            | Expression::Conntrack { .. }
            | Expression::Fib { .. }
            | Expression::Value { .. }
            | Expression::Unknown => {
                *matches = matches.and(self.is_there(expression));
                self.load(expression, bits);
            }
            Expression::Compare {
                from,
                operation,
                value,
            } => {
                let operand = bits.slice(*from, value.len());
                *matches = matches.and(compare(&operand, *operation, value));
            }
            Expression::Range {
                from,
                inverted,
                first,
                last,
            } => {
                let operand = bits.slice(*from, first.len());
                let within = operand.is_at_least(first).and(operand.is_at_most(last));
                *matches = matches.and(within.negate_if(*inverted));
            }
            Expression::Bitwise {
                from,
                to,
                length,
                mask,
                xor,
            } => {
                let result = bits.slice(*from, *length).mask_xor(mask, xor);
                bits.write(*to, &result);
            }
            Expression::ByteOrder {
                from,
                to,
                length,
                size,
            } => {
                let result = bits.slice(*from, *length).swap(*size);
                bits.write(*to, &result);
            }
            Expression::Verdict(jump) => jumps.push((*matches, jump.clone())),
            Expression::Reject => jumps.push((*matches, Decision::Drop)),
            Expression::Lookup {
                set,
                from,
                to,
                inverted,
            } => self.lookup(set, *from, *to, *inverted, registers)?,
            Expression::Neutral => {}
            // Traces show packets that pass through the kernel, which is what they are for.
            Expression::MetaSet { key: 12, .. } => {}
            Expression::MetaSet { .. } => return Err("sets a property of the packet".into()),
            Expression::Match {
                name,
                revision,
                info,
            } => {
                let matched = xtables::matches(name, *revision, info, self.at.class, self.state)?;
                *matches = matches.and(matched);
            }
            Expression::Target { name } => jumps.push((*matches, xtables::target(name)?)),
            Expression::Effect(name) => return Err(format!("has the effect `{name}`")),
        }
        Ok(())
    }

    /// Whether packets have what an expression loads; the rule ends for those that have not.
    fn is_there(&self, expression: &Expression) -> Truth {
        const L4_PROTOCOL: u32 = 16;
        let class = self.at.class;
        match expression {
            // Of packets of any protocol some have no transport header, and of IPv6 fragments some hide what they are.
            Expression::Payload { base: 2, .. } if class.protocol.is_none() => Truth::Unknown,
            Expression::Meta { key, .. }
                if *key == L4_PROTOCOL && class.protocol.is_none() && !class.v4 =>
            {
                Truth::Unknown
            }
            _ => Truth::True,
        }
    }

    /// Loads a register by an expression that reads no other.
    fn load(&self, expression: &Expression, bits: &mut Bits) {
        match expression {
            Expression::Payload {
                to,
                base,
                offset,
                length,
            } => {
                let value = match base {
                    1 => self.at.class.header(Header::Network),
                    2 => self.at.class.header(Header::Transport),
                    _ => Bits::unknown(0),
                };
                bits.load(*to, &value.slice(*offset, *length));
            }
            Expression::Meta { to, key } => bits.load(*to, &self.meta(*key)),
            Expression::Conntrack { to, key } => bits.write(*to, &self.conntrack(*key)),
            Expression::Fib { to, result, flags } => bits.write(*to, &self.fib(*result, *flags)),
            Expression::Value { to, value } => bits.load(*to, &Bits::exact(value)),
            _ => *bits = Bits::unknown(MAX_BYTES),
        }
    }

    /// Keys of `NFT_META`, in the byte order in which the kernel loads them.
    fn meta(&self, key: u32) -> Bits {
        let class = self.at.class;
        let (protocol, family) = if class.v4 {
            ([0x08, 0x00], 2)
        } else {
            ([0x86, 0xdd], 10)
        };
        let index = |device: Option<&Device>| {
            let index = device.map_or(0, |device| device.index);
            Bits::exact(&index.to_ne_bytes())
        };
        let name = |device: Option<&Device>| {
            let name = device.map_or("", |device| &device.name);
            Bits::exact(&device_name(name))
        };
        let ingress = class.ingress.as_ref();
        // Before routing, the device to leave by is not known.
        let egress = match self.at.hook {
            Hook::Ingress | Hook::Prerouting | Hook::Input => None,
            Hook::Forward | Hook::Output | Hook::Postrouting | Hook::Egress => {
                class.egress.as_ref()
            }
        };
        match key {
            1 if !class.tagged => Bits::exact(&protocol),
            3 => Bits::exact(&[0; 4]),
            4 => index(ingress),
            5 => index(egress),
            6 => name(ingress),
            7 => name(egress),
            10 => class
                .user
                .map_or_else(|| Bits::unknown(4), |user| Bits::exact(&user.to_ne_bytes())),
            15 if !self.at.hook.is_of_device() => Bits::exact(&[family]),
            16 if !class.tagged => class
                .protocol
                .map_or_else(|| Bits::unknown(1), |protocol| Bits::exact(&[protocol])),
            _ => Bits::unknown(16),
        }
    }

    fn conntrack(&self, key: u32) -> Bits {
        const STATE: u32 = 0;
        match (key, self.state) {
            (STATE, Some(state)) => Bits::exact(&state.to_ne_bytes()),
            _ => Bits::unknown(16),
        }
    }

    fn fib(&self, result: u32, flags: u32) -> Bits {
        const ADDRESS_TYPE: u32 = 3;
        const DESTINATION: u32 = 2;
        // With a device the kernel looks the address up as from there, where it may be another kind.
        if (result, flags) == (ADDRESS_TYPE, DESTINATION) {
            let kind = self.at.class.destination_kind as u32;
            return Bits::exact(&kind.to_ne_bytes());
        }
        Bits::unknown(16)
    }

    fn lookup(
        &mut self,
        name: &str,
        from: usize,
        to: Option<Register>,
        inverted: bool,
        registers: &mut Registers,
    ) -> Result<(), String> {
        let at = self.at;
        let Some(set) = at.set(name) else {
            return Err(format!("looks up {name}, which changes"));
        };
        let steps = set.elements.len();
        if !self.spend(steps) {
            return Err(format!("looks up {name}, which is too large to evaluate"));
        }
        if set.is_dynamic() {
            if to.is_some() {
                return Err(format!("looks up {name}, whose elements come and go"));
            }
            registers.matches = registers.matches.and(Truth::Unknown);
            return Ok(());
        }
        let key = registers.bits.slice(from, set.key_length);
        let found = super::sets::lookup(set, &key);
        match to {
            None => {
                let any = found
                    .iter()
                    .map(|(truth, _)| *truth)
                    .fold(Truth::False, Truth::or);
                registers.matches = registers.matches.and(any.negate_if(inverted));
            }
            Some(Register::Verdict) => {
                for (truth, value) in &found {
                    if let Some(Mapped::Verdict(jump)) = value {
                        let jump = (registers.matches.and(*truth), jump.clone());
                        registers.jumps.push(jump);
                    }
                }
            }
            Some(Register::Data(offset)) => {
                let any = found
                    .iter()
                    .map(|(truth, _)| *truth)
                    .fold(Truth::False, Truth::or);
                registers.matches = registers.matches.and(any);
                let values = found.iter().filter_map(|(_, value)| match value {
                    Some(Mapped::Data(value)) => Some(Bits::exact(value)),
                    _ => None,
                });
                if let Some(value) = values.reduce(|one, other| one.join(&other)) {
                    registers.bits.load(offset, &value);
                }
            }
        }
        Ok(())
    }
}

/// How a verdict leaves the chain in which it stands.
enum Inner {
    /// Evaluation goes on behind the rule, unless it ended.
    Ends(Ends),
    /// Evaluation goes on behind the jump that led here, unless it ended.
    Leaves(Ends),
}

/// `NFT_CMP`
fn compare(operand: &Bits, operation: u32, value: &[u8]) -> Truth {
    match operation {
        0 => operand.equals(value),
        1 => operand.equals(value).negate_if(true),
        2 => operand.is_at_least(value).negate_if(true),
        3 => operand.is_at_most(value),
        4 => operand.is_at_most(value).negate_if(true),
        5 => operand.is_at_least(value),
        _ => Truth::Unknown,
    }
}

/// `IFNAMSIZ` bytes, filled with zeros.
pub(super) fn device_name(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().zip(name.bytes().take(15)) {
        *to = from;
    }
    bytes
}
