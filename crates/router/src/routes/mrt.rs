//! MRT `TABLE_DUMP_V2`: RFC 6396 section 4.3, with additional paths as RFC 8050 has them.

mod attributes;
mod cursor;

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use foldhash::fast::RandomState;
use lpm::{Prefix4, Prefix6};

use super::format::{Head, Importer};
use super::table::Builder;
use super::text::AnyPrefix;
use super::{Hop, Peer, PeerChoice, Target};
use crate::error::{Fault, Place};
use attributes::{Attributes, Path};
use cursor::{Broken, Cursor};

/// Time, type, subtype, length.
const HEADER: usize = 12;
/// No record is longer: 65535 paths of 4 KiB attributes would be 256 MiB, and no dump has them.
const LONGEST: usize = 64 << 20;

const TABLE_DUMP_V2: u16 = 13;

pub(super) const IMPORTER: Importer = Importer {
    recognizes,
    read: |content, options, table| read(content, options.peer, table),
};

fn recognizes(head: &Head<'_>) -> Result<bool, Fault> {
    // Time, type, subtype, length: no text has zero bytes.
    let [_, _, _, _, 0, kind, 0, _, ..] = head.bytes else {
        return Ok(false);
    };
    let refused = match kind {
        12 => "an MRT TABLE_DUMP, which has no 4-byte AS numbers: convert it to TABLE_DUMP_V2",
        13 => return Ok(true),
        16 | 17 => "an MRT log of BGP messages, not a table: give the RIB dump",
        _ => "an MRT record that is no TABLE_DUMP_V2",
    };
    Err(Fault::new(Place::File, refused))
}

pub(super) fn read(
    mut content: impl Read,
    choice: PeerChoice,
    table: &mut Builder,
) -> Result<(), Fault> {
    let mut dump = Dump {
        choice,
        table,
        peers: None,
        targets: HashMap::default(),
    };
    let mut header = [0; HEADER];
    let mut body = Vec::new();
    let mut offset = 0;
    loop {
        let got = fill(&mut content, &mut header)?;
        if got == 0 {
            return dump.finish();
        }
        let short = |what: &str| Err(Fault::new(Place::Byte(offset), what));
        if got < HEADER {
            return short("cut off in the header of a record: fetch the file again");
        }
        let [.., a, b, c, d] = header;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > LONGEST {
            return short(&format!(
                "a record of {length} bytes: this is no MRT, or it is damaged"
            ));
        }
        body.resize(length, 0);
        if fill(&mut content, &mut body)? < length {
            return short("cut off in the middle of a record: fetch the file again");
        }
        let [_, _, _, _, a, b, c, d, ..] = header;
        let kind = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        dump.record(kind, &body, Place::Byte(offset))
            .map_err(|broken| {
                let at = offset + (HEADER + broken.at) as u64;
                Fault::new(Place::Byte(at), broken.what)
            })?;
        offset += (HEADER + length) as u64;
    }
}

/// As many bytes as there are, up to all of `buffer`.
fn fill(content: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match content.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

struct Dump<'a> {
    choice: PeerChoice,
    table: &'a mut Builder,
    peers: Option<Vec<Peer>>,
    /// Places of gateways among the table's targets.
    targets: HashMap<IpAddr, u32, RandomState>,
}

