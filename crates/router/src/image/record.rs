//! Routes, rules and texts as records of fixed length, and back, where any bytes may come.

use acl::{Action, Protocol};
use lpm::{NextHop, Prefix, Rib};

use crate::Place;
use crate::rules::{Note, NoteKind, Origin};

/// Bytes of the record of a route: address, next hop (2 bytes), length (1 byte), zeros.
pub(super) const ROUTE4: usize = 8;
pub(super) const ROUTE6: usize = 24;
/// Bytes of the record of a rule: source, destination, the lowest and the highest source port, those of
/// the destination, protocol and mask, lengths of source and destination, action, three zeros, origin.
pub(super) const RULE4: usize = 28;
pub(super) const RULE6: usize = 52;
/// Bytes of the record of a text: kind of place and kind of note (2 bytes each), length of the text
/// (4 bytes), number of the place, beginning of the text (8 bytes each).
pub(super) const TEXT: usize = 24;

/// An address as little-endian bytes.
pub(super) trait Wire: acl::Address {
    const BYTES: usize;
    fn put(self, into: &mut Vec<u8>);
    fn take(bytes: &[u8]) -> Option<Self>;
}

macro_rules! wire {
    ($int:ty) => {
        impl Wire for $int {
            const BYTES: usize = size_of::<$int>();

            fn put(self, into: &mut Vec<u8>) {
                into.extend(self.to_le_bytes());
            }

            fn take(bytes: &[u8]) -> Option<Self> {
                bytes.first_chunk().copied().map(Self::from_le_bytes)
            }
        }
    };
}

wire!(u32);
wire!(u128);

pub(super) fn routes<A: Wire>(rib: &Rib<A>, record: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(rib.len() * record);
    for (prefix, hop) in rib {
        let end = bytes.len() + record;
        prefix.first().put(&mut bytes);
        bytes.extend(hop.get().to_le_bytes());
        bytes.push(prefix.len());
        bytes.resize(end, 0);
    }
    bytes
}

/// The routes of records, of which the next hops must be among the first `hops`.
pub(super) fn read_routes<A: Wire>(
    bytes: &[u8],
    record: usize,
    hops: usize,
) -> Result<Rib<A>, &'static str> {
    let mut rib = Rib::new();
    for raw in records(bytes, record)? {
        let (address, rest) = raw.split_at(A::BYTES);
        let prefix = A::take(address).and_then(|first| Prefix::new(first, rest[2]).ok());
        let hop = NextHop::new(u16::from_le_bytes([rest[0], rest[1]]));
        let hop = hop.filter(|hop| usize::from(hop.get()) <= hops);
        let (Some(prefix), Some(hop)) = (prefix, hop) else {
            return Err("has a route that is none");
        };
        if rib.insert(prefix, hop).is_some() {
            return Err("has a route twice");
        }
    }
    Ok(rib)
}

pub(super) fn rules<A: Wire>(rules: &[acl::Rule<A>], record: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(rules.len() * record);
    for rule in rules {
        rule.source.first().put(&mut bytes);
        rule.destination.first().put(&mut bytes);
        for port in [
            rule.source_ports.start(),
            rule.source_ports.end(),
            rule.destination_ports.start(),
            rule.destination_ports.end(),
        ] {
            bytes.extend(port.to_le_bytes());
        }
        let Protocol { value, mask } = rule.protocol;
        let action = match rule.action {
            Action::Accept => 0,
            Action::Drop => 1,
            Action::Punt => 2,
        };
        let lengths = (rule.source.len(), rule.destination.len());
        bytes.extend([value, mask, lengths.0, lengths.1, action, 0, 0, 0]);
        bytes.extend(rule.id.to_le_bytes());
    }
    bytes
}

/// The rules of records, whose origins must be among the first `origins`.
pub(super) fn read_rules<A: Wire>(
    bytes: &[u8],
    record: usize,
    origins: usize,
) -> Result<Vec<acl::Rule<A>>, &'static str> {
    let rule = |raw: &[u8]| rule::<A>(raw, origins).ok_or("has a rule that is none");
    records(bytes, record)?.map(rule).collect()
}

