//! Link layers: from a frame's first byte to its network header, through tags, labels and PPPoE.

use packet::ethertype;

/// More tags, labels or sessions than this is an attack, not a network.
const MOST_LAYERS: usize = 20;

/// Link types, by the numbers of the registry of tcpdump.org.
mod link_type {
    pub(super) const NULL: u32 = 0;
    pub(super) const ETHERNET: u32 = 1;
    pub(super) const PPP: u32 = 9;
    /// What raw IP was before it had a number of its own, on two families of systems.
    pub(super) const RAW_BSD: u32 = 12;
    pub(super) const RAW_OPENBSD: u32 = 14;
    pub(super) const RAW: u32 = 101;
    pub(super) const LOOP: u32 = 108;
    pub(super) const LINUX_SLL: u32 = 113;
    pub(super) const IPV4: u32 = 228;
    pub(super) const IPV6: u32 = 229;
    pub(super) const LINUX_SLL2: u32 = 276;
}

/// EtherTypes of what is unwrapped on the way to IP.
mod layer {
    pub(super) const QINQ_OLD: u16 = 0x9100;
    pub(super) const MPLS: u16 = 0x8847;
    pub(super) const MPLS_MULTICAST: u16 = 0x8848;
    pub(super) const PPPOE_SESSION: u16 = 0x8864;
    /// Up to it, an Ethernet type field is a length and an LLC header follows.
    pub(super) const LONGEST: u16 = 1500;
}

/// What lies before the network header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Where the network header starts.
    pub l3: usize,
    /// Its EtherType.
    pub ethertype: u16,
    /// The outermost tag's VLAN id; 0 without one.
    pub vlan: u16,
    pub vlan_tags: u8,
    pub source_mac: [u8; 6],
    pub destination_mac: [u8; 6],
}

/// Why no network header was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoNetwork {
    LinkType,
    CutOff,
    TooDeep,
}

/// Finds the network header of a frame of this link type.
pub(super) fn read(link_type: u32, bytes: &[u8]) -> Result<Link, NoNetwork> {
    let mut link = Link::default();
    match link_type {
        link_type::ETHERNET => {
            ethernet(bytes, &mut link)?;
        }
        link_type::RAW | link_type::RAW_BSD | link_type::RAW_OPENBSD | link_type::IPV4 => {
            link.ethertype = by_version(bytes)?;
        }
        link_type::IPV6 => link.ethertype = ethertype::IPV6,
        link_type::NULL | link_type::LOOP => {
            link.l3 = 4;
            link.ethertype = of_family(bytes, link_type)?;
        }
        link_type::PPP => ppp(bytes, &mut link)?,
        link_type::LINUX_SLL => {
            link.l3 = 16;
            link.ethertype = u16_at(bytes, 14)?;
        }
        link_type::LINUX_SLL2 => {
            link.l3 = 20;
            link.ethertype = u16_at(bytes, 0)?;
        }
        _ => return Err(NoNetwork::LinkType),
    }
    unwrap_layers(bytes, &mut link)?;
    Ok(link)
}

/// Reads an Ethernet header that starts at `link.l3`.
pub(super) fn ethernet(bytes: &[u8], link: &mut Link) -> Result<(), NoNetwork> {
    let header = bytes.get(link.l3..link.l3 + 14).ok_or(NoNetwork::CutOff)?;
    link.destination_mac.copy_from_slice(&header[..6]);
    link.source_mac.copy_from_slice(&header[6..12]);
    link.ethertype = u16::from_be_bytes([header[12], header[13]]);
    link.l3 += 14;
    Ok(())
}

