//! The changes that a record can say: one entry of a table for each, and what each is about.

use super::field::{Cursor, Field, InvalidRecord, Members, unknown};
use super::{Attributes, File, Kind, Name, Origin, Part, Xattr};

/// The name of a field in listings, where it is another than in Rust.
macro_rules! shown {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $shown:literal) => {
        $shown
    };
}

/// Makes the enumeration of changes, their bytes and what listings show of them. An entry has a tag, which begins the
/// bytes, a name for listings, and the fields in the order of their bytes.
macro_rules! changes {
    ($($(#[$doc:meta])* $tag:literal $name:literal $change:ident {
        $($field:ident: $type:ty $(as $shown:literal)?,)*
    })*) => {
        /// A change of the source's tree.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Change {
            $($(#[$doc])* $change { $($field: $type,)* },)*
        }

        impl Change {
            /// The first byte of each.
            pub const TAGS: &[u8] = &[$($tag,)*];

            /// What a listing calls it and shows of it.
            pub fn describe(&self) -> (&'static str, Members) {
                let mut members = Members::new();
                match self {
                    $(Self::$change { $($field,)* } => {
                        $($field.show(shown!($field $($shown)?), &mut members);)*
                        ($name, members)
                    })*
                }
            }

            /// Appends its bytes.
            pub(crate) fn encode(&self, to: &mut Vec<u8>) {
                match self {
                    $(Self::$change { $($field,)* } => {
                        to.push($tag);
                        $($field.put(to);)*
                    })*
                }
            }

            /// Reads what follows a tag.
            pub(crate) fn decode(tag: u8, from: &mut Cursor<'_>) -> Result<Self, InvalidRecord> {
                match tag {
                    $($tag => Ok(Self::$change { $($field: Field::take(from)?,)* }),)*
                    tag => Err(unknown("change", tag)),
                }
            }
        }
    };
}

// The other entries of a record have the tags 1, 2 and 14 to 17.
changes! {
    /// From here on the file exists: empty, without a name.
    3 "new" New { file: File, kind: Kind, }
    /// Its last name and its last user are gone: the inode may be used again.
    4 "gone" Gone { file: File, }
    5 "attributes" Attributes { file: File, attributes: Attributes, }
    /// All extended attributes that the file has from here on.
    6 "extended" Extended { file: File, all: Vec<Xattr> as "names", }
    /// The name means this file from here on, whatever it meant before.
    7 "link" Link { directory: File, name: Name, file: File, }
    8 "unlink" Unlink { directory: File, name: Name, }
    /// Bytes at an offset. They reach as far as the file does at least: it grows if it must.
    9 "data" Data { file: File, offset: u64, origin: Origin, bytes: Vec<u8>, }
    /// The file's size in bytes: cut off, or longer by zeros.
    10 "size" Size { file: File, size: u64, }
    /// Zeros that take no place on the disk; the size stays.
    11 "hole" Hole { file: File, offset: u64, length: u64 as "bytes", }
    /// From here on this is not known, until it is settled: no epoch in between.
    12 "doubt" Doubt { file: File, part: Part, }
    /// What was in doubt has been read from the source, and is said by the records before.
    13 "settled" Settled { file: File, part: Part, }
}

/// What a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject<'a> {
    /// That a file exists, or its state.
    File(File),
    /// A name in a directory, and the file that it means from then on.
    Entry {
        directory: File,
        name: &'a Name,
        file: Option<File>,
    },
    /// What is known of a file, which stays as it is.
    Knowledge,
}

/// What a change does to the bytes of a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit<'a> {
    /// These are at the offset. The file grows if it must.
    Write { offset: u64, bytes: &'a [u8] },
    /// Zeros without blocks on the disk from the offset on, as far as the file reaches.
    Hole { offset: u64, length: u64 },
    /// The file has this size: cut off, or with a hole behind what it had.
    Resize { size: u64 },
}

impl Change {
    pub(crate) fn subject(&self) -> Subject<'_> {
        match *self {
            Self::New { file, .. }
            | Self::Gone { file }
            | Self::Attributes { file, .. }
            | Self::Extended { file, .. }
            | Self::Data { file, .. }
            | Self::Size { file, .. }
            | Self::Hole { file, .. } => Subject::File(file),
            Self::Link {
                directory,
                ref name,
                file,
            } => Subject::Entry {
                directory,
                name,
                file: Some(file),
            },
            Self::Unlink {
                directory,
                ref name,
            } => Subject::Entry {
                directory,
                name,
                file: None,
            },
            Self::Doubt { .. } | Self::Settled { .. } => Subject::Knowledge,
        }
    }

    /// The file whose content or attributes it is about, or what is known of them.
    pub(crate) fn of_state(&self) -> Option<File> {
        match *self {
            Self::Attributes { file, .. }
            | Self::Extended { file, .. }
            | Self::Data { file, .. }
            | Self::Size { file, .. }
            | Self::Hole { file, .. } => Some(file),
            Self::Doubt { file, ref part } | Self::Settled { file, ref part } => {
                (*part != Part::Names).then_some(file)
            }
            Self::New { .. } | Self::Gone { .. } | Self::Link { .. } | Self::Unlink { .. } => None,
        }
    }

    /// The file whose bytes it changes, and how; none of a change that leaves bytes as they are.
    pub fn edit(&self) -> Option<(File, Edit<'_>)> {
        match *self {
            Self::Data {
                file,
                offset,
                ref bytes,
                ..
            } => Some((file, Edit::Write { offset, bytes })),
            Self::Hole {
                file,
                offset,
                length,
            } => Some((file, Edit::Hole { offset, length })),
            Self::Size { file, size } => Some((file, Edit::Resize { size })),
            Self::New { .. }
            | Self::Gone { .. }
            | Self::Attributes { .. }
            | Self::Extended { .. }
            | Self::Link { .. }
            | Self::Unlink { .. }
            | Self::Doubt { .. }
            | Self::Settled { .. } => None,
        }
    }
}

impl Edit<'_> {
    /// Where what it changes begins, and where it ends.
    pub fn range(&self) -> (u64, u64) {
        match *self {
            Self::Write { offset, bytes } => (offset, offset.saturating_add(bytes.len() as u64)),
            Self::Hole { offset, length } => (offset, offset.saturating_add(length)),
            Self::Resize { size } => (size, u64::MAX),
        }
    }

    /// What the range has afterwards; none stands for zeros.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Write { bytes, .. } => Some(bytes),
            Self::Hole { .. } | Self::Resize { .. } => None,
        }
    }

    /// The size of the file afterwards.
    pub(crate) fn size(&self, before: u64) -> u64 {
        match *self {
            Self::Write { bytes: &[], .. } | Self::Hole { .. } => before,
            Self::Write { .. } => before.max(self.range().1),
            Self::Resize { size } => size,
        }
    }
}
