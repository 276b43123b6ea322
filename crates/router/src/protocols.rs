//! Names of IP protocols, of those in use, as rules and packets are written with them.

/// Numbers and the names of /etc/protocols; of several names of a number the first is shown.
const NAMES: [(u8, &str); 20] = [
    (1, "icmp"),
    (2, "igmp"),
    (4, "ipencap"),
    (4, "ipip"),
    (6, "tcp"),
    (17, "udp"),
    (33, "dccp"),
    (41, "ipv6"),
    (46, "rsvp"),
    (47, "gre"),
    (50, "esp"),
    (51, "ah"),
    (58, "icmpv6"),
    (58, "ipv6-icmp"),
    (89, "ospf"),
    (103, "pim"),
    (112, "vrrp"),
    (115, "l2tp"),
    (132, "sctp"),
    (136, "udplite"),
];

/// The number of a name, or one that is written as a number.
pub(crate) fn number(text: &str) -> Option<u8> {
    let named = NAMES.iter().find(|(_, name)| *name == text);
    named.map_or_else(|| text.parse().ok(), |(number, _)| Some(*number))
}

pub(crate) fn name(number: u8) -> Option<&'static str> {
    let named = NAMES.iter().find(|(known, _)| *known == number);
    named.map(|(_, name)| *name)
}