impl Dump<'_> {
    fn record(&mut self, kind: (u16, u16), body: &[u8], at: Place) -> Result<(), Broken> {
        let body = Cursor::new(body);
        match kind {
            (TABLE_DUMP_V2, 1) => self.peer_table(body),
            (TABLE_DUMP_V2, 2) => self.rib(body, false, false, at),
            (TABLE_DUMP_V2, 4) => self.rib(body, true, false, at),
            (TABLE_DUMP_V2, 8) => self.rib(body, false, true, at),
            (TABLE_DUMP_V2, 10) => self.rib(body, true, true, at),
            (TABLE_DUMP_V2, 3 | 5 | 9 | 11) => self.left_out("a multicast route", at),
            (TABLE_DUMP_V2, 6 | 12) => {
                self.left_out("a route that is neither IPv4 nor IPv6 unicast", at)
            }
            (TABLE_DUMP_V2, 7) => self.left_out("a table of places of peers", at),
            _ => self.left_out("a record that is no part of a table", at),
        }
    }

    fn left_out(&mut self, why: &str, at: Place) -> Result<(), Broken> {
        self.table.leave_out(why, at);
        Ok(())
    }

    fn peer_table(&mut self, mut body: Cursor<'_>) -> Result<(), Broken> {
        if self.peers.is_some() {
            return Err(body.broken("a second table of peers: give one dump at a time"));
        }
        body.take(4, "collector")?;
        let name = body.u16("length of the view's name")?;
        body.take(usize::from(name), "name of the view")?;
        let count = body.u16("number of peers")?;
        let mut peers = Vec::with_capacity(usize::from(count).min(body.left()));
        for _ in 0..count {
            peers.push(peer(&mut body)?);
        }
        self.peers = Some(peers);
        self.check_choice(&body)
    }

    fn check_choice(&self, body: &Cursor<'_>) -> Result<(), Broken> {
        let peers = self.peers.as_deref().unwrap_or_default();
        if peers.iter().any(|peer| self.wanted(peer)) || peers.is_empty() {
            return Ok(());
        }
        let some: Vec<String> = peers.iter().take(8).map(name).collect();
        let more = if peers.len() > 8 { ", ..." } else { "" };
        let some = some.join(", ");
        Err(body.broken(&format!(
            "no such peer in the dump; its peers: {some}{more}"
        )))
    }

    fn wanted(&self, peer: &Peer) -> bool {
        match self.choice {
            PeerChoice::ShortestPath => true,
            PeerChoice::Address(address) => peer.address == address,
            PeerChoice::As(autonomous_system) => peer.autonomous_system == autonomous_system,
        }
    }

    fn rib(
        &mut self,
        mut body: Cursor<'_>,
        v6: bool,
        add_path: bool,
        at: Place,
    ) -> Result<(), Broken> {
        let Some(peers) = self.peers.take() else {
            return Err(
                body.broken("a route before the table of peers: the file's beginning is missing")
            );
        };
        let best = self.best(&mut body, &peers, v6, add_path);
        self.peers = Some(peers);
        let (prefix, best) = best?;
        match best {
            Best::Path(Path { next_hop, .. }, peer) => {
                let Self { targets, table, .. } = self;
                let target = *targets
                    .entry(next_hop)
                    .or_insert_with(|| table.target(Target::Hops(vec![Hop::via(next_hop)])));
                table.add(prefix, 0, target, at);
                if let Some(peer) = self.peers.as_mut().and_then(|peers| peers.get_mut(peer)) {
                    peer.taken += 1;
                }
            }
            Best::NotAsked => self
                .table
                .leave_out("a prefix without a path of the peer asked for", at),
            Best::NoNextHop => self
                .table
                .leave_out("a prefix without a next hop in any path", at),
        }
        Ok(())
    }

    /// The prefix of a record, and the best of its paths.
    fn best(
        &self,
        body: &mut Cursor<'_>,
        peers: &[Peer],
        v6: bool,
        add_path: bool,
    ) -> Result<(AnyPrefix, Best), Broken> {
        body.take(4, "sequence number")?;
        let prefix = prefix(body, v6)?;
        let mut best = Best::NotAsked;
        for _ in 0..body.u16("number of paths")? {
            let index = usize::from(body.u16("peer of a path")?);
            let Some(peer) = peers.get(index) else {
                let count = peers.len();
                return Err(body.broken(&format!("peer {index} of {count}")));
            };
            body.take(4, "time of a path")?;
            if add_path {
                body.take(4, "path identifier")?;
            }
            let length = body.u16("length of attributes")?;
            let attributes = body.part(usize::from(length), "attributes")?;
            if !self.wanted(peer) {
                continue;
            }
            best = match (best, Attributes::new(attributes).path()?) {
                (Best::NotAsked, None) => Best::NoNextHop,
                (Best::NotAsked | Best::NoNextHop, Some(path)) => Best::Path(path, index),
                (Best::Path(known, _), Some(path)) if path.rank < known.rank => {
                    Best::Path(path, index)
                }
                (known, _) => known,
            };
        }
        if body.left() > 0 {
            return Err(body.broken("more bytes in a record than its paths take"));
        }
        Ok((prefix, best))
    }

    fn finish(self) -> Result<(), Fault> {
        let Some(peers) = self.peers else {
            return Err(Fault::new(
                Place::File,
                "no table of peers: this is no RIB dump",
            ));
        };
        self.table.peers = peers;
        Ok(())
    }
}

/// What a record's paths come to; a path comes with its peer's place.
enum Best {
    Path(Path, usize),
    NotAsked,
    NoNextHop,
}

fn peer(body: &mut Cursor<'_>) -> Result<Peer, Broken> {
    let kind = body.u8("type of a peer")?;
    body.take(4, "identifier of a peer")?;
    let address = if kind & 1 == 0 {
        IpAddr::V4(Ipv4Addr::from(body.array::<4>("address of a peer")?))
    } else {
        IpAddr::V6(Ipv6Addr::from(body.array::<16>("address of a peer")?))
    };
    let autonomous_system = if kind & 2 == 0 {
        u32::from(body.u16("AS of a peer")?)
    } else {
        u32::from_be_bytes(body.array("AS of a peer")?)
    };
    Ok(Peer {
        address,
        autonomous_system,
        taken: 0,
    })
}

fn name(peer: &Peer) -> String {
    format!("{} (AS {})", peer.address, peer.autonomous_system)
}

/// Bits beyond the length are irrelevant (RFC 4271, 4.3).
fn prefix(body: &mut Cursor<'_>, v6: bool) -> Result<AnyPrefix, Broken> {
    let length = body.u8("length of a prefix")?;
    let most = if v6 { 128 } else { 32 };
    if length > most {
        return Err(body.broken(&format!(
            "a prefix of {length} bits, where addresses have {most}"
        )));
    }
    let bytes = body.take(usize::from(length.div_ceil(8)), "prefix")?;
    let mut address = [0; 16];
    address[..bytes.len()].copy_from_slice(bytes);
    let [a, b, c, d, ..] = address;
    let prefix = if v6 {
        Prefix6::containing(u128::from_be_bytes(address), length).map(AnyPrefix::V6)
    } else {
        Prefix4::containing(u32::from_be_bytes([a, b, c, d]), length).map(AnyPrefix::V4)
    };
    prefix.map_err(|error| body.broken(&error.to_string()))
}
