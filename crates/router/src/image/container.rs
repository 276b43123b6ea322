//! A file of named arrays: where each lies, and whether the file is whole. What the arrays mean is
//! decided elsewhere.
//!
//! ```text
//! 0   "LOWROADT"        48  zero
//! 8   version, 4 bytes
//! 12  sections, 4 bytes
//! 16  bytes of the file, 8 bytes
//! 24  checksum, 8 bytes: XXH64 of all from byte 64 on and then of the first 64 with this field zero
//! 64  of each section: name, 32 bytes, filled up with zeros; offset, 8 bytes; bytes, 8 bytes;
//!     bytes of an element, 4 bytes; zero, 12 bytes
//! ```
//! Sections begin at multiples of 4096, that each may be mapped by itself; zeros fill up between them.
//! Numbers are little-endian.

use std::hash::Hasher;
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;

use twox_hash::XxHash64;

const MAGIC: &[u8; 8] = b"LOWROADT";
/// Images of other versions are refused: they are made again from their sources in seconds.
pub(super) const VERSION: u32 = 1;
const HEADER: usize = 64;
const ENTRY: usize = 64;
const NAME: usize = 32;
const ALIGN: usize = 4096;
/// Maximum number of sections.
const MAX_SECTIONS: usize = 1024;

/// Why a file is not a complete container.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ContainerError {
    Foreign,
    Version(u32),
    Short { bytes: u64, whole: u64 },
    Long { bytes: u64, whole: u64 },
    Checksum,
    Sections(&'static str),
}

/// A section that is to be written.
pub(super) struct Section<'a> {
    pub(super) name: String,
    /// Bytes of an element.
    pub(super) element: u32,
    pub(super) content: Content<'a>,
}

pub(super) enum Content<'a> {
    Bytes(Vec<u8>),
    Array(lpm::Content<'a>),
}

/// Where a section of a file lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) element: u32,
    pub(super) range: Range<usize>,
}

impl<'a> Section<'a> {
    pub(super) fn bytes(name: &str, element: u32, content: Vec<u8>) -> Self {
        let name = name.to_owned();
        Self {
            name,
            element,
            content: Content::Bytes(content),
        }
    }

    fn len(&self) -> usize {
        match &self.content {
            Content::Bytes(bytes) => bytes.len(),
            Content::Array(array) => array.bytes(),
        }
    }
}

