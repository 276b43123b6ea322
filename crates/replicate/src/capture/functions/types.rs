//! The kernel's type information about its functions: which exist, and the names of their
//! arguments.

use std::fs;
use std::io;
use std::path::Path;

/// Types of the kernel and of one of its modules.
#[derive(Debug)]
pub(super) struct Types {
    kernel: Section,
    module: Option<Section>,
}

/// One file of types. The numbers and strings of a module continue those of the kernel.
#[derive(Debug, Default)]
struct Section {
    records: Vec<Record>,
    strings: Vec<u8>,
}

/// A type: its name and its data.
#[derive(Debug)]
struct Record {
    name: u32,
    kind: u32,
    /// The number of another type, or a size.
    target: u32,
    /// Offsets of the names of arguments.
    arguments: Vec<u32>,
}

const MAGIC: u16 = 0xeb9f;
const FUNCTION: u32 = 12;
const PROTOTYPE: u32 = 13;

impl Types {
    /// Reads the kernel's types, and those of a module if it is loaded as one.
    pub(super) fn read(module: &str) -> io::Result<Self> {
        let folder = Path::new("/sys/kernel/btf");
        let section = |name: &str| {
            let bytes = fs::read(folder.join(name))?;
            Section::parse(&bytes).ok_or_else(|| io::Error::other("types of an unknown form"))
        };
        Ok(Self {
            kernel: section("vmlinux")?,
            module: match section(module) {
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => None,
                section => Some(section?),
            },
        })
    }

    /// The names of a function's arguments. `None` if there is no such function.
    pub(super) fn arguments(&self, function: &str) -> Option<Vec<&str>> {
        let of_module = self.module.iter().flat_map(|module| &module.records);
        let mut all = self.kernel.records.iter().chain(of_module);
        let found = all
            .find(|record| record.kind == FUNCTION && self.string(record.name) == Some(function))?;
        let prototype = self.record(found.target)?;
        let names = prototype.arguments.iter();
        (prototype.kind == PROTOTYPE).then(|| {
            names
                .map(|name| self.string(*name).unwrap_or_default())
                .collect()
        })
    }

    fn record(&self, number: u32) -> Option<&Record> {
        // The first type is `void`, which is in no file.
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        let own = self.kernel.records.get(index);
        let module = self.module.as_ref();
        own.or_else(|| module?.records.get(index - self.kernel.records.len()))
    }

    fn string(&self, offset: u32) -> Option<&str> {
        let offset = usize::try_from(offset).ok()?;
        let own = self.kernel.strings.get(offset..);
        let module = self.module.as_ref();
        let from = own.or_else(|| module?.strings.get(offset - self.kernel.strings.len()..))?;
        let length = from.iter().position(|byte| *byte == 0)?;
        str::from_utf8(from.get(..length)?).ok()
    }
}

impl Section {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let place = |at: usize| usize::try_from(word(at)?).ok();
        if u16::from_ne_bytes(*bytes.first_chunk()?) != MAGIC {
            return None;
        }
        let body = bytes.get(place(4)?..)?;
        let types = body.get(place(8)?..)?.get(..place(12)?)?;
        let strings = body.get(place(16)?..)?.get(..place(20)?)?;
        let mut rest = types;
        let mut records = Vec::new();
        while !rest.is_empty() {
            records.push(Record::take(&mut rest)?);
        }
        Some(Self {
            records,
            strings: strings.to_vec(),
        })
    }
}

impl Record {
    fn take(rest: &mut &[u8]) -> Option<Self> {
        let [name, info, target] = [take(rest)?, take(rest)?, take(rest)?];
        let (kind, many) = (info >> 24 & 0x1f, info & 0xffff);
        let words = usize::try_from(match kind {
            // Integers, variables, and the target of a declaration tag.
            1 | 14 | 17 => 1,
            // Arrays.
            3 => 3,
            // Structures, unions and enumerations of 64 bits.
            4 | 5 | 19 => 3 * many,
            // Enumerations, and the arguments of a prototype.
            6 | PROTOTYPE => 2 * many,
            // Sections of variables.
            15 => 3 * many,
            _ => 0,
        })
        .ok()?;
        let (more, after) = rest.split_at_checked(4 * words)?;
        *rest = after;
        let named = more.chunks_exact(8).filter_map(|mut pair| take(&mut pair));
        Some(Self {
            name,
            kind,
            target,
            arguments: if kind == PROTOTYPE {
                named.collect()
            } else {
                Vec::new()
            },
        })
    }
}

fn take(rest: &mut &[u8]) -> Option<u32> {
    let (word, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u32::from_ne_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_this_kernel_are_known_with_their_arguments() {
        if !sys::kernel::has_btf() {
            return;
        }
        let types = Types::read("no such module").unwrap();
        assert_eq!(types.arguments("no such function"), None);
        let mut arguments = types.arguments("generic_perform_write").unwrap();
        assert_eq!(arguments.len(), 2);
        assert_eq!(arguments.pop(), Some("i"));
    }
}
