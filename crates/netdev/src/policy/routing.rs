//! What decides about forwarded packets beside rules of nftables and IPsec: policy routing rules and settings of devices.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::IpAddr;

use netlink_sys::protocols::NETLINK_ROUTE;

use super::Check;
use super::dump::{Client, is_absent};
use super::nftables::attribute::attributes;
use crate::{Error, Link};

const IPV4: u8 = 2;
const IPV6: u8 = 10;
/// How often a dump that a change interrupts is begun again.
const ATTEMPTS: usize = 8;
/// `NETCONFA_IFINDEX_ALL`: the settings `conf.all`.
const ALL: i32 = -1;

/// Reads the routing policy of the network namespace in which it was made.
#[derive(Debug)]
pub struct Routing {
    client: Client,
}

/// The routing policy of a network namespace at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoutingPolicy {
    rules: Vec<RoutingRule>,
    /// By index of the device.
    v4: BTreeMap<i32, Settings>,
    v6: BTreeMap<i32, Settings>,
}

/// How strictly the kernel looks where the source of a packet is (RFC 3704).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReversePath {
    #[default]
    Off,
    /// Packets to the source leave by the device.
    Strict,
    /// There is a route to the source.
    Loose,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Settings {
    forwarding: bool,
    /// Of IPv6, where `conf.all.forwarding` is off.
    force_forwarding: bool,
    rp_filter: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct RoutingRule {
    v6: bool,
    /// `RT_TABLE_LOCAL`, `RT_TABLE_MAIN` or `RT_TABLE_DEFAULT` of one of the three rules that every system has.
    usual: Option<u32>,
    /// The device whose packets alone it is about.
    ingress: Option<String>,
    /// It decides about no packet that comes in by an ordinary device.
    idle: bool,
    /// It selects by more than what a route is asked for with: ports, the protocol or the type of service.
    by_headers: bool,
    /// As `ip rule` shows it.
    text: String,
}

impl Routing {
    /// Opens a socket in the calling thread's namespace.
    pub fn open() -> Result<Self, Error> {
        let client = Client::new(NETLINK_ROUTE).map_err(Error::Socket)?;
        Ok(Self { client })
    }

    /// Reads the policy.
    pub fn read(&mut self) -> Result<RoutingPolicy, Error> {
        /// `RTM_GETRULE`
        const GET_RULES: u16 = 34;
        /// `struct fib_rule_hdr` of any family
        const RULE_REQUEST: [u8; 12] = [0; 12];
        let rules = self.dump(GET_RULES, &RULE_REQUEST, "reading the policy routing rules")?;
        Ok(RoutingPolicy {
            rules: rules
                .iter()
                .filter_map(|body| RoutingRule::read(body))
                .collect(),
            v4: self.settings(IPV4)?,
            v6: self.settings(IPV6)?,
        })
    }

    fn settings(&mut self, family: u8) -> Result<BTreeMap<i32, Settings>, Error> {
        /// `RTM_GETNETCONF`
        const GET_SETTINGS: u16 = 82;
        let request = [family, 0, 0, 0];
        let bodies = self.dump(GET_SETTINGS, &request, "reading the settings of devices")?;
        let read = |body: &Vec<u8>| {
            let family_of = *body.first()?;
            let (mut index, mut settings) = (None, Settings::default());
            for (kind, value) in attributes(body.get(4..)?) {
                match kind {
                    1 => index = signed(value),
                    2 => settings.forwarding = signed(value)? != 0,
                    3 => settings.rp_filter = signed(value)?,
                    9 => settings.force_forwarding = signed(value)? != 0,
                    _ => {}
                }
            }
            Some((index.filter(|_| family_of == family)?, settings))
        };
        Ok(bodies.iter().filter_map(read).collect())
    }

    fn dump(&mut self, kind: u16, body: &[u8], action: &str) -> Result<Vec<Vec<u8>>, Error> {
        for _ in 0..ATTEMPTS {
            match self.client.dump(kind, body) {
                Ok(objects) => return Ok(objects),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A kernel without policy routing or without this IP version.
                Err(error) if is_absent(&error) => return Ok(Vec::new()),
                Err(error) => return Err(Error::refused(action, error)),
            }
        }
        let cause = io::Error::other("it changes faster than it can be read");
        Err(Error::refused(action, cause))
    }
}

impl RoutingPolicy {
    /// Why the kernel would not forward the packets of an IP version that come by a device, or not by the tables `local`
    /// and `main`. Only checks of devices and routes are looked at.
    pub fn obstacle(&self, check: Check, ingress: &Link, v4: bool) -> Option<String> {
        match check {
            Check::IpRules => self.foreign_rule(&ingress.name, v4),
            Check::Forwarding => self.closed(ingress, v4),
            _ => None,
        }
    }

    /// What the kernel asks of the source of IPv4 packets that come by a device.
    pub fn reverse_path(&self, ifindex: u32) -> ReversePath {
        let of = |index| self.v4.get(&index).map_or(0, |settings| settings.rp_filter);
        match of(ALL).max(of(signed_index(ifindex))) {
            0 => ReversePath::Off,
            1 => ReversePath::Strict,
            _ => ReversePath::Loose,
        }
    }

    pub(super) fn foreign_rule(&self, ingress: &str, v4: bool) -> Option<String> {
        let mut of_version = self.rules.iter().filter(|rule| rule.v6 != v4).peekable();
        // Where nothing is known the kernel has no policy routing.
        of_version.peek()?;
        let rules: Vec<&RoutingRule> = of_version.collect();
        let concerns = |rule: &&&RoutingRule| {
            rule.usual.is_none()
                && !rule.idle
                && rule.ingress.as_ref().is_none_or(|name| name == ingress)
        };
        if let Some(rule) = rules.iter().find(concerns) {
            return Some(format!("the policy routing rule {}", rule.text));
        }
        for (table, name) in [(255, "local"), (254, "main")] {
            if !rules.iter().any(|rule| rule.usual == Some(table)) {
                return Some(format!("no policy routing rule leads to the table {name}"));
            }
        }
        None
    }

    /// A rule that may route packets of this machine in other ways than their destination, source and user say.
    pub(super) fn rule_by_headers(&self, v4: bool) -> Option<String> {
        let mut rules = self.rules.iter();
        let found = rules.find(|rule| rule.v6 != v4 && rule.by_headers)?;
        Some(format!("the policy routing rule {}", found.text))
    }

    fn closed(&self, ingress: &Link, v4: bool) -> Option<String> {
        let (settings, version) = if v4 { (&self.v4, 4) } else { (&self.v6, 6) };
        let of = |index| settings.get(&index).copied().unwrap_or_default();
        let device = of(signed_index(ingress.index));
        let name = &ingress.name;
        let setting = if v4 {
            (!device.forwarding).then(|| format!("{name}.forwarding"))
        } else {
            let open = of(ALL).forwarding || device.force_forwarding;
            (!open).then(|| "all.forwarding".to_owned())
        };
        if let Some(setting) = setting {
            return Some(format!("net.ipv{version}.conf.{setting} is 0"));
        }
        let disabled = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        let is_disabled = !v4 && fs::read_to_string(disabled).is_ok_and(|text| text.trim() != "0");
        is_disabled.then(|| format!("net.ipv6.conf.{name}.disable_ipv6 is 1"))
    }
}

impl RoutingRule {
    /// `struct fib_rule_hdr` (family, two lengths, type of service, table, two reserved bytes, action, flags) and its
    /// attributes (`FRA_*`).
    fn read(body: &[u8]) -> Option<Self> {
        const HEADER: usize = 12;
        const TO_TABLE: u8 = 1;
        const INVERT: u32 = 2;
        let header = body.get(..HEADER)?;
        let v6 = header[0] == IPV6;
        if !v6 && header[0] != IPV4 {
            return None;
        }
        let inverted = word(&header[8..])? & INVERT != 0;
        let mut table = u32::from(header[4]);
        let (mut priority, mut words) = (0, Vec::new());
        let (mut ingress, mut egress, mut of_controllers) = (None, false, false);
        let mut selective = header[3] != 0 || inverted;
        let mut by_headers = header[3] != 0;
        for (kind, value) in attributes(&body[HEADER..]) {
            match kind {
                1 => words.push(format!("to {}/{}", address(value)?, header[1])),
                2 => words.insert(0, format!("from {}/{}", address(value)?, header[2])),
                3 => ingress = Some(super::nftables::attribute::text(value)),
                6 => priority = word(value)?,
                10 if word(value)? != 0 => words.push(format!("fwmark {:#x}", word(value)?)),
                15 => table = word(value)?,
                17 => egress = true,
                19 => of_controllers = true,
                // A suppressor of -1 suppresses nothing; a mask of marks says nothing alone; then padding, and who made
                // the rule.
                14 if word(value)? == u32::MAX => {}
                10 | 16 | 18 | 21 => {}
                // Tunnels, protocols, ports, DSCP, flow labels.
                12 | 22.. => (selective, by_headers) = (true, true),
                _ => selective = true,
            }
        }
        selective |= !words.is_empty() || ingress.is_some() || egress || of_controllers;
        let to_table = header[7] == TO_TABLE;
        let usual = match (priority, table) {
            (0, 255) | (32766, 254) | (32767, 253) if to_table && !selective => Some(table),
            _ => None,
        };
        if let Some(name) = &ingress {
            words.push(format!("iif {name}"));
        }
        let action = match header[7] {
            _ if of_controllers => "lookup [l3mdev-table]".to_owned(),
            TO_TABLE => format!("lookup {table}"),
            2 => "goto".to_owned(),
            6 => "blackhole".to_owned(),
            7 => "unreachable".to_owned(),
            8 => "prohibit".to_owned(),
            _ => "nop".to_owned(),
        };
        let not = if inverted { "not " } else { "" };
        let selector = if words.is_empty() {
            "from all".to_owned()
        } else {
            words.join(" ")
        };
        Some(Self {
            v6,
            usual,
            ingress: ingress.filter(|_| !inverted),
            // Transit packets have no device to leave by when rules are asked, and only ports of a VRF have a table of
            // their device.
            idle: !inverted && (egress || of_controllers),
            by_headers,
            text: format!("{priority}: {not}{selector} {action}"),
        })
    }
}

fn signed_index(ifindex: u32) -> i32 {
    i32::try_from(ifindex).unwrap_or(i32::MAX)
}

fn word(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(*value.first_chunk()?))
}

fn signed(value: &[u8]) -> Option<i32> {
    Some(i32::from_ne_bytes(*value.first_chunk()?))
}

fn address(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => Some(<[u8; 4]>::try_from(value).ok()?.into()),
        16 => Some(<[u8; 16]>::try_from(value).ok()?.into()),
        _ => None,
    }
}
