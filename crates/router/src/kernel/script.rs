//! Rules in the words of nftables.

use std::fmt::{Display, Write};
use std::ops::RangeInclusive;

use acl::{ANY_PORT, Action, Address, Prefix, Protocol, Rule};

use crate::rules::RuleSet;

/// The table, which is nobody else's.
pub(crate) const TABLE: &str = "lowroad_router";
/// Chains of the rules of IPv4 and of IPv6.
pub(super) const CHAINS: [&str; 2] = ["v4", "v6"];
/// What follows the name of a chain in that of the chain of its later fragments.
pub(super) const LATER: &str = "_later";
/// Comment of what no rule of a chain matched; those of rules are their places in the list.
pub(super) const NONE: &str = "none";
/// Comment of what drops packets that hide their transport.
const HIDDEN_TRANSPORT: &str = "hidden";

/// Protocols whose ports a rule sees; of all others both are zero.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

/// Takes the table away, whether it is there or not.
pub(super) fn removal() -> String {
    format!("table inet {TABLE}\ndelete table inet {TABLE}\n")
}

/// Puts the table in the place of the one before: for packets that come in by these devices, by any if
/// none is named, and are to be forwarded.
///
/// Later fragments have no ports. They are dropped where each value of the ports leads to a drop; else it is the first
/// fragment that is dropped or not, without which the others come to nothing.
pub(super) fn table(set: &RuleSet, interfaces: &[String]) -> String {
    let mut text = removal();
    text.push_str(&format!(
        "table inet {TABLE} {{\n\
         chain forward {{\n\
         type filter hook forward priority filter; policy accept;\n"
    ));
    if !interfaces.is_empty() {
        let names: Vec<String> = interfaces.iter().map(|name| format!("{name:?}")).collect();
        text.push_str(&format!("iifname != {{ {} }} accept\n", names.join(", ")));
    }
    let [v4, v6] = CHAINS;
    let rules6 = lines("ip6", &set.v6, Part::Whole);
    let whole6 = if rules6.contains(" th ") || rules6.starts_with("th ") {
        require_transport(v6)
    } else {
        format!("goto {v6}\n")
    };
    text.push_str(&format!(
        "ip frag-off & 0x1fff != 0 goto {v4}{LATER}\n\
         meta nfproto ipv4 goto {v4}\n\
         frag frag-off != 0 goto {v6}{LATER}\n\
         {whole6}}}\n"
    ));
    let chains = [
        (v4, "", lines("ip", &set.v4, Part::Whole)),
        (v4, LATER, lines("ip", &set.v4, Part::Later)),
        (v6, "", rules6),
        (v6, LATER, lines("ip6", &set.v6, Part::Later)),
    ];
    for (chain, part, lines) in chains {
        text.push_str(&format!(
            "chain {chain}{part} {{\n{lines}counter comment \"{NONE}\"\n}}\n"
        ));
    }
    text.push_str("}\n");
    text
}

/// Goes on with IPv6 packets that show the ports rules ask for, and drops those whose extension headers hide them: first
/// fragments without them (RFC 7112), and chains that are cut off. Where the transport is not found, neither line
/// matches.
fn require_transport(chain: &str) -> String {
    let ports = WITH_PORTS.map(|number| number.to_string()).join(", ");
    format!(
        "meta l4proto != {{ {ports} }} goto {chain}\n\
         th sport 0-65535 goto {chain}\n\
         counter drop comment \"{HIDDEN_TRANSPORT}\"\n"
    )
}

/// Which packets of a family lines are for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// All that show their transport.
    Whole,
    /// Fragments without one.
    Later,
}

/// One line or two for each rule, in their order.
fn lines<A: Address + Display>(family: &str, rules: &[Rule<A>], part: Part) -> String
where
    Prefix<A>: Display,
{
    let mut text = String::new();
    for (place, rule) in rules.iter().enumerate() {
        let mut addresses = String::new();
        for (side, prefix) in [("saddr", &rule.source), ("daddr", &rule.destination)] {
            if prefix.len() > 0 {
                addresses.push_str(&format!("{family} {side} {prefix} "));
            }
        }
        // What is left to the kernel goes on in it, as what is accepted does.
        let verdict = match rule.action {
            Action::Drop => "drop",
            Action::Accept | Action::Punt => "accept",
        };
        for transport in transports(rule, part) {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{addresses}{transport}counter {verdict} comment \"{place}\""
            );
        }
    }
    text
}

