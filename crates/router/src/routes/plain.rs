//! Lists: a prefix a line, then, if the list has any, a next hop: an address, a device, or both.
//! Several next hops of a line are ECMP. `blackhole`, `unreachable` and `prohibit` take a next hop's place. `#` begins a
//! comment.

use std::io::BufRead;
use std::net::IpAddr;

use super::format::Importer;
use super::table::Builder;
use super::{Hop, Target, text};
use crate::error::{Fault, Place};
use crate::lines::Lines;

pub(super) const IMPORTER: Importer = Importer {
    // Whatever has words and is of no other format.
    recognizes: |head| Ok(!head.words.is_empty()),
    read: |content, _, table| read(content, table),
};

pub(super) fn read(content: impl BufRead, table: &mut Builder<'_>) -> Result<(), Fault> {
    let mut lines = Lines::new(content);
    while let Some((number, line)) = lines.next()? {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line
            .split([' ', '\t', ',', ';'])
            .filter(|word| !word.is_empty());
        let Some(first) = words.next() else { continue };
        let prefix = text::prefix(first).map_err(|what| Fault::line(number, what))?;
        let target = target(words).map_err(|what| Fault::line(number, what))?;
        table
            .route(prefix, 0, target, Place::Line(number))
            .map_err(|exhausted| Fault::line(number, exhausted))?;
    }
    Ok(())
}

fn target<'a>(words: impl Iterator<Item = &'a str>) -> Result<Target, String> {
    let mut hops: Vec<Hop> = Vec::new();
    for word in words {
        match (word.parse::<IpAddr>(), word) {
            (Ok(gateway), _) => hops.push(Hop::via(gateway)),
            (_, "via" | "dev") => {}
            (_, "blackhole" | "drop") => return Ok(Target::Blackhole),
            (_, "unreachable") => return Ok(Target::Unreachable),
            (_, "prohibit") => return Ok(Target::Prohibit),
            (_, name) if is_interface(name) => match hops.last_mut() {
                Some(hop) if hop.interface.is_none() => hop.interface = Some(name.into()),
                _ => hops.push(Hop {
                    gateway: None,
                    interface: Some(name.into()),
                    weight: 1,
                }),
            },
            _ => {
                return Err(format!(
                    "{word:?} is no next hop: write an address or a device"
                ));
            }
        }
    }
    if hops.is_empty() {
        return Ok(Target::Unspecified);
    }
    Ok(Target::Hops(hops))
}

/// Names of devices are up to 15 bytes; one that begins as a number does is a mistyped address.
fn is_interface(name: &str) -> bool {
    let begins = name.starts_with(|first: char| first.is_ascii_alphabetic());
    begins && name.len() <= 15 && !name.contains(['/', ':'])
}
