//! A rule as people read it.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;

use acl::{ANY_PORT, Action, Address, Prefix, Protocol, Rule};

use crate::protocols;

/// Shows a rule: `10.0.0.0/8:* -> 192.0.2.7/32:80 tcp drop`.
#[derive(Clone, Copy, Debug)]
pub struct RuleText<'a, A: Address>(pub &'a Rule<A>);

impl<A: Address> Display for RuleText<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = self.0;
        let side = |prefix: &Prefix<A>, ports: &RangeInclusive<u16>| {
            let network = match prefix.len() {
                0 => "*".to_owned(),
                _ => prefix.to_string(),
            };
            let between = if A::BITS == 128 { " port " } else { ":" };
            format!("{network}{between}{}", ports_text(ports))
        };
        write!(
            f,
            "{} -> {} {} {}",
            side(&rule.source, &rule.source_ports),
            side(&rule.destination, &rule.destination_ports),
            protocol(rule.protocol),
            action(rule.action)
        )
    }
}

/// What becomes of a packet, in a word.
pub fn action(action: Action) -> &'static str {
    match action {
        Action::Accept => "accept",
        Action::Drop => "drop",
        Action::Punt => "punt",
    }
}

fn ports_text(ports: &RangeInclusive<u16>) -> String {
    let (from, to) = (ports.start(), ports.end());
    if *ports == ANY_PORT {
        "*".to_owned()
    } else if from == to {
        from.to_string()
    } else {
        format!("{from}-{to}")
    }
}

fn protocol(protocol: Protocol) -> String {
    let Protocol { value, mask } = protocol;
    match (value, mask) {
        (_, 0) => "*".to_owned(),
        (value, 0xff) => protocols::name(value).map_or_else(|| value.to_string(), str::to_owned),
        _ => format!("{value}&{mask:#04x}"),
    }
}
