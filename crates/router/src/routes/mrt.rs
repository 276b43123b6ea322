//! MRT `TABLE_DUMP_V2`: RFC 6396 section 4.3, with additional paths as RFC 8050 has them; and its predecessor
//! `TABLE_DUMP`, section 4.2.

mod attributes;
mod cursor;
mod peers;

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::IpAddr;

use foldhash::fast::RandomState;
use lpm::{Prefix4, Prefix6};

use super::format::{Head, Importer};
use super::table::Builder;
use super::text::AnyPrefix;
use super::{Hop, PeerChoice, Target};
use crate::error::{Fault, Place};
use attributes::{Attributes, Path};
use cursor::{Cursor, RecordError};
use peers::Peers;

/// Time, type, subtype, length.
const HEADER: usize = 12;
/// No record is longer: 65535 paths of 4 KiB attributes would be 256 MiB, and no dump has them.
const MAX_RECORD_LEN: usize = 64 << 20;

const TABLE_DUMP: u16 = 12;
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
        12 | 13 => return Ok(true),
        16 | 17 => "an MRT log of BGP messages, not a table: give the RIB dump",
        _ => "an MRT record that is neither TABLE_DUMP nor TABLE_DUMP_V2: give a RIB dump",
    };
    Err(Fault::new(Place::File, refused))
}

