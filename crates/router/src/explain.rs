//! What becomes of one packet, and why: its route, its rule, and what would have been without them.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use acl::{Action, Key, Key4, Key6, Rule};
use lpm::{Prefix, Rib};

use crate::image::Image;
use crate::protocols;
use crate::routes::Target;
use crate::rules::{RuleSet, RuleText, action, covers};

/// A packet's five-tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    V4(Key4),
    V6(Key6),
}

/// Why a packet goes where it goes.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// None: the image has no routes.
    pub route: Option<RouteLookup>,
    /// None: the image has no rules.
    pub filter: Option<RuleLookup>,
    pub verdict: Verdict,
}

/// The result of longest-prefix match.
#[derive(Clone, Debug)]
pub struct RouteLookup {
    /// The longest prefix first, then those that cover it; none: no route.
    pub prefixes: Vec<RouteMatch>,
}

#[derive(Clone, Debug)]
pub struct RouteMatch {
    pub prefix: String,
    /// The number of its next hop.
    pub hop: u16,
    pub target: Target,
}

/// The result of matching the rules.
#[derive(Clone, Debug)]
pub struct RuleLookup {
    /// The first rule that matches. None: no rule matches, and the packet is accepted.
    pub rule: Option<RuleMatch>,
    /// Later rules that match as well.
    pub also: Vec<RuleMatch>,
}

#[derive(Clone, Debug)]
pub struct RuleMatch {
    /// From 1, in the list of the packet's family.
    pub number: usize,
    pub rule: String,
    pub action: Action,
    /// Where the rule comes from, and the text there.
    pub place: String,
    pub text: String,
    /// No packet ever comes to this rule, as the one that counts here matches all of its packets.
    pub shadowed: bool,
}

/// What becomes of the packet when routes and rules are taken together: a drop by either is a drop, else
/// what either leaves to the kernel is the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Forwarded(String),
    /// Accepted; where it goes is not decided here.
    Accepted,
    Dropped(&'static str),
    Punted(&'static str),
}

/// What a packet means to an image.
pub fn explain(image: &Image, packet: &Packet) -> Explanation {
    let tables = image.tables.as_ref();
    let rules = image.rules.as_ref();
    let file = image.rules_name();
    let (route, filter) = match packet {
        Packet::V4(key) => (
            tables.map(|tables| route(tables.fib4.rib(), &tables.hops4, key.destination())),
            rules.map(|rules| rule_lookup(&rules.v4, rules, file, key)),
        ),
        Packet::V6(key) => (
            tables.map(|tables| route(tables.fib6.rib(), &tables.hops6, key.destination())),
            rules.map(|rules| rule_lookup(&rules.v6, rules, file, key)),
        ),
    };
    let verdict = verdict(route.as_ref(), filter.as_ref());
    Explanation {
        route,
        filter,
        verdict,
    }
}

fn route<A: lpm::Address>(rib: &Rib<A>, hops: &[Target], address: A) -> RouteLookup {
    let mut prefixes = Vec::new();
    let mut found = rib.lookup(address);
    while let Some((prefix, hop)) = found {
        let target = hops.get(usize::from(hop.get()) - 1);
        prefixes.push(RouteMatch {
            prefix: prefix.to_string(),
            hop: hop.get(),
            target: target.cloned().unwrap_or(Target::Unspecified),
        });
        found = rib
            .parent(prefix)
            .filter(|(above, _): &(Prefix<A>, _)| above.len() < prefix.len());
    }
    RouteLookup { prefixes }
}

fn rule_lookup<A: acl::Address>(
    list: &[Rule<A>],
    rules: &RuleSet,
    file: &str,
    key: &Key<A>,
) -> RuleLookup {
    let mut matching = (1..).zip(list).filter(|(_, rule)| rule.matches(key));
    let rule_match = |number: usize, rule: &Rule<A>, shadowed: bool| {
        let origin = rules.origins.get(rule.id as usize);
        RuleMatch {
            number,
            rule: RuleText(rule).to_string(),
            action: rule.action,
            place: origin.map_or_else(String::new, |origin| origin.place.within(file)),
            text: origin.map_or_else(String::new, |origin| origin.text.to_string()),
            shadowed,
        }
    };
    let Some((number, first)) = matching.next() else {
        return RuleLookup {
            rule: None,
            also: Vec::new(),
        };
    };
    let also = matching.map(|(number, rule)| rule_match(number, rule, covers(first, rule)));
    RuleLookup {
        rule: Some(rule_match(number, first, false)),
        also: also.collect(),
    }
}

fn verdict(route: Option<&RouteLookup>, filter: Option<&RuleLookup>) -> Verdict {
    let rule = filter.and_then(|filter| filter.rule.as_ref());
    let action = rule.map_or(Action::Accept, |rule| rule.action);
    let routed = match route.map(|route| route.prefixes.first()) {
        None => Verdict::Accepted,
        Some(None) => Verdict::Punted("no route: the kernel answers that it is unreachable"),
        Some(Some(found)) => match &found.target {
            Target::Blackhole => Verdict::Dropped("the route is a blackhole"),
            Target::Unreachable => {
                Verdict::Dropped("the route is unreachable, which the kernel tells the sender")
            }
            Target::Prohibit => {
                Verdict::Dropped("the route is prohibited, which the kernel tells the sender")
            }
            Target::Kernel => Verdict::Punted("the prefix belongs to the kernel"),
            target => Verdict::Forwarded(target.to_string()),
        },
    };
    match (action, routed) {
        (Action::Drop, _) => Verdict::Dropped("the rule says so"),
        (_, dropped @ Verdict::Dropped(_)) => dropped,
        (Action::Punt, _) => Verdict::Punted("no engine can express the rule"),
        (Action::Accept, routed) => routed,
    }
}

/// A five-tuple as [`Packet`] reads it.
pub(crate) fn key_text<A: acl::Address>(key: &Key<A>) -> String {
    let side = |address: A, port: u16| {
        let address = address.ip();
        if A::BITS == 128 {
            format!("[{address}]:{port}")
        } else {
            format!("{address}:{port}")
        }
    };
    format!(
        "{} -> {}/{}",
        side(key.source(), key.source_port()),
        side(key.destination(), key.destination_port()),
        key.protocol
    )
}

impl FromStr for Packet {
    type Err = String;

    /// `10.0.0.1:5000 -> 192.0.2.7:80/udp`, `[2001:db8::1]:5000 -> [2001:db8::2]:80/tcp`; without ports
    /// where the protocol has none.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no packet: write '10.0.0.1:5000 -> 192.0.2.7:80/udp' or '[2001:db8::1]:5000 -> [2001:db8::2]:80/tcp'"
            )
        };
        let (source, rest) = text.split_once("->").ok_or_else(wrong)?;
        let (destination, protocol) = rest.rsplit_once('/').ok_or_else(wrong)?;
        let protocol = protocol_number(protocol.trim())?;
        let (from, to) = (side(source.trim()), side(destination.trim()));
        let ((from, source), (to, destination)) = from.zip(to).ok_or_else(wrong)?;
        let ports = (source, destination);
        match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let key = Key::new(from.to_bits(), to.to_bits(), ports, protocol);
                Ok(Self::V4(key))
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let key = Key::new(from.to_bits(), to.to_bits(), ports, protocol);
                Ok(Self::V6(key))
            }
            _ => Err(format!("{text:?}: an IPv4 and an IPv6 address")),
        }
    }
}