/// What a rule says of protocol and ports: protocols with ports and those without are asked apart.
fn transports<A: Address>(rule: &Rule<A>, part: Part) -> Vec<String> {
    let ranges = [
        ("sport", &rule.source_ports),
        ("dport", &rule.destination_ports),
    ];
    let asked: String = ranges
        .iter()
        .filter(|(_, range)| **range != ANY_PORT)
        .map(|(side, range)| format!("th {side} {} ", ports(range)))
        .collect();
    if asked.is_empty() {
        return protocols(rule.protocol, |_| true).into_iter().collect();
    }
    let with = protocols(rule.protocol, |number| WITH_PORTS.contains(&number));
    let without = ranges
        .iter()
        .all(|(_, range)| range.contains(&0))
        .then(|| protocols(rule.protocol, |number| !WITH_PORTS.contains(&number)));
    let with = match (part, rule.action) {
        (Part::Whole, _) => with.map(|protocols| protocols + &asked),
        // It may be of a packet that another rule lets pass.
        (Part::Later, Action::Drop) => None,
        (Part::Later, Action::Accept | Action::Punt) => with,
    };
    with.into_iter().chain(without.flatten()).collect()
}

fn ports(range: &RangeInclusive<u16>) -> String {
    if range.start() == range.end() {
        range.start().to_string()
    } else {
        format!("{}-{}", range.start(), range.end())
    }
}

/// Which of a rule's protocols are meant; none if there is none.
fn protocols(rule: Protocol, meant: impl Fn(u8) -> bool) -> Option<String> {
    let (taken, others): (Vec<u8>, Vec<u8>) =
        (0..=u8::MAX).partition(|&number| rule.contains(number) && meant(number));
    let set = |numbers: &[u8]| {
        let numbers: Vec<String> = numbers.iter().map(u8::to_string).collect();
        numbers.join(", ")
    };
    match (taken.as_slice(), others.as_slice()) {
        ([], _) => None,
        (_, []) => Some(String::new()),
        ([one], _) => Some(format!("meta l4proto {one} ")),
        (_, few) if few.len() < taken.len() => Some(format!("meta l4proto != {{ {} }} ", set(few))),
        _ => Some(format!("meta l4proto {{ {} }} ", set(&taken))),
    }
}

#[cfg(test)]
mod tests {
    use acl::Rule4;

    use super::*;

    fn line(rule: Rule4) -> String {
        lines("ip", &[rule], Part::Whole)
    }

    #[test]
    fn a_rule_is_a_line() {
        let rule = Rule4 {
            source: "10.0.0.0/8".parse().unwrap(),
            destination: "192.0.2.7/32".parse().unwrap(),
            destination_ports: 80..=90,
            protocol: Protocol::exactly(6),
            action: Action::Drop,
            ..Rule4::default()
        };
        assert_eq!(
            line(rule),
            "ip saddr 10.0.0.0/8 ip daddr 192.0.2.7/32 meta l4proto 6 th dport 80-90 counter drop comment \"0\"\n"
        );
        assert_eq!(line(Rule4::default()), "counter accept comment \"0\"\n");
    }

    #[test]
    fn later_fragments_are_dropped_where_no_port_would_save_them() {
        let rule = |ports: RangeInclusive<u16>, action| Rule4 {
            destination_ports: ports,
            protocol: Protocol::exactly(17),
            action,
            ..Rule4::default()
        };
        let later = |rule| lines("ip", &[rule], Part::Later);
        assert_eq!(later(rule(9..=9, Action::Drop)), "");
        assert_eq!(
            later(rule(9..=9, Action::Accept)),
            "meta l4proto 17 counter accept comment \"0\"\n"
        );
        assert_eq!(
            later(rule(ANY_PORT, Action::Drop)),
            "meta l4proto 17 counter drop comment \"0\"\n"
        );
    }

    #[test]
    fn protocols_without_ports_have_zeros() {
        let rule = |ports, protocol| Rule4 {
            source_ports: ports,
            protocol,
            action: Action::Punt,
            ..Rule4::default()
        };
        assert_eq!(
            line(rule(0..=1023, Protocol::ANY)),
            "meta l4proto { 6, 17, 33, 132, 136 } th sport 0-1023 counter accept comment \"0\"\n\
             meta l4proto != { 6, 17, 33, 132, 136 } counter accept comment \"0\"\n"
        );
        assert_eq!(
            line(rule(53..=53, Protocol::ANY)),
            "meta l4proto { 6, 17, 33, 132, 136 } th sport 53 counter accept comment \"0\"\n"
        );
        // ICMP has no port 53, and so no packet is meant.
        assert_eq!(line(rule(53..=53, Protocol::exactly(1))), "");
        assert_eq!(
            line(rule(0..=1, Protocol::exactly(1))),
            "meta l4proto 1 counter accept comment \"0\"\n"
        );
        let upper = Protocol {
            value: 0x80,
            mask: 0xfc,
        };
        assert_eq!(
            line(rule(ANY_PORT, upper)),
            "meta l4proto { 128, 129, 130, 131 } counter accept comment \"0\"\n"
        );
    }
}