pub(super) fn read(
    mut content: impl Read,
    choice: PeerChoice,
    table: &mut Builder<'_>,
) -> Result<(), Fault> {
    let mut dump = Dump {
        peers: Peers::new(choice, table.budget()),
        table,
        targets: HashMap::default(),
        open: None,
    };
    let mut header = [0; HEADER];
    let mut body = Vec::new();
    let mut offset = 0;
    loop {
        let reading = |cause| Fault::reading(Place::Byte(offset), cause);
        let got = fill(&mut content, &mut header).map_err(reading)?;
        if got == 0 {
            return dump.finish();
        }
        let short = |what: &str| Err(Fault::new(Place::Byte(offset), what));
        if got < HEADER {
            return short("cut off in the header of a record: fetch the file again");
        }
        let [.., a, b, c, d] = header;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > MAX_RECORD_LEN {
            return short(&format!(
                "a record of {length} bytes: this is no MRT, or it is damaged"
            ));
        }
        body.resize(length, 0);
        if fill(&mut content, &mut body).map_err(reading)? < length {
            return short("cut off in the middle of a record: fetch the file again");
        }
        let [_, _, _, _, a, b, c, d, ..] = header;
        let kind = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        dump.record(kind, &body, Place::Byte(offset))
            .map_err(|error| {
                let at = offset + (HEADER + error.at) as u64;
                Fault::new(Place::Byte(at), error.what)
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

struct Dump<'a, 'b> {
    table: &'a mut Builder<'b>,
    peers: Peers<'b>,
    /// Places of gateways among the table's targets.
    targets: HashMap<IpAddr, u32, RandomState>,
    /// Of a `TABLE_DUMP`, whose paths are records of their own: the prefix whose paths are being read.
    open: Option<Route>,
}

/// A prefix, and the best of its paths so far.
struct Route {
    prefix: AnyPrefix,
    best: Best,
    at: Place,
}

/// What a prefix's paths come to; a path comes with its peer's place.
#[derive(Clone, Copy)]
enum Best {
    Path(Path, u32),
    NotAsked,
    NoNextHop,
}

impl Best {
    fn improve(&mut self, other: Self) {
        *self = match (*self, other) {
            (Self::NotAsked, other) | (Self::NoNextHop, other @ Self::Path(..)) => other,
            (Self::Path(known, _), Self::Path(path, _)) if path.rank < known.rank => other,
            (known, _) => known,
        };
    }
}

impl Dump<'_, '_> {
    fn record(&mut self, kind: (u16, u16), body: &[u8], at: Place) -> Result<(), RecordError> {
        let body = Cursor::new(body);
        match kind {
            (TABLE_DUMP, 1) => self.path(body, false, 2, at),
            (TABLE_DUMP, 2) => self.path(body, true, 2, at),
            // No RFC has them: some collectors wrote AS numbers of 4 bytes so.
            (TABLE_DUMP, 3) => self.path(body, false, 4, at),
            (TABLE_DUMP, 4) => self.path(body, true, 4, at),
            (TABLE_DUMP_V2, 1) => self.peers.read_table(body),
            (TABLE_DUMP_V2, 2) => self.rib(body, false, false, at),
            (TABLE_DUMP_V2, 4) => self.rib(body, true, false, at),
            (TABLE_DUMP_V2, 8) => self.rib(body, false, true, at),
            (TABLE_DUMP_V2, 10) => self.rib(body, true, true, at),
            (TABLE_DUMP_V2, 3 | 5 | 9 | 11) => self.left_out("a multicast route", at),
            (TABLE_DUMP, _) | (TABLE_DUMP_V2, 6 | 12) => {
                self.left_out("a route that is neither IPv4 nor IPv6 unicast", at)
            }
            (TABLE_DUMP_V2, 7) => self.left_out("a table of places of peers", at),
            _ => self.left_out("a record that is no part of a table", at),
        }
    }

    fn left_out(&mut self, why: &str, at: Place) -> Result<(), RecordError> {
        self.table.leave_out(why, at);
        Ok(())
    }

    /// A record of `TABLE_DUMP`: one path. The paths of a prefix follow one another.
    fn path(
        &mut self,
        mut body: Cursor<'_>,
        v6: bool,
        as_bytes: usize,
        at: Place,
    ) -> Result<(), RecordError> {
        body.take(4, "view and sequence number")?;
        let address = body.take(if v6 { 16 } else { 4 }, "prefix")?;
        let length = body.u8("length of a prefix")?;
        check_length(&body, length, v6)?;
        let prefix = prefix(&body, address, length, v6)?;
        body.take(5, "status and time of a path")?;
        let peer = self.peers.read(&mut body, v6, as_bytes)?;
        let length = body.u16("length of attributes")?;
        let attributes = body.part(usize::from(length), "attributes")?;
        if body.remaining() > 0 {
            return Err(body.error("more bytes in a record than its path takes"));
        }
        let best = self
            .peers
            .best(peer, Attributes::new(attributes, as_bytes))?;
        match &mut self.open {
            Some(open) if open.prefix == prefix => {
                open.best.improve(best);
                Ok(())
            }
            _ => match self.open.replace(Route { prefix, best, at }) {
                Some(complete) => self.add(&complete).map_err(|what| body.error(&what)),
                None => Ok(()),
            },
        }
    }

    /// A record of `TABLE_DUMP_V2`: all paths of a prefix.
    fn rib(
        &mut self,
        mut body: Cursor<'_>,
        v6: bool,
        add_path: bool,
        at: Place,
    ) -> Result<(), RecordError> {
        let Some(peers) = self.peers.table() else {
            return Err(
                body.error("a route before the table of peers: the file's beginning is missing")
            );
        };
        body.take(4, "sequence number")?;
        let length = body.u8("length of a prefix")?;
        check_length(&body, length, v6)?;
        let address = body.take(usize::from(length.div_ceil(8)), "prefix")?;
        let prefix = prefix(&body, address, length, v6)?;
        let mut best = Best::NotAsked;
        for _ in 0..body.u16("number of paths")? {
            let index = usize::from(body.u16("peer of a path")?);
            let Some(peer) = peers.get(index).copied() else {
                return Err(body.error(&format!("peer {index} of {}", peers.len())));
            };
            body.take(4, "time of a path")?;
            if add_path {
                body.take(4, "path identifier")?;
            }
            let length = body.u16("length of attributes")?;
            let attributes = body.part(usize::from(length), "attributes")?;
            // AS numbers have 4 bytes in this kind of dump, whatever the peer spoke (RFC 6396, 4.3.4).
            best.improve(self.peers.best(peer, Attributes::new(attributes, 4))?);
        }
        if body.remaining() > 0 {
            return Err(body.error("more bytes in a record than its paths take"));
        }
        let route = Route { prefix, best, at };
        self.add(&route).map_err(|what| body.error(&what))
    }

    fn add(&mut self, route: &Route) -> Result<(), String> {
        let Route { prefix, best, at } = *route;
        match best {
            Best::Path(Path { next_hop, .. }, peer) => {
                let target = match self.targets.get(&next_hop) {
                    Some(target) => *target,
                    None => {
                        let hop = Target::Hops(vec![Hop::via(next_hop)]);
                        let target = self.table.target(hop)?;
                        self.targets.insert(next_hop, target);
                        target
                    }
                };
                self.table.add(prefix, 0, target, at)?;
                self.peers.count(peer);
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

    fn finish(mut self) -> Result<(), Fault> {
        if let Some(last) = self.open.take() {
            self.add(&last).map_err(|what| Fault::new(last.at, what))?;
        }
        self.table.peers = self.peers.finish()?;
        Ok(())
    }
}

fn check_length(body: &Cursor<'_>, length: u8, v6: bool) -> Result<(), RecordError> {
    let most = if v6 { 128 } else { 32 };
    if length <= most {
        return Ok(());
    }
    Err(body.error(&format!(
        "a prefix of {length} bits, where addresses have {most}"
    )))
}

/// Bits beyond the length are irrelevant (RFC 4271, 4.3).
fn prefix(body: &Cursor<'_>, bytes: &[u8], length: u8, v6: bool) -> Result<AnyPrefix, RecordError> {
    let mut address = [0; 16];
    address[..bytes.len()].copy_from_slice(bytes);
    let [a, b, c, d, ..] = address;
    let prefix = if v6 {
        Prefix6::containing(u128::from_be_bytes(address), length).map(AnyPrefix::V6)
    } else {
        Prefix4::containing(u32::from_be_bytes([a, b, c, d]), length).map(AnyPrefix::V4)
    };
    prefix.map_err(|error| body.error(&error.to_string()))
}
