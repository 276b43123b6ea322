//! IPsec: the security policies that packets have to satisfy or would be encrypted by.

use std::io;
use std::net::IpAddr;

use netlink_sys::protocols::NETLINK_XFRM;

use super::Verdict;
use super::dump::{Client, is_absent};
use super::nftables::attribute;
use super::packet::PacketClass;
use crate::Error;

/// How often a dump that a change interrupts is begun again.
const ATTEMPTS: usize = 8;

/// The security policies of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SecurityPolicies {
    policies: Vec<SecurityPolicy>,
    /// Whether packets that no policy selects are dropped, in each [`Direction`].
    blocks: [bool; 3],
}

/// A socket to IPsec; none where the kernel has none.
#[derive(Debug)]
pub(crate) struct Security(Option<Client>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct SecurityPolicy {
    direction: u8,
    v4: bool,
    source: ([u8; 16], u8),
    destination: ([u8; 16], u8),
    source_port: (u16, u16),
    destination_port: (u16, u16),
    protocol: u8,
    /// Lets packets through as they are.
    bypasses: bool,
}

/// Which way a packet goes, as policies name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    In = 0,
    Out = 1,
    Forward = 2,
}

impl Security {
    /// Opens a socket in the calling thread's namespace, which it goes on asking whichever thread uses it.
    pub(crate) fn open() -> Result<Self, Error> {
        match Client::new(NETLINK_XFRM) {
            Ok(client) => Ok(Self(Some(client))),
            Err(error) if is_absent(&error) => Ok(Self(None)),
            Err(error) => Err(Error::Socket(error)),
        }
    }

    /// All policies; none where the kernel has no IPsec.
    pub(crate) fn read(&mut self) -> Result<SecurityPolicies, Error> {
        const GET_POLICY: u16 = 0x15;
        /// `xfrm_userpolicy_id`
        const REQUEST: [u8; 64] = [0; 64];
        let Some(client) = &mut self.0 else {
            return Ok(SecurityPolicies::default());
        };
        let refused = |source| Error::refused("reading the IPsec policies", source);
        for _ in 0..ATTEMPTS {
            match client.dump(GET_POLICY, &REQUEST) {
                Ok(objects) => {
                    let policies = objects.iter().filter_map(|body| SecurityPolicy::read(body));
                    return Ok(SecurityPolicies {
                        policies: policies.collect(),
                        blocks: defaults(client).map_err(refused)?,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_absent(&error) => return Ok(SecurityPolicies::default()),
                Err(error) => return Err(refused(error)),
            }
        }
        let cause = io::Error::other("they change faster than they can be read");
        Err(refused(cause))
    }
}

/// Whether packets that no policy selects are dropped, in each direction. A kernel before 5.15 lets them through.
fn defaults(client: &mut Client) -> io::Result<[bool; 3]> {
    const GET_DEFAULT: u16 = 0x28;
    const BLOCK: u8 = 1;
    // `xfrm_userpolicy_default`: in, forward, out.
    match client.get(GET_DEFAULT, &[0; 4]) {
        Ok(answer) => {
            let blocks = |at: usize| answer.get(at) == Some(&BLOCK);
            Ok([blocks(0), blocks(2), blocks(1)])
        }
        Err(error) if is_absent(&error) => Ok([false; 3]),
        Err(error) => Err(error),
    }
}

impl SecurityPolicies {
    pub(crate) fn is_empty(&self) -> bool {
        self.policies.is_empty() && self.blocks == [false; 3]
    }

    /// What the policies of a direction do with every packet of a kind.
    pub(crate) fn evaluate(&self, direction: Direction, class: &PacketClass) -> Verdict {
        let mut policies = self.policies.iter().filter(|policy| {
            policy.direction == direction as u8 && !policy.bypasses && policy.may_select(class)
        });
        match policies.next() {
            Some(policy) => Verdict::Kernel(format!("the IPsec policy {}", policy.name())),
            None if self.blocks[direction as usize] => {
                Verdict::Kernel("the default policy of IPsec".into())
            }
            None => Verdict::Accept,
        }
    }
}

impl SecurityPolicy {
    /// From `xfrm_userpolicy_info` and its attributes.
    fn read(body: &[u8]) -> Option<Self> {
        const INFO: usize = 168;
        const TEMPLATES: u16 = 5;
        const ALLOW: u8 = 0;
        const IPV4: u16 = 2;
        const IPV6: u16 = 10;
        let info = body.get(..INFO)?;
        let address = |at: usize| -> Option<[u8; 16]> { Some(*info.get(at..)?.first_chunk()?) };
        let port = |at: usize| u16::from_be_bytes([info[at], info[at + 1]]);
        let family = u16::from_ne_bytes([info[40], info[41]]);
        if family != IPV4 && family != IPV6 {
            return None;
        }
        let templates = attribute::find(&body[INFO..], TEMPLATES);
        Some(Self {
            destination: (address(0)?, info[42]),
            source: (address(16)?, info[43]),
            destination_port: (port(32), port(34)),
            source_port: (port(36), port(38)),
            v4: family == IPV4,
            protocol: info[44],
            direction: info[160],
            bypasses: info[161] == ALLOW && templates.is_none_or(<[u8]>::is_empty),
        })
    }

    fn may_select(&self, class: &PacketClass) -> bool {
        let port = |selector: (u16, u16), port: Option<u16>| {
            port.is_none_or(|port| (port ^ selector.0) & selector.1 == 0)
        };
        let of_protocol = |protocol: u8| self.protocol == 0 || self.protocol == protocol;
        self.v4 == class.v4
            && class.protocol.is_none_or(of_protocol)
            && overlap(self.source, class.source.0, class.source.1)
            && overlap(self.destination, class.destination.0, class.destination.1)
            && port(self.source_port, class.source_port)
            && port(self.destination_port, class.destination_port)
    }

    /// As `ip xfrm policy` shows its selector.
    fn name(&self) -> String {
        let prefix = |(bytes, length): ([u8; 16], u8)| {
            let address: IpAddr = if self.v4 {
                [bytes[0], bytes[1], bytes[2], bytes[3]].into()
            } else {
                bytes.into()
            };
            format!("{address}/{length}")
        };
        let (source, destination) = (prefix(self.source), prefix(self.destination));
        let direction = match self.direction {
            0 => "in",
            2 => "fwd",
            _ => "out",
        };
        format!("src {source} dst {destination} dir {direction}")
    }
}

/// Whether two prefixes have an address in common.
fn overlap(one: ([u8; 16], u8), other: IpAddr, other_length: u8) -> bool {
    let mut bytes = [0; 16];
    match other {
        IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => bytes = address.octets(),
    }
    let common = u32::from(one.1.min(other_length));
    let differing = (u128::from_be_bytes(one.0) ^ u128::from_be_bytes(bytes)).leading_zeros();
    differing >= common
}
