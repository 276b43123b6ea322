//! Routes: prefixes and where packets to them go, read from dumps and listings.
//!
//! Of a prefix that comes more than once, the smallest metric counts as in the kernel. Of equal ones the last counts, as a
//! replacement would; in listings of the kernel's the first, which is the one that it uses. [`Report`] counts all of them.

mod bird;
mod format;
mod frr;
mod ip;
mod ip_json;
mod mrt;
mod pfx2as;
mod plain;
mod report;
mod table;
mod target;
mod text;

use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;

use crate::budget::Budget;
use crate::enum_names::formats;
use crate::error::{Error, Fault};
use crate::source::Source;
use format::Importer;

pub use report::{Duplicates, LeftOut, Peer, Report};
pub use table::{NumberedRib, Route, Routes};
pub use target::{Hop, Target};

formats! { Format or UnknownFormat of "routes" by Importer:
    /// MRT `TABLE_DUMP` and `TABLE_DUMP_V2` (RFC 6396, RFC 8050): RouteViews, RIPE RIS, `dump routes` of daemons.
    Mrt = "mrt": mrt::IMPORTER,
    /// CAIDA's prefix-to-AS lists.
    Pfx2as = "pfx2as": pfx2as::IMPORTER,
    /// `ip route show`.
    IpRoute = "ip-route": ip::IMPORTER,
    /// `ip -json route show`.
    IpRouteJson = "ip-route-json": ip_json::IMPORTER,
    /// `birdc show route`.
    Bird = "bird": bird::IMPORTER,
    /// `vtysh -c 'show ip route json'`.
    FrrJson = "frr-json": frr::IMPORTER,
    /// A prefix a line, optionally with a next hop.
    Plain = "plain": plain::IMPORTER,
}

/// How to read.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which format; by content when none is named.
    pub format: Option<Format>,
    /// Whose paths to take of a dump that holds several.
    pub peer: PeerChoice,
    /// Which of several tables to take: a name or number as the source has it. The usual ones
    /// when none is named: main and local of `ip route`, master4 and master6 of BIRD.
    pub table: Option<String>,
}

/// Whose path is a prefix's route, of a dump with the paths of many peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerChoice {
    /// The shortest AS path, of equal ones the lowest origin (IGP, EGP, incomplete), of equal
    /// ones the first in the dump: RFC 4271, 9.1.2.2, a and b. Local preferences of different
    /// peers cannot be compared.
    #[default]
    ShortestPath,
    /// The peer with this address.
    Address(IpAddr),
    /// The peers of this AS; of several, by shortest path.
    As(u32),
}

/// Imported routes, and a report of the import.
#[derive(Debug)]
pub struct RouteImport {
    pub routes: Routes,
    pub report: Report,
}

/// Reads a file, packed by gzip or bzip2 or plain.
///
/// # Errors
/// The first thing that is not a route of the format, with its line or offset; reading.
pub fn open(path: &Path, options: &Options) -> Result<RouteImport, Error> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|cause| Fault::from(cause).of(&name))?;
    read(&name, file, options)
}

/// As [`open`], of content that `name` stands for in errors.
///
/// # Errors
/// As `open`.
pub fn read(name: &str, input: impl Read, options: &Options) -> Result<RouteImport, Error> {
    import(input, options, &Budget::new()).map_err(|fault| fault.of(name))
}

/// Reads what `ip -json` lists of each family, whose name no route has to say.
pub(crate) fn read_listings(
    name: &str,
    [v4, v6]: [&[u8]; 2],
    options: &Options,
) -> Result<RouteImport, Error> {
    let budget = Budget::new();
    let mut table = table::Builder::new(Format::IpRouteJson, &budget);
    for (listing, is_v6) in [(v4, false), (v6, true)] {
        budget.read(listing.len());
        // Of a family without routes some versions write nothing.
        if !listing.trim_ascii().is_empty() {
            let read = ip_json::read(listing, Some(is_v6), options.table.as_deref(), &mut table);
            read.map_err(|fault| fault.of(name))?;
        }
    }
    table.finish().map_err(|fault| fault.of(name))
}

fn import(input: impl Read, options: &Options, budget: &Budget) -> Result<RouteImport, Fault> {
    let source = Source::new(input, budget)?;
    let format = match options.format {
        Some(format) => format,
        None => format::detect(source.head())?,
    };
    let mut table = table::Builder::new(format, budget);
    (format.importer().read)(&mut source.content(), options, &mut table)?;
    table.finish()
}

#[cfg(test)]
mod tests;
