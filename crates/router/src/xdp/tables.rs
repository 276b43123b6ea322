//! The tables of prefixes, which lie in the program's maps: the writer changes them in place.

use std::io;
use std::os::fd::AsFd;

use lpm::{Fib4, Fib6, Layout4, Layout6, NextHop, Prefix4, Prefix6, Rib, Room4, Room6, Section};
use sys::huge::Region;

use super::layout::{CHUNK, chunks};
use super::object::Loaded;
use super::{Error, Settings};
use crate::forward::Family;
use crate::image::Stored;

/// Room for prefixes longer than /24 in any case: /24s, and /16s that they are in. 2 and 1 MiB.
const LEAST4: [usize; 2] = [1 << 12, 1 << 10];
/// Room for IPv6 prefixes in any case: pages, cells, lines, steps; 4 MiB, 256 KiB, 2 MiB, 1 MiB.
const LEAST6: [usize; 4] = [1 << 8, 1 << 16, 1 << 15, 1 << 16];

/// How large the tables are.
#[derive(Debug)]
pub(super) struct Shape {
    layout4: Layout4,
    room4: Room4,
    room6: Room6,
}

#[derive(Debug)]
pub(super) struct Tables {
    v4: Fib4,
    v6: Fib6,
}

impl Shape {
    pub(super) fn of(settings: &Settings, v4: &Rib<u32>, v6: &Rib<u128>) -> Result<Self, Error> {
        let room4 = Room4::of(v4, settings.growth);
        let [groups, pages] = LEAST4;
        Ok(Self {
            layout4: match settings.layout4 {
                Layout4::Bytes => Layout4::Bytes,
                Layout4::Mixed | Layout4::Words => Layout4::Mixed,
            },
            room4: Room4::new(
                room4.group_count().max(groups),
                room4.page_count().max(pages),
            ),
            room6: at_least(&Room6::of(v6, settings.growth)?),
        })
    }

    /// Entries of the map of this name, if it is a table's.
    pub(super) fn chunks(&self, map: &str) -> Option<u32> {
        let (family, name) = map.split_once('_')?;
        let sections = match family {
            "v4" => self.room4.sections(self.layout4),
            "v6" => self.room6.sections(Layout6::Paged),
            _ => return None,
        };
        let section = sections.iter().find(|section| section.name == name)?;
        Some(chunks(section.bytes))
    }
}

/// Bytes of the tables of no prefixes, which the kernel provides whole.
pub fn least_memory() -> usize {
    let [groups, pages] = LEAST4;
    let v4 = Room4::new(groups, pages).sections(Layout4::Mixed);
    let [pages, cells, lines, steps] = LEAST6;
    let v6 = Room6::new(pages, cells, lines, steps).sections(Layout6::Paged);
    v4.iter().chain(&v6).map(|section| section.bytes).sum()
}

impl Tables {
    pub(super) fn build(
        shape: &Shape,
        (v4, v6): (Rib<u32>, Rib<u128>),
        image: Option<&Stored>,
        loaded: &Loaded,
    ) -> Result<Self, Error> {
        let (layout4, room4, room6) = (shape.layout4, &shape.room4, &shape.room6);
        let memory4 = &mut |section: &Section| mapped(loaded, "v4", section);
        let memory6 = &mut |section: &Section| mapped(loaded, "v6", section);
        let (mut v4, mut v6) = if let Some(image) = image {
            let arrays4 = |name: &str| image.array(Family::V4, name);
            let arrays6 = |name: &str| image.array(Family::V6, name);
            (
                Fib4::restore(v4, layout4, room4, memory4, &arrays4)?,
                Fib6::restore(v6, Layout6::Paged, room6, memory6, &arrays6)?,
            )
        } else {
            (
                Fib4::build_in(v4, layout4, room4, memory4)?,
                Fib6::build_in(v6, Layout6::Paged, room6, memory6)?,
            )
        };
        v4.set_grace(super::wait_or_sleep);
        v6.set_grace(super::wait_or_sleep);
        Ok(Self { v4, v6 })
    }

    pub(super) fn route4(&mut self, prefix: Prefix4, hop: Option<NextHop>) -> Result<(), Error> {
        match hop {
            Some(hop) => self.v4.insert(prefix, hop)?,
            None => self.v4.remove(prefix),
        };
        Ok(())
    }

    pub(super) fn route6(&mut self, prefix: Prefix6, hop: Option<NextHop>) -> Result<(), Error> {
        match hop {
            Some(hop) => self.v6.insert(prefix, hop)?,
            None => self.v6.remove(prefix)?,
        };
        Ok(())
    }

    pub(super) fn ribs(&self) -> (&Rib<u32>, &Rib<u128>) {
        (self.v4.rib(), self.v6.rib())
    }
}

fn at_least(room: &Room6) -> Room6 {
    let sections = room.sections(Layout6::Paged);
    let of = |name, size, least: usize| {
        let section = sections.iter().find(|section| section.name == name);
        section.map_or(least, |section| least.max(section.bytes / size))
    };
    let [pages, cells, lines, steps] = LEAST6;
    Room6::new(
        of("pages", 1 << 14, pages),
        of("cells", 4, cells),
        of("lines", 64, lines),
        of("steps", 16, steps),
    )
}

/// The map of a section, rounded up to the page that it is mapped by.
fn mapped(loaded: &Loaded, family: &str, section: &Section) -> io::Result<Region> {
    let map = loaded
        .map(&format!("{family}_{}", section.name))
        .map_err(io::Error::other)?;
    Region::shared(map.as_fd(), section.bytes.next_multiple_of(CHUNK))
}