/// An address, and a port or 0.
fn side(text: &str) -> Option<(IpAddr, u16)> {
    if let Ok(both) = text.parse::<SocketAddr>() {
        return Some((both.ip(), both.port()));
    }
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let address = bare.unwrap_or(text).parse().ok()?;
    Some((address, 0))
}

fn protocol_number(name: &str) -> Result<u8, String> {
    protocols::number(&name.to_ascii_lowercase())
        .ok_or_else(|| format!("{name:?} is no protocol: write its name, as tcp, or its number"))
}

impl Verdict {
    /// In a word, as rules have it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Forwarded(_) => "forward",
            Self::Accepted => action(Action::Accept),
            Self::Dropped(_) => action(Action::Drop),
            Self::Punted(_) => action(Action::Punt),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_read_as_they_are_shown() {
        for text in [
            "10.0.0.1:5000 -> 192.0.2.7:80/17",
            "[2001:db8::1]:5000 -> [2001:db8::2]:80/6",
        ] {
            let again = match text.parse().unwrap() {
                Packet::V4(key) => key_text(&key),
                Packet::V6(key) => key_text(&key),
            };
            assert_eq!(again, text);
        }
        let ping = Key::new(0x0a00_0001, 0x0a00_0002, (0, 0), 1);
        assert_eq!("10.0.0.1->10.0.0.2/icmp".parse(), Ok(Packet::V4(ping)));
        let mut wrong = [
            "",
            "10.0.0.1:80",
            "10.0.0.1 -> ::1/tcp",
            "1.2.3.4 -> 1.2.3.4/foo",
        ]
        .iter();
        assert!(wrong.all(|text| text.parse::<Packet>().is_err()));
    }

    #[test]
    fn a_drop_wins_over_a_route_and_a_blackhole_over_an_accept() {
        let found = |target| RouteLookup {
            prefixes: vec![RouteMatch {
                prefix: String::new(),
                hop: 1,
                target,
            }],
        };
        let rule = |action| RuleLookup {
            rule: Some(RuleMatch {
                number: 1,
                rule: String::new(),
                action,
                place: String::new(),
                text: String::new(),
                shadowed: false,
            }),
            also: Vec::new(),
        };
        let of = |target, action| verdict(Some(&found(target)), Some(&rule(action))).name();
        assert_eq!(of(Target::StandIn(1), Action::Accept), "forward");
        assert_eq!(of(Target::StandIn(1), Action::Drop), "drop");
        assert_eq!(of(Target::StandIn(1), Action::Punt), "punt");
        assert_eq!(of(Target::Blackhole, Action::Accept), "drop");
        assert_eq!(of(Target::Blackhole, Action::Punt), "drop");
        assert_eq!(of(Target::Kernel, Action::Accept), "punt");
        assert_eq!(of(Target::Kernel, Action::Drop), "drop");
        // What packets meet without rules is what the target says by itself.
        for target in [
            Target::StandIn(1),
            Target::Blackhole,
            Target::Unreachable,
            Target::Prohibit,
            Target::Kernel,
        ] {
            let name = of(target.clone(), Action::Accept);
            let by_itself = format!("{:?}", target.verdict()).to_lowercase();
            assert_eq!(name, by_itself);
        }
    }
}