fn rule<A: Wire>(raw: &[u8], origins: usize) -> Option<acl::Rule<A>> {
    let (source, rest) = raw.split_at(A::BYTES);
    let (destination, rest) = rest.split_at(A::BYTES);
    let prefix = |bytes: &[u8], length: u8| Prefix::new(A::take(bytes)?, length).ok();
    let port = |at: usize| u16::from_le_bytes([rest[at], rest[at + 1]]);
    let action = match rest[12] {
        0 => Action::Accept,
        1 => Action::Drop,
        2 => Action::Punt,
        _ => return None,
    };
    let id = u32::take(&rest[16..])?;
    Some(acl::Rule {
        source: prefix(source, rest[10])?,
        destination: prefix(destination, rest[11])?,
        source_ports: port(0)..=port(2),
        destination_ports: port(4)..=port(6),
        protocol: Protocol {
            value: rest[8],
            mask: rest[9],
        },
        action,
        id: Some(id).filter(|id| (*id as usize) < origins)?,
    })
}

/// Texts with their places: records, and the section that they name parts of.
#[derive(Debug, Default)]
pub(super) struct Texts {
    pub(super) text: Vec<u8>,
}

impl Texts {
    pub(super) fn origins(&mut self, origins: &[Origin]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(origins.len() * TEXT);
        for origin in origins {
            self.put(&mut bytes, origin.place, 0, &origin.text);
        }
        bytes
    }

    pub(super) fn notes(&mut self, notes: &[Note]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(notes.len() * TEXT);
        for note in notes {
            let kind = match note.kind {
                NoteKind::Punted => 0,
                NoteKind::Undone => 1,
                NoteKind::LeftOut => 2,
            };
            self.put(&mut bytes, note.place, kind, &note.what);
        }
        bytes
    }

    fn put(&mut self, into: &mut Vec<u8>, place: Place, kind: u16, text: &str) {
        let (place, number) = match place {
            Place::Line(number) => (0_u16, number),
            Place::Byte(number) => (1, number),
            Place::Entry(number) => (2, number),
            Place::File => (3, 0),
        };
        into.extend(place.to_le_bytes());
        into.extend(kind.to_le_bytes());
        // No line that is read is longer than 1 MiB.
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        into.extend(length.to_le_bytes());
        into.extend(number.to_le_bytes());
        into.extend((self.text.len() as u64).to_le_bytes());
        self.text.extend(&text.as_bytes()[..length as usize]);
    }
}

/// A text that records name.
struct Read<'a> {
    place: Place,
    kind: u16,
    text: &'a str,
}

pub(super) fn read_origins(bytes: &[u8], text: &[u8]) -> Result<Vec<Origin>, &'static str> {
    let origin = |read: Read<'_>| {
        let Read { place, text, .. } = read;
        let text = text.into();
        Ok(Origin { place, text })
    };
    texts(bytes, text)?
        .map(|read| read.and_then(origin))
        .collect()
}

pub(super) fn read_notes(bytes: &[u8], text: &[u8]) -> Result<Vec<Note>, &'static str> {
    let note = |read: Read<'_>| {
        let kind = match read.kind {
            0 => NoteKind::Punted,
            1 => NoteKind::Undone,
            2 => NoteKind::LeftOut,
            _ => return Err("has a note of no kind"),
        };
        Ok(Note {
            place: read.place,
            kind,
            what: read.text.to_owned(),
        })
    };
    texts(bytes, text)?
        .map(|read| read.and_then(note))
        .collect()
}

fn texts<'a>(
    bytes: &'a [u8],
    text: &'a [u8],
) -> Result<impl Iterator<Item = Result<Read<'a>, &'static str>>, &'static str> {
    let read = move |raw: &[u8]| read_text(raw, text).ok_or("has a text that is none");
    Ok(records(bytes, TEXT)?.map(read))
}

fn read_text<'a>(raw: &[u8], text: &'a [u8]) -> Option<Read<'a>> {
    let short = |at: usize| u16::from_le_bytes([raw[at], raw[at + 1]]);
    let long = |at: usize| raw[at..].first_chunk().copied().map(u64::from_le_bytes);
    let number = long(8)?;
    let place = match short(0) {
        0 => Place::Line(number),
        1 => Place::Byte(number),
        2 => Place::Entry(number),
        3 => Place::File,
        _ => return None,
    };
    let start = usize::try_from(long(16)?).ok()?;
    let end = start.checked_add(u32::take(&raw[4..])? as usize)?;
    Some(Read {
        place,
        kind: short(2),
        text: std::str::from_utf8(text.get(start..end)?).ok()?,
    })
}

fn records(
    bytes: &[u8],
    record: usize,
) -> Result<impl Iterator<Item = &[u8]> + use<'_>, &'static str> {
    if !bytes.len().is_multiple_of(record) {
        return Err("ends within a record");
    }
    Ok(bytes.chunks_exact(record))
}
