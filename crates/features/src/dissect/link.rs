//! Link layers: from a frame's first byte to its network header, through VLAN tags, MPLS labels and PPPoE.

use packet::ethertype;

/// The limit of tags, labels and sessions. Real networks use far fewer, so a deeper frame is an attack.
const MAX_LAYERS: usize = 20;

/// Link-layer header types, as registered at tcpdump.org.
mod link_type {
    pub(super) const NULL: u32 = 0;
    pub(super) const ETHERNET: u32 = 1;
    pub(super) const PPP: u32 = 9;
    /// Raw IP on two families of systems, from before the registry had a number for it.
    pub(super) const RAW_BSD: u32 = 12;
    pub(super) const RAW_OPENBSD: u32 = 14;
    pub(super) const RAW: u32 = 101;
    pub(super) const LOOP: u32 = 108;
    pub(super) const LINUX_SLL: u32 = 113;
    pub(super) const IPV4: u32 = 228;
    pub(super) const IPV6: u32 = 229;
    pub(super) const LINUX_SLL2: u32 = 276;
}

/// EtherTypes of the layers that are unwrapped to reach IP.
mod layer {
    pub(super) const QINQ_OLD: u16 = 0x9100;
    pub(super) const MPLS: u16 = 0x8847;
    pub(super) const MPLS_MULTICAST: u16 = 0x8848;
    pub(super) const PPPOE_SESSION: u16 = 0x8864;
    /// Provider backbone bridges (IEEE 802.1ah): a service tag followed by the customer's frame.
    pub(super) const BACKBONE_SERVICE: u16 = 0x88e7;
    /// The largest Ethernet type field that is a length. An LLC header follows it.
    pub(super) const MAX_LENGTH_FIELD: u16 = 1500;
}

/// Bytes of an Ethernet header and of its two addresses.
const ETHERNET_HEADER: usize = 14;
const ADDRESSES: usize = 12;
/// Bytes of the control word before Ethernet in MPLS, and of the tag before a customer's frame in a backbone.
const CONTROL_WORD: usize = 4;
const SERVICE_TAG: usize = 4;

/// The layers before the network header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Offset of the network header in the frame, in bytes.
    pub l3: usize,
    /// EtherType of the network header.
    pub ethertype: u16,
    /// VLAN id of the outermost tag; 0 if the frame is untagged.
    pub vlan: u16,
    pub vlan_tags: u8,
    pub source_mac: [u8; 6],
    pub destination_mac: [u8; 6],
}

/// The reason that no network header was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoNetwork {
    LinkType,
    CutOff,
    TooDeep,
}

/// Finds the network header in a frame of this link type.
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

/// Walks through VLAN tags, MPLS labels, LLC/SNAP, PPPoE, and Ethernet in MPLS and in provider backbones, up to the
/// first other EtherType.
pub(super) fn unwrap_layers(bytes: &[u8], link: &mut Link) -> Result<(), NoNetwork> {
    // One more pass than there may be layers, to read the EtherType behind the last.
    for _ in 0..=MAX_LAYERS {
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
                    behind_labels(bytes, link)?;
                }
            }
            layer::PPPOE_SESSION => {
                link.l3 += 6;
                ppp_protocol(bytes, link)?;
            }
            layer::BACKBONE_SERVICE => {
                link.ethertype = u16_at(bytes, link.l3 + SERVICE_TAG + ADDRESSES)?;
                link.l3 += SERVICE_TAG + ETHERNET_HEADER;
            }
            length if length <= layer::MAX_LENGTH_FIELD => match llc(bytes, link.l3) {
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

/// Reads the LLC header at `at`. Returns the EtherType, given by SNAP (RFC 1042, and 802.1H's bridged form) or by
/// IP's own service access point, and the header's size in bytes.
fn llc(bytes: &[u8], at: usize) -> Option<(u16, usize)> {
    match bytes.get(at..)? {
        [0xaa, 0xaa, 3, 0, 0, 0 | 0xf8, high, low, ..] => {
            Some((u16::from_be_bytes([*high, *low]), 8))
        }
        [6, 6, 3, ..] => Some((ethertype::IPV4, 3)),
        _ => None,
    }
}

/// The EtherType for BSD's address family in the first word. `NULL` has the byte order of the capturing machine, and
/// some of these machines write an EtherType instead.
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
        (_, Ok(ethertype)) if of_machine && ethertype > layer::MAX_LENGTH_FIELD => ethertype,
        _ => 0,
    })
}

/// PPP with or without the HDLC-like address and control bytes (RFC 1662).
fn ppp(bytes: &[u8], link: &mut Link) -> Result<(), NoNetwork> {
    if bytes.starts_with(&[0xff, 0x03]) {
        link.l3 = 2;
    }
    ppp_protocol(bytes, link)
}

/// Reads the PPP protocol number at `link.l3`. It may be compressed to one byte (RFC 1661 section 6.5): only the
/// last byte of a number is odd.
fn ppp_protocol(bytes: &[u8], link: &mut Link) -> Result<(), NoNetwork> {
    let first = *bytes.get(link.l3).ok_or(NoNetwork::CutOff)?;
    let (protocol, size) = if first & 1 == 1 {
        (first.into(), 1)
    } else {
        (u16_at(bytes, link.l3)?, 2)
    };
    link.l3 += size;
    link.ethertype = match protocol {
        0x0021 => ethertype::IPV4,
        0x0057 => ethertype::IPV6,
        0x0281 => layer::MPLS,
        0x0283 => layer::MPLS_MULTICAST,
        _ => 0,
    };
    Ok(())
}

/// Finds the payload behind the last label: IP, recognized by its version, or Ethernet (RFC 4448), with or without a
/// control word. No field announces either, so Ethernet is accepted only if its EtherType leads to IP.
fn behind_labels(bytes: &[u8], link: &mut Link) -> Result<(), NoNetwork> {
    let rest = bytes.get(link.l3..).unwrap_or(&[]);
    link.ethertype = by_version(rest)?;
    // A control word begins with four zero bits; an associated channel header begins with the number 1 (RFC 5586).
    let before: &[usize] = match rest.first().map(|first| first >> 4) {
        Some(0) => &[CONTROL_WORD, 0],
        Some(1 | 4 | 6) => &[],
        _ => &[0],
    };
    for size in before {
        let at = link.l3 + size;
        if let Some(carrier) = u16_at(bytes, at + ADDRESSES).ok().filter(carries_ip) {
            link.ethertype = carrier;
            link.l3 = at + ETHERNET_HEADER;
            break;
        }
    }
    Ok(())
}

fn carries_ip(ethertype: &u16) -> bool {
    matches!(
        *ethertype,
        ethertype::IPV4
            | ethertype::IPV6
            | ethertype::VLAN
            | ethertype::QINQ
            | layer::QINQ_OLD
            | layer::PPPOE_SESSION
    )
}

/// The EtherType for the version in an IP header's first byte; 0 for any other version.
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