/// Writes a container, and returns its length.
pub(super) fn write(out: &mut (impl Write + Seek), sections: &[Section<'_>]) -> io::Result<u64> {
    let mut table = vec![0; sections.len() * ENTRY];
    let mut end = (HEADER + table.len()).next_multiple_of(ALIGN);
    for (section, entry) in sections.iter().zip(table.chunks_mut(ENTRY)) {
        let name = section.name.as_bytes();
        entry[..name.len()].copy_from_slice(name);
        put(entry, 32, &(end as u64).to_le_bytes());
        put(entry, 40, &(section.len() as u64).to_le_bytes());
        put(entry, 48, &section.element.to_le_bytes());
        end = (end + section.len()).next_multiple_of(ALIGN);
    }
    out.write_all(&[0; HEADER])?;
    let mut body = HashWriter {
        out,
        hash: XxHash64::with_seed(0),
        at: HEADER,
    };
    body.write_all(&table)?;
    for section in sections {
        body.fill()?;
        match &section.content {
            Content::Bytes(bytes) => body.write_all(bytes)?,
            Content::Array(array) => array.write_to(&mut body)?,
        }
    }
    body.fill()?;
    let mut hash = body.hash;
    let mut header = [0; HEADER];
    put(&mut header, 0, MAGIC);
    put(&mut header, 8, &VERSION.to_le_bytes());
    put(&mut header, 12, &(sections.len() as u64).to_le_bytes()[..4]);
    put(&mut header, 16, &(end as u64).to_le_bytes());
    hash.write(&header);
    put(&mut header, 24, &hash.finish().to_le_bytes());
    out.seek(SeekFrom::Start(0))?;
    out.write_all(&header)?;
    Ok(end as u64)
}

/// The sections of a container, once it is certain that it is whole.
pub(super) fn read(file: &[u8]) -> Result<Vec<Entry>, ContainerError> {
    let Some(header) = file.first_chunk::<HEADER>() else {
        let whole = HEADER as u64;
        let begun = file.starts_with(MAGIC);
        let bytes = file.len() as u64;
        return Err(if begun {
            ContainerError::Short { bytes, whole }
        } else {
            ContainerError::Foreign
        });
    };
    if !header.starts_with(MAGIC) {
        return Err(ContainerError::Foreign);
    }
    let version = u32_at(header, 8);
    if version != VERSION {
        return Err(ContainerError::Version(version));
    }
    let (bytes, whole) = (file.len() as u64, u64_at(header, 16));
    if bytes < whole {
        return Err(ContainerError::Short { bytes, whole });
    }
    if bytes > whole {
        return Err(ContainerError::Long { bytes, whole });
    }
    let mut blank = *header;
    put(&mut blank, 24, &[0; 8]);
    let mut hash = XxHash64::with_seed(0);
    hash.write(&file[HEADER..]);
    hash.write(&blank);
    if hash.finish() != u64_at(header, 24) {
        return Err(ContainerError::Checksum);
    }
    let count = u32_at(header, 12) as usize;
    let table = file[HEADER..].get(..count.min(MAX_SECTIONS) * ENTRY);
    let table = table
        .filter(|_| count <= MAX_SECTIONS)
        .ok_or(ContainerError::Sections("more sections than fit"))?;
    table
        .chunks_exact(ENTRY)
        .map(|raw| entry(raw, file.len()))
        .collect()
}

fn entry(raw: &[u8], file: usize) -> Result<Entry, ContainerError> {
    let name = raw[..NAME].split(|byte| *byte == 0).next();
    let name = name.and_then(|name| std::str::from_utf8(name).ok());
    let name = name.ok_or(ContainerError::Sections("a section whose name is no text"))?;
    let at = |field| usize::try_from(u64_at(raw, field)).unwrap_or(usize::MAX);
    let (start, length) = (at(32), at(40));
    let end = start.checked_add(length).filter(|end| *end <= file);
    let end = end.ok_or(ContainerError::Sections("a section beyond its end"))?;
    if !start.is_multiple_of(ALIGN) {
        return Err(ContainerError::Sections("a section that begins anywhere"));
    }
    Ok(Entry {
        name: name.to_owned(),
        element: u32_at(raw, 48),
        range: start..end,
    })
}

/// Hashes the bytes that pass through it.
struct HashWriter<'a, W> {
    out: &'a mut W,
    hash: XxHash64,
    at: usize,
}

impl<W: Write> HashWriter<'_, W> {
    /// Zeros up to where a section may begin.
    fn fill(&mut self) -> io::Result<()> {
        let zeros = self.at.next_multiple_of(ALIGN) - self.at;
        self.write_all(&[0; ALIGN][..zeros])
    }
}

impl<W: Write> Write for HashWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.hash.write(&bytes[..count]);
        self.at += count;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn put(into: &mut [u8], at: usize, bytes: &[u8]) {
    into[at..at + bytes.len()].copy_from_slice(bytes);
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn written() -> Vec<u8> {
        let mut file = Cursor::new(Vec::new());
        let sections = [
            Section::bytes("one", 1, vec![1; 5000]),
            Section::bytes("none", 8, Vec::new()),
            Section::bytes("two", 4, vec![2; 4096]),
        ];
        let length = write(&mut file, &sections).unwrap();
        let file = file.into_inner();
        assert_eq!(file.len() as u64, length);
        file
    }

    #[test]
    fn sections_come_back() {
        let file = written();
        let sections = read(&file).unwrap();
        let names: Vec<_> = sections.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["one", "none", "two"]);
        assert_eq!(file[sections[0].range.clone()], vec![1; 5000]);
        assert_eq!(file[sections[2].range.clone()], vec![2; 4096]);
        assert!(sections[1].range.is_empty());
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let mut file = written();
        for at in 0..file.len() {
            file[at] ^= 1 << (at % 8);
            assert!(read(&file).is_err(), "byte {at}");
            file[at] ^= 1 << (at % 8);
        }
    }

    #[test]
    fn every_other_length_is_found() {
        let file = written();
        for length in 0..file.len() {
            assert!(read(&file[..length]).is_err(), "{length} bytes");
        }
        let mut longer = file.clone();
        longer.push(0);
        let (bytes, whole) = (longer.len() as u64, file.len() as u64);
        assert_eq!(read(&longer), Err(ContainerError::Long { bytes, whole }));
    }
}
