//! From a topology to devices, addresses and routes: all decided before anything is made.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::topology::{LinkSpec, Subnet, Topology};

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) host: String,
    /// Place in `Topology::link`.
    pub(crate) link: usize,
    /// The device's name in its host: the host at the other end, or `lan3`.
    pub(crate) device: String,
    pub(crate) mac: [u8; 6],
    pub(crate) v4: IpAddr,
    pub(crate) v4_prefix_len: u8,
    pub(crate) v6: IpAddr,
    pub(crate) v6_prefix_len: u8,
    /// The host's own device, where its engine has made that: then this end is where the engine is.
    pub(crate) engine: Option<EngineEnd>,
}

/// An end that a host's engine has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EngineEnd {
    pub(crate) device: String,
    pub(crate) v4: IpAddr,
    /// The address at which others reach it.
    pub(crate) published: IpAddr,
}

impl End {
    /// The IPv4 address by which others reach it.
    pub(crate) fn reached_at(&self) -> IpAddr {
        self.engine
            .as_ref()
            .map_or(self.v4, |engine| engine.published)
    }
}

/// A route of a host that is not on a link to its network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    pub(crate) host: String,
    pub(crate) to: Subnet,
    pub(crate) gateway: IpAddr,
}

/// Every end of every link, in the order of the file.
pub(crate) fn ends(topology: &Topology) -> Vec<End> {
    let mut taken = BTreeSet::new();
    let mut ends = Vec::new();
    for (number, link) in topology.link.iter().enumerate() {
        let (v4, v6) = subnets(number, link);
        for (place, host) in link.ends.iter().enumerate() {
            let device = device_name(link, place, number);
            let free = taken.insert((host.clone(), device.clone()));
            ends.push(End {
                host: host.clone(),
                link: number,
                device: if free {
                    device
                } else {
                    format!("link{number}")
                },
                mac: mac(number, place),
                v4: v4.host(place + 1),
                v4_prefix_len: v4.prefix_len,
                v6: v6.host(place + 1),
                v6_prefix_len: v6.prefix_len,
                engine: None,
            });
        }
    }
    ends
}

/// Routes through forwarding hosts, by the fewest links.
pub(crate) fn hops(topology: &Topology, ends: &[End]) -> Vec<Hop> {
    let mut hops = Vec::new();
    for host in topology.host.keys() {
        let own: BTreeSet<usize> = links_of(ends, host).collect();
        for (link, gateway) in gateways(topology, ends, host) {
            if own.contains(&link) {
                continue;
            }
            let (v4, v6) = subnets(link, &topology.link[link]);
            for (to, gateway) in [(v4, gateway.v4), (v6, gateway.v6)] {
                hops.push(Hop {
                    host: host.clone(),
                    to,
                    gateway,
                });
            }
        }
    }
    hops
}

/// For each link that `host` reaches: the end of its neighbour that the way there leads through.
fn gateways<'a>(topology: &Topology, ends: &'a [End], host: &'a str) -> BTreeMap<usize, &'a End> {
    let mut gateways = BTreeMap::new();
    let mut seen = BTreeSet::from([host]);
    let mut next: VecDeque<(&str, Option<&End>)> = VecDeque::from([(host, None)]);
    while let Some((at, first)) = next.pop_front() {
        if at != host && !topology.host[at].settings.forward {
            continue;
        }
        for link in links_of(ends, at) {
            for end in ends.iter().filter(|end| end.link == link) {
                let gateway = first.unwrap_or(end);
                if let Some(first) = first {
                    gateways.entry(link).or_insert(first);
                }
                if seen.insert(&end.host) {
                    next.push_back((&end.host, Some(gateway)));
                }
            }
        }
    }
    gateways
}

fn links_of<'a>(ends: &'a [End], host: &'a str) -> impl Iterator<Item = usize> + 'a {
    ends.iter()
        .filter(move |end| end.host == host)
        .map(|end| end.link)
}

/// The link's own networks, or ones that depend on its place alone: 10.173.N.0/24 and
/// fd0a:ad00:0:N::/64.
fn subnets(number: usize, link: &LinkSpec) -> (Subnet, Subnet) {
    let number = u8::try_from(number).unwrap_or(u8::MAX);
    let v4 = Subnet {
        address: Ipv4Addr::new(10, 173, number, 0).into(),
        prefix_len: 24,
    };
    let v6 = Subnet {
        address: Ipv6Addr::new(0xfd0a, 0xad00, 0, number.into(), 0, 0, 0, 0).into(),
        prefix_len: 64,
    };
    (link.v4.unwrap_or(v4), link.v6.unwrap_or(v6))
}

fn device_name(link: &LinkSpec, place: usize, number: usize) -> String {
    match link.ends.as_slice() {
        [one, other] => if place == 0 { other } else { one }.clone(),
        _ => format!("lan{number}"),
    }
}

/// Locally administered, and the same in every run.
fn mac(link: usize, place: usize) -> [u8; 6] {
    let [.., link] = link.to_be_bytes();
    let [.., high, low] = (place + 1).to_be_bytes();
    [0x02, 0x10, 0xad, link, high, low]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{HostSpec, LinkKind};

    fn line(forward: bool) -> Topology {
        let mut topology = Topology::default();
        for name in ["sender", "relay", "receiver"] {
            topology.host.insert(name.to_owned(), HostSpec::native());
        }
        topology.host.get_mut("relay").unwrap().settings.forward = forward;
        topology.link = vec![
            LinkSpec::new(LinkKind::Direct, &["sender", "relay"]),
            LinkSpec::new(LinkKind::Bridge, &["relay", "receiver"]),
        ];
        topology
    }

    #[test]
    fn devices_are_named_after_the_other_end_and_addresses_do_not_overlap() {
        let ends = ends(&line(false));
        let devices: Vec<_> = ends.iter().map(|end| end.device.as_str()).collect();
        assert_eq!(devices, ["relay", "sender", "receiver", "relay"]);
        let addresses: BTreeSet<_> = ends.iter().flat_map(|end| [end.v4, end.v6]).collect();
        assert_eq!(addresses.len(), 8);
        let macs: BTreeSet<_> = ends.iter().map(|end| end.mac).collect();
        assert_eq!(macs.len(), 4);
    }

    #[test]
    fn routes_lead_through_forwarding_hosts_only() {
        let topology = line(false);
        assert_eq!(hops(&topology, &ends(&topology)), []);
        let topology = line(true);
        let hops = hops(&topology, &ends(&topology));
        let via: Vec<_> = hops
            .iter()
            .map(|hop| (hop.host.as_str(), hop.gateway.to_string()))
            .collect();
        let wanted = [
            ("receiver", "10.173.1.1"),
            ("receiver", "fd0a:ad00:0:1::1"),
            ("sender", "10.173.0.2"),
            ("sender", "fd0a:ad00::2"),
        ];
        let wanted: Vec<_> = wanted
            .into_iter()
            .map(|(host, gateway)| (host, gateway.to_owned()))
            .collect();
        assert_eq!(via, wanted);
    }

    #[test]
    fn a_second_link_between_two_hosts_has_its_own_device() {
        let mut topology = line(false);
        topology.link[1] = LinkSpec::new(LinkKind::Direct, &["sender", "relay"]);
        let ends = ends(&topology);
        assert_eq!(ends[0].device, "relay");
        assert_eq!(ends[2].device, "link1");
    }
}