/// Walks through VLAN tags, MPLS labels, LLC/SNAP and PPPoE until something else follows.
pub(super) fn unwrap_layers(bytes: &[u8], link: &mut Link) -> Result<(), NoNetwork> {
    // Once more, to see what is behind the last.
    for _ in 0..=MOST_LAYERS {
        match link.ethertype {
            ethertype::VLAN | ethertype::QINQ | layer::QINQ_OLD => {
                let tag = u16_at(bytes, link.l3)?;
                link.ethertype = u16_at(bytes, link.l3 + 2)?;
                if link.vlan_tags == 0 {
                    link.vlan = tag & 0x0fff;
                }
                link.vlan_tags += 1;
                link.l3 += 4;
            }
            layer::MPLS | layer::MPLS_MULTICAST => {
                let bottom = u16_at(bytes, link.l3 + 2)? & 0x0100 != 0;
                link.l3 += 4;
                if bottom {
                    link.ethertype = by_version(bytes.get(link.l3..).unwrap_or(&[]))?;
                }
            }
            layer::PPPOE_SESSION => {
                link.l3 += 6;
                let protocol = u16_at(bytes, link.l3)?;
                link.l3 += 2;
                link.ethertype = of_ppp(protocol);
            }
            length if length <= layer::LONGEST => match llc(bytes, link.l3) {
                Some((ethertype, size)) => {
                    link.ethertype = ethertype;
                    link.l3 += size;
                }
                None => return Ok(()),
            },
            _ => return Ok(()),
        }
    }
    Err(NoNetwork::TooDeep)
}

/// The EtherType that an LLC header announces, by SNAP (RFC 1042, and 802.1H's bridged form) or as
/// IP's own access point, and the header's size.
fn llc(bytes: &[u8], at: usize) -> Option<(u16, usize)> {
    match bytes.get(at..)? {
        [0xaa, 0xaa, 3, 0, 0, 0 | 0xf8, high, low, ..] => {
            Some((u16::from_be_bytes([*high, *low]), 8))
        }
        [6, 6, 3, ..] => Some((ethertype::IPV4, 3)),
        _ => None,
    }
}

/// The EtherType that BSD's address family in the first word means. Without a byte order of its own the
/// word is the capturing machine's, and some of these write an EtherType there.
fn of_family(bytes: &[u8], link_type: u32) -> Result<u16, NoNetwork> {
    let word = bytes.get(..4).ok_or(NoNetwork::CutOff)?;
    let word = [word[0], word[1], word[2], word[3]];
    let of_machine = link_type == link_type::NULL;
    let family = match u32::from_be_bytes(word) {
        family if of_machine && family > 0xffff => u32::from_le_bytes(word),
        family => family,
    };
    Ok(match (family, u16::try_from(family)) {
        (2, _) => by_version(&bytes[4..])?,
        (24 | 28 | 30, _) => ethertype::IPV6,
        (_, Ok(ethertype)) if of_machine && ethertype > layer::LONGEST => ethertype,
        _ => 0,
    })
}

/// PPP with or without the HDLC-like address and control bytes (RFC 1662).
fn ppp(bytes: &[u8], link: &mut Link) -> Result<(), NoNetwork> {
    if bytes.starts_with(&[0xff, 0x03]) {
        link.l3 = 2;
    }
    link.ethertype = of_ppp(u16_at(bytes, link.l3)?);
    link.l3 += 2;
    Ok(())
}

/// The EtherType of what a PPP protocol number means; 0 for what is not IP.
fn of_ppp(protocol: u16) -> u16 {
    match protocol {
        0x0021 => ethertype::IPV4,
        0x0057 => ethertype::IPV6,
        _ => 0,
    }
}

/// The EtherType that the version in an IP header's first byte means; 0 for neither.
fn by_version(bytes: &[u8]) -> Result<u16, NoNetwork> {
    let first = bytes.first().ok_or(NoNetwork::CutOff)?;
    Ok(match first >> 4 {
        4 => ethertype::IPV4,
        6 => ethertype::IPV6,
        _ => 0,
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, NoNetwork> {
    let two = bytes.get(at..at + 2).ok_or(NoNetwork::CutOff)?;
    Ok(u16::from_be_bytes([two[0], two[1]]))
}
