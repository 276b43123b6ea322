//! Writes MRT `TABLE_DUMP_V2`, as collectors do.

use std::io::{self, Write};
use std::net::IpAddr;

pub(crate) struct Dump<W> {
    out: W,
    sequence: u32,
}

/// A record of the older `TABLE_DUMP`: one path of a prefix, with AS numbers of two bytes.
pub(crate) fn old_path(
    out: &mut impl Write,
    (network, bits): (IpAddr, u8),
    peer: (IpAddr, u16),
    path: &Path<'_>,
) -> io::Result<()> {
    let mut body = vec![0, 0, 0, 1];
    body.extend(octets(network));
    body.extend([bits, 1, 0x66, 0, 0, 0]);
    body.extend(octets(peer.0));
    body.extend(peer.1.to_be_bytes());
    let attributes = attributes(path, 2);
    body.extend(length(attributes.len()));
    body.extend(attributes);
    let subtype = if network.is_ipv6() { 2 } else { 1 };
    record_of(out, 12, subtype, &body)
}

/// A path of a route: who told it, through which ASes, to which next hop.
pub(crate) struct Path<'a> {
    pub(crate) peer: u16,
    pub(crate) ases: &'a [u32],
    pub(crate) next_hop: IpAddr,
}

impl<W: Write> Dump<W> {
    /// Begins with the table of peers: address and AS.
    pub(crate) fn new(out: W, peers: &[(IpAddr, u32)]) -> io::Result<Self> {
        let mut dump = Self { out, sequence: 0 };
        dump.peers(peers)?;
        Ok(dump)
    }

    /// The table of peers for the routes that follow.
    pub(crate) fn peers(&mut self, peers: &[(IpAddr, u32)]) -> io::Result<()> {
        let mut body = vec![192, 0, 2, 1, 0, 4];
        body.extend(b"view");
        body.extend(length(peers.len()));
        for (address, autonomous_system) in peers {
            body.push(2 | u8::from(address.is_ipv6()));
            body.extend([10, 0, 0, 1]);
            body.extend(octets(*address));
            body.extend(autonomous_system.to_be_bytes());
        }
        record(&mut self.out, 1, &body)
    }

    /// `add_path` writes path identifiers, as RFC 8050 has them.
    pub(crate) fn route(
        &mut self,
        network: IpAddr,
        bits: u8,
        paths: &[Path<'_>],
        add_path: bool,
    ) -> io::Result<()> {
        let mut body = self.sequence.to_be_bytes().to_vec();
        self.sequence += 1;
        body.push(bits);
        body.extend(&octets(network)[..usize::from(bits.div_ceil(8))]);
        body.extend(length(paths.len()));
        for (identifier, path) in (1_u32..).zip(paths) {
            body.extend(path.peer.to_be_bytes());
            body.extend([0x66, 0, 0, 0]);
            if add_path {
                body.extend(identifier.to_be_bytes());
            }
            let attributes = attributes(path, 4);
            body.extend(length(attributes.len()));
            body.extend(attributes);
        }
        let kind = if network.is_ipv6() { 4 } else { 2 };
        record(&mut self.out, kind + if add_path { 6 } else { 0 }, &body)
    }
}

fn attributes(path: &Path<'_>, as_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0x40, 1, 1, 0];
    let ases: Vec<u8> = path
        .ases
        .iter()
        .flat_map(|number| number.to_be_bytes()[4 - as_bytes..].to_vec())
        .collect();
    bytes.extend([0x50, 2]);
    bytes.extend(length(ases.len() + 2));
    bytes.extend([2, u8::try_from(path.ases.len()).unwrap()]);
    bytes.extend(ases);
    let hop = octets(path.next_hop);
    if path.next_hop.is_ipv6() {
        bytes.extend([0x80, 14, 17, 16]);
    } else {
        bytes.extend([0x40, 3, 4]);
    }
    bytes.extend(hop);
    bytes
}

pub(crate) fn record(out: &mut impl Write, subtype: u16, body: &[u8]) -> io::Result<()> {
    record_of(out, 13, subtype, body)
}

fn record_of(out: &mut impl Write, kind: u8, subtype: u16, body: &[u8]) -> io::Result<()> {
    out.write_all(&[0x66, 0, 0, 0, 0, kind])?;
    out.write_all(&subtype.to_be_bytes())?;
    out.write_all(&u32::try_from(body.len()).unwrap().to_be_bytes())?;
    out.write_all(body)
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn length(count: usize) -> [u8; 2] {
    u16::try_from(count).unwrap().to_be_bytes()
}
