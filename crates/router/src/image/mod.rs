//! The table image: everything a router starts with, in one file of plain arrays that can be mapped.
//! Arrays for lookup are restored as they are; a classifier is made again from the rules, because its
//! lookups trust its references.

mod arrays;
mod changes;
mod container;
mod error;
mod image_file;
mod record;
mod save;

use std::path::Path;

use lpm::{Fib4, Fib6, Layout4, Layout6};
use serde::{Deserialize, Serialize};

use crate::routes::{Routes, Target};
use crate::rules::RuleSet;

pub use arrays::SectionSize;
pub use changes::{Change, Changes, changes};
pub use error::Error;
pub use image_file::{ImageFile, Routes as ImageRoutes};

/// What a router starts with.
#[derive(Debug)]
pub struct Image {
    /// Where routes and rules came from.
    pub sources: Vec<SourceFile>,
    /// None: the image has rules alone, and routing is not decided by it.
    pub tables: Option<Tables>,
    /// None: the image has routes alone, and nothing is filtered.
    pub rules: Option<RuleSet>,
}

/// A source of routes or rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    pub kind: Kind,
    /// A file's name as it was given.
    pub name: String,
    /// What became of it, a line each.
    pub report: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Routes,
    Rules,
}

/// Routes made into tables for lookup.
#[derive(Debug)]
pub struct Tables {
    pub layout4: Layout4,
    pub fib4: Fib4,
    pub fib6: Fib6,
    /// What the next hops 1, 2, ... of IPv4 stand for.
    pub hops4: Vec<Target>,
    pub hops6: Vec<Target>,
}

/// Where counters lie: packets and bytes (8 bytes each) of every rule of IPv4, of IPv4 packets that no
/// rule matches, of every rule of IPv6, of such IPv6 packets, and of the verdicts accept, drop and punt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterLayout {
    pub rules4: u32,
    pub rules6: u32,
}

impl Tables {
    /// The tables of these routes; without `layout`, what holds their next hops in the least memory that
    /// is fast for most of the routes.
    ///
    /// # Errors
    /// More next hops than the layout, or any, holds; no memory.
    pub fn build(routes: &Routes, layout: Option<Layout4>) -> Result<Self, Error> {
        let (v4, v6) = (routes.numbered4()?, routes.numbered6()?);
        let hops = |places: &[u32]| -> Vec<Target> {
            let target = |place: &u32| routes.targets[*place as usize].clone();
            places.iter().map(target).collect()
        };
        let (hops4, hops6) = (hops(&v4.targets), hops(&v6.targets));
        let layout4 = layout.unwrap_or_else(|| usual_layout(&v4.rib, hops4.len()));
        if hops4.len() > usize::from(layout4.limit()) {
            let hops = hops4.len();
            return Err(Error::Bytes { hops });
        }
        Ok(Self {
            layout4,
            fib4: Fib4::build(v4.rib, layout4)?,
            fib6: Fib6::build(v6.rib, Layout6::Paged)?,
            hops4,
            hops6,
        })
    }

    /// Routes of both families.
    pub fn len(&self) -> usize {
        self.fib4.rib().len() + self.fib6.rib().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Bytes while they hold all next hops; then a byte for the 254 most used if these have nine of ten
/// routes, else two for all.
fn usual_layout(rib: &lpm::Rib<u32>, hops: usize) -> Layout4 {
    let byte = usize::from(Layout4::Bytes.limit());
    if hops <= byte {
        return Layout4::Bytes;
    }
    let low = |(_, hop): &(_, lpm::NextHop)| usize::from(hop.get()) <= byte;
    if rib.iter().filter(low).count() * 10 >= rib.len() * 9 {
        Layout4::Mixed
    } else {
        Layout4::Words
    }
}

impl Image {
    /// Reads a file that [`Image::save`] wrote.
    ///
    /// # Errors
    /// A file that is no image, one of another version, one that is not as it was written; reading.
    pub fn open(path: &Path) -> Result<Self, Error> {
        ImageFile::open(path)?.image()
    }

    /// The sections of a file and their lengths, without making tables of them.
    ///
    /// # Errors
    /// As `open`.
    pub fn sections(path: &Path) -> Result<Vec<SectionSize>, Error> {
        Ok(ImageFile::open(path)?.sections())
    }

    /// Writes the image to a file, which is then either as it was or whole; returns its length.
    ///
    /// # Errors
    /// Writing.
    pub fn save(&self, path: &Path) -> Result<u64, Error> {
        let sections = arrays::sections(self);
        save::save(path, |file| container::write(file, &sections)).map_err(|cause| Error::Write {
            file: path.display().to_string(),
            cause,
        })
    }

    /// The name that the rules' file was given by.
    pub fn rules_name(&self) -> &str {
        let rules = self
            .sources
            .iter()
            .find(|source| source.kind == Kind::Rules);
        rules.map_or("rules", |rules| &rules.name)
    }

    /// Where a rule's counters lie.
    pub fn counters(&self) -> CounterLayout {
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let rules = self.rules.as_ref();
        CounterLayout {
            rules4: rules.map_or(0, |rules| count(rules.v4.len())),
            rules6: rules.map_or(0, |rules| count(rules.v6.len())),
        }
    }
}

impl CounterLayout {
    /// Of a rule of IPv4; of packets that none matches, with the number after the last.
    pub fn of4(&self, rule: u32) -> u32 {
        rule
    }

    /// As `of4`.
    pub fn of6(&self, rule: u32) -> u32 {
        self.rules4 + 1 + rule
    }

    pub fn of(&self, verdict: acl::Action) -> u32 {
        self.of6(self.rules6)
            + match verdict {
                acl::Action::Accept => 1,
                acl::Action::Drop => 2,
                acl::Action::Punt => 3,
            }
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.of(acl::Action::Punt) + 1
    }
}
