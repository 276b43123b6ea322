//! Where the arrays of a table lie, in the process's own memory or in memory that others provide and
//! read, and their content as bytes. What the arrays mean is decided by the tables.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use sys::huge::{Array, Region, Shared};

use crate::Error;

/// One array of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name among the arrays of its table.
    pub name: &'static str,
    /// Its length.
    pub bytes: usize,
    /// Whether lookups go all over it, so that large pages are worth it.
    pub huge: bool,
}

/// Gives each array its memory, which has to be zeroed: at least [`Section::bytes`].
pub type Provider<'a> = dyn FnMut(&Section) -> io::Result<Region> + 'a;

/// Finds the content of an array by its name.
pub type Contents<'a> = dyn Fn(&str) -> Option<&'a [u8]> + 'a;

impl Section {
    pub(crate) fn of<T>(name: &'static str, len: usize) -> Self {
        Self {
            name,
            bytes: len * size_of::<T>(),
            huge: false,
        }
    }

    pub(crate) fn huge(self) -> Self {
        Self { huge: true, ..self }
    }

    /// Memory of this process for it, of which only what is used becomes resident.
    ///
    /// # Errors
    /// When the process may not have so much address space.
    pub fn in_process(&self) -> io::Result<Region> {
        let region = Region::new(self.bytes, 1, 0)?;
        if self.huge {
            region.prefer_huge();
        }
        Ok(region)
    }
}

pub(crate) fn array<T: Shared>(
    memory: &mut Provider<'_>,
    section: Section,
) -> Result<Array<T>, Error> {
    memory(&section)
        .and_then(|region| Array::within(region, section.bytes / size_of::<T>()))
        .map_err(|source| Error::Memory {
            what: section.name,
            bytes: section.bytes,
            source,
        })
}

/// The part of an array that is in use.
#[derive(Debug)]
pub struct Content<'a> {
    /// As [`Section::name`].
    pub name: &'static str,
    numbers: Numbers<'a>,
}

/// Numbers of the widths that tables have.
#[derive(Debug)]
pub(crate) enum Numbers<'a> {
    Bytes(&'a [AtomicU8]),
    Words(&'a [AtomicU16]),
    Doubles(&'a [AtomicU32]),
    Quads(&'a [AtomicU64]),
    /// A copy.
    Owned(Vec<u32>),
}

impl<'a> Content<'a> {
    pub(crate) fn new(name: &'static str, numbers: impl Into<Numbers<'a>>) -> Self {
        Self {
            name,
            numbers: numbers.into(),
        }
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        match &self.numbers {
            Numbers::Bytes(cells) => cells.len(),
            Numbers::Words(cells) => size_of_val(*cells),
            Numbers::Doubles(cells) => size_of_val(*cells),
            Numbers::Quads(cells) => size_of_val(*cells),
            Numbers::Owned(numbers) => size_of_val(&numbers[..]),
        }
    }

    /// Bytes of one of its numbers.
    pub fn element(&self) -> usize {
        match &self.numbers {
            Numbers::Bytes(_) => 1,
            Numbers::Words(_) => 2,
            Numbers::Doubles(_) | Numbers::Owned(_) => 4,
            Numbers::Quads(_) => 8,
        }
    }

    /// Writes all of it, numbers in little-endian order.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        let order = Ordering::Relaxed;
        match &self.numbers {
            Numbers::Bytes(cells) => write(out, cells, |cell| [cell.load(order)]),
            Numbers::Words(cells) => write(out, cells, |cell| cell.load(order).to_le_bytes()),
            Numbers::Doubles(cells) => write(out, cells, |cell| cell.load(order).to_le_bytes()),
            Numbers::Quads(cells) => write(out, cells, |cell| cell.load(order).to_le_bytes()),
            Numbers::Owned(numbers) => write(out, numbers, |number| number.to_le_bytes()),
        }
    }
}

fn write<T, const N: usize>(
    out: &mut impl Write,
    cells: &[T],
    bytes: impl Fn(&T) -> [u8; N],
) -> io::Result<()> {
    /// Numbers written at a time.
    const CHUNK: usize = 4096;
    let mut buffer = Vec::with_capacity(CHUNK * N);
    for part in cells.chunks(CHUNK) {
        buffer.clear();
        part.iter().for_each(|cell| buffer.extend(bytes(cell)));
        out.write_all(&buffer)?;
    }
    Ok(())
}

macro_rules! numbers {
    ($($cell:ty => $width:ident),*) => {$(
        impl<'a> From<&'a [$cell]> for Numbers<'a> {
            fn from(cells: &'a [$cell]) -> Self {
                Self::$width(cells)
            }
        }
    )*};
}

numbers!(AtomicU8 => Bytes, AtomicU16 => Words, AtomicU32 => Doubles, AtomicU64 => Quads);

impl From<Vec<u32>> for Numbers<'_> {
    fn from(numbers: Vec<u32>) -> Self {
        Self::Owned(numbers)
    }
}

/// The numbers of `N` bytes of an array that may come from anywhere.
pub(crate) fn numbers<'a, const N: usize>(
    contents: &Contents<'a>,
    name: &'static str,
) -> Result<&'a [[u8; N]], Error> {
    let Some(bytes) = contents(name) else {
        return Err(Error::content(name, "is missing"));
    };
    match bytes.as_chunks() {
        (numbers, []) => Ok(numbers),
        _ => Err(Error::content(name, "ends within a number")),
    }
}
