//! The tables of prefixes, which lie in the program's maps: the writer changes them in place.

use std::io;
use std::os::fd::AsFd;

use libbpf_rs::{MapCore as _, Object};
use lpm::{Fib4, Fib6, Layout4, Layout6, NextHop, Prefix4, Prefix6, Rib, Section};
use sys::huge::Region;

use super::entries::{CHUNK, chunks};
use super::{Error, Settings};
use crate::forward::Family;
use crate::image::ImageFile;
use crate::shape::Shape;

#[derive(Debug)]
pub(super) struct Tables {
    v4: Fib4,
    v6: Fib6,
}

/// Entries of the map of this name, if it is a table's.
pub(super) fn map_entries(shape: &Shape, map: &str) -> Option<u32> {
    let (family, name) = map.split_once('_')?;
    let sections = match family {
        "v4" => shape.sections4(),
        "v6" => shape.sections6(),
        _ => return None,
    };
    let section = sections.iter().find(|section| section.name == name)?;
    Some(chunks(section.bytes))
}

/// Bytes of the tables of no prefixes, which the kernel provides whole.
pub fn min_memory() -> usize {
    let shape = Shape::minimum(Layout4::Mixed);
    let sections = shape.sections4().into_iter().chain(shape.sections6());
    sections.map(|section| section.bytes).sum()
}

/// The layout that the program knows.
pub(super) fn layout4(settings: &Settings) -> Layout4 {
    match settings.layout4 {
        Layout4::Bytes => Layout4::Bytes,
        Layout4::Mixed | Layout4::Words => Layout4::Mixed,
    }
}

impl Tables {
    pub(super) fn build(
        shape: &Shape,
        (v4, v6): (Rib<u32>, Rib<u128>),
        image: Option<&ImageFile>,
        object: &Object,
    ) -> Result<Self, Error> {
        let (layout4, room4, room6) = (shape.layout4, &shape.room4, &shape.room6);
        let memory4 = &mut |section: &Section| mapped(object, "v4", section);
        let memory6 = &mut |section: &Section| mapped(object, "v6", section);
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

/// The map of a section, rounded up to the page that it is mapped by.
fn mapped(object: &Object, family: &str, section: &Section) -> io::Result<Region> {
    let name = format!("{family}_{}", section.name);
    let map = object.maps().find(|map| *map.name() == *name);
    let map = map.ok_or_else(|| io::Error::other(Error::Absent(name)))?;
    Region::shared(map.as_fd(), section.bytes.next_multiple_of(CHUNK))
}
