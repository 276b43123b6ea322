//! Rules for packets that are forwarded: a set of ranges that is the fastest form nftables has, which
//! the kernel arm filters by and `lowroad router run` is given as `nft` lists it.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use splitmix::SplitMix64;
use testbed::Host;

use super::programs::FlowRoute;

const SEED: u64 = 7;
/// One rule in this many matches packets that are sent.
const MATCH_INTERVAL: usize = 8;

/// UDP packets that are dropped; no two rules have one in common, so that their order means nothing and
/// nftables may look them all up at once.
#[derive(Debug)]
pub(super) struct Filter {
    rules: Vec<Rule>,
    /// The first flow routes, up to this number, pass every rule.
    pub(super) open: usize,
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    /// Address and length.
    source: (u32, u8),
    destination: (u32, u8),
    source_ports: (u16, u16),
    destination_ports: (u16, u16),
}

fn overlap((one, length): (u32, u8), (other, other_length): (u32, u8)) -> bool {
    let least = length.min(other_length);
    least == 0 || (one ^ other) >> (32 - u32::from(least)) == 0
}

fn ranges_overlap(one: (u16, u16), other: (u16, u16)) -> bool {
    one.0 <= other.1 && other.0 <= one.1
}

impl Rule {
    /// A rule for packets from `source` to a port of the network of `flow_route`, or for other packets.
    fn random(
        random: &mut SplitMix64,
        matches_flow: bool,
        source: u32,
        flow_route: FlowRoute,
        ports: (u16, u16),
    ) -> Self {
        let port = |random: &mut SplitMix64| u16::try_from(random.index(60_000)).unwrap_or(0);
        let anywhere = u32::try_from(random.next_u64() >> 32).unwrap_or(0);
        let (from, to) = (port(random), port(random));
        let wide = u16::try_from(random.index(1000)).unwrap_or(0);
        let destination = flow_route.destination.to_bits() & !0xff;
        if matches_flow {
            Self {
                source: (source & !0xff, 24),
                destination: (destination, 24),
                source_ports: (1024, 65_535),
                destination_ports: (ports.1 - wide, ports.1 + wide),
            }
        } else {
            Self {
                source: (anywhere & !0xfff, 20),
                destination: (destination, 24),
                source_ports: (from, from.saturating_add(wide)),
                destination_ports: (to, to.saturating_add(wide)),
            }
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        overlap(self.source, other.source)
            && overlap(self.destination, other.destination)
            && ranges_overlap(self.source_ports, other.source_ports)
            && ranges_overlap(self.destination_ports, other.destination_ports)
    }

    fn drops(&self, source: u32, flow_route: FlowRoute, ports: (u16, u16)) -> bool {
        let destination = flow_route.destination.to_bits();
        let packet = Self {
            source: (source, 32),
            destination: (destination, 32),
            source_ports: (ports.0, ports.0),
            destination_ports: (ports.1, ports.1),
        };
        self.overlaps(&packet)
    }

    fn element(&self) -> String {
        let prefix =
            |(address, length): (u32, u8)| format!("{}/{length}", Ipv4Addr::from_bits(address));
        let range = |(first, last): (u16, u16)| format!("{first}-{last}");
        format!(
            "{} . {} . {} . {}",
            prefix(self.source),
            prefix(self.destination),
            range(self.source_ports),
            range(self.destination_ports),
        )
    }
}

impl Filter {
    /// So many rules about packets of `source` and of others; puts the flow routes that they close last.
    pub(super) fn new(
        count: usize,
        flow_routes: &mut [FlowRoute],
        source: IpAddr,
        ports: (u16, u16),
    ) -> Self {
        let IpAddr::V4(source) = source else {
            return Self {
                rules: Vec::new(),
                open: flow_routes.len(),
            };
        };
        let source = source.to_bits();
        let mut random = SplitMix64::new(SEED);
        let mut rules: Vec<Rule> = Vec::with_capacity(count);
        while rules.len() < count {
            let flow_route = flow_routes[random.index(flow_routes.len())];
            let matches_flow = rules.len().is_multiple_of(MATCH_INTERVAL);
            let rule = Rule::random(&mut random, matches_flow, source, flow_route, ports);
            if !rules.iter().any(|other| other.overlaps(&rule)) {
                rules.push(rule);
            }
        }
        let closed = |flow_route: &FlowRoute| {
            rules
                .iter()
                .any(|rule| rule.drops(source, *flow_route, ports))
        };
        flow_routes.sort_by_cached_key(closed);
        let open = flow_routes.partition_point(|flow_route| !closed(flow_route));
        Self { rules, open }
    }

    /// Has the kernel filter by the rules; returns where they are as `nft` lists them, or nothing where
    /// there are none.
    pub(super) fn load(&self, router: &Host, folder: &Path) -> Result<Option<PathBuf>> {
        if self.rules.is_empty() {
            return Ok(None);
        }
        let (given, listed) = (folder.join("rules.nft"), folder.join("rules.json"));
        std::fs::write(&given, self.text())?;
        nft(router, &["-f", &given.display().to_string()])?;
        std::fs::write(&listed, nft(router, &["-j", "list", "ruleset"])?)?;
        Ok(Some(listed))
    }

    fn text(&self) -> String {
        let mut text = "table ip filter {\n  set blocked {\n    type ipv4_addr . ipv4_addr . inet_service . inet_service\n    flags interval\n    elements = {\n".to_owned();
        for rule in &self.rules {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "      {},", rule.element());
        }
        text + "    }\n  }\n  chain forward {\n    type filter hook forward priority 0; policy accept;\n    ip saddr . ip daddr . udp sport . udp dport @blocked drop\n  }\n}\n"
    }
}

fn nft(host: &Host, words: &[&str]) -> Result<Vec<u8>> {
    let run = || Command::new("nft").args(words).output();
    let done = host.run(run)?.context("nft")?;
    if done.status.success() {
        return Ok(done.stdout);
    }
    bail!("nft: {}", String::from_utf8_lossy(&done.stderr).trim());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_apart_and_close_the_last_ways() {
        let mut random = SplitMix64::new(1);
        let mut flow_routes: Vec<FlowRoute> = (0..3000)
            .map(|_| FlowRoute {
                destination: Ipv4Addr::from_bits(u32::try_from(random.next_u64() >> 32).unwrap()),
                neighbour: [0; 6],
            })
            .collect();
        let source = Ipv4Addr::new(10, 173, 1, 1);
        let ports = (40_004, 9_000);
        let filter = Filter::new(200, &mut flow_routes, source.into(), ports);
        for (at, rule) in filter.rules.iter().enumerate() {
            assert!(!filter.rules[..at].iter().any(|other| other.overlaps(rule)));
        }
        let drops = |flow_route: &FlowRoute| {
            let mut rules = filter.rules.iter();
            rules.any(|rule| rule.drops(source.to_bits(), *flow_route, ports))
        };
        let (open, closed) = flow_routes.split_at(filter.open);
        assert!(!open.iter().any(drops) && closed.iter().all(drops));
        assert!((20..200).contains(&closed.len()), "{}", closed.len());
        assert_eq!(
            Filter::new(0, &mut flow_routes, source.into(), ports).open,
            3000
        );
    }
}
