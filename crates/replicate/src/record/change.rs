//! The changes that a record can contain: one table entry for each, and what each concerns.

use super::field::{Cursor, Field, InvalidRecord, Members, unknown};
use super::{Attributes, File, Kind, Name, Origin, Part, Xattr};

/// The name of a field in listings, if it differs from the name in Rust.
macro_rules! shown {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $shown:literal) => {
        $shown
    };
}

/// Generates the enumeration of changes, their encoding and their fields in listings. A table entry
/// has a tag, which is the first byte of the encoding, a name for listings, and the fields in the
/// order of their encoding.
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
            /// The first byte of each change.
            pub const TAGS: &[u8] = &[$($tag,)*];

            /// The change's name and fields for listings.
            pub fn describe(&self) -> (&'static str, Members) {
                let mut members = Members::new();
                match self {
                    $(Self::$change { $($field,)* } => {
                        $($field.show(shown!($field $($shown)?), &mut members);)*
                        ($name, members)
                    })*
                }
            }

            /// Appends the encoded change.
            pub(crate) fn encode(&self, to: &mut Vec<u8>) {
                match self {
                    $(Self::$change { $($field,)* } => {
                        to.push($tag);
                        $($field.put(to);)*
                    })*
                }
            }

            /// Decodes the fields that follow a tag.
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
    /// The file exists from here on. It is empty and has no name.
    3 "new" New { file: File, kind: Kind, }
    /// The last name and the last user of the file are gone. The inode may be reused.
    4 "gone" Gone { file: File, }
    5 "attributes" Attributes { file: File, attributes: Attributes, }
    /// All extended attributes of the file from here on.
    6 "extended" Extended { file: File, all: Vec<Xattr> as "names", }
    /// From here on the name refers to this file, whatever it referred to before.
    7 "link" Link { directory: File, name: Name, file: File, }
    8 "unlink" Unlink { directory: File, name: Name, }
    /// Bytes at an offset. If they reach beyond the end of the file, the file grows.
    9 "data" Data { file: File, offset: u64, origin: Origin, bytes: Vec<u8>, }
    /// The size of the file in bytes. The file is truncated or extended with zeros.
    10 "size" Size { file: File, size: u64, }
    /// Zeros that take no disk space. The size of the file stays the same.
    11 "hole" Hole { file: File, offset: u64, length: u64 as "bytes", }
    /// From here on this part is in doubt, until it is settled. There is no epoch in between.
    12 "doubt" Doubt { file: File, part: Part, }
    /// The part that was in doubt has been read from the source, and the records before contain it.
    13 "settled" Settled { file: File, part: Part, }
}

/// What a change concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject<'a> {
    /// The existence or the state of a file.
    File(File),
    /// A name in a directory, and the file that it refers to from then on.
    Entry {
        directory: File,
        name: &'a Name,
        file: Option<File>,
    },
    /// What is known of a file. The file itself does not change.
    Knowledge,
}

/// The effect of a change on the bytes of a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit<'a> {
    /// Writes these bytes at the offset. The file grows if necessary.
    Write { offset: u64, bytes: &'a [u8] },
    /// Makes a hole from the offset on, at most up to the end of the file.
    Hole { offset: u64, length: u64 },
    /// Sets the size of the file: truncates it, or extends it with a hole.
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

    /// The file whose content or attributes the change concerns, or the knowledge of them.
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

    /// The file whose bytes the change affects, and the effect. `None` for a change that leaves
    /// bytes as they are.
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
    /// The start and the end of the affected range.
    pub fn range(&self) -> (u64, u64) {
        match *self {
            Self::Write { offset, bytes } => (offset, offset.saturating_add(bytes.len() as u64)),
            Self::Hole { offset, length } => (offset, offset.saturating_add(length)),
            Self::Resize { size } => (size, u64::MAX),
        }
    }

    /// The bytes of the range afterwards. `None` stands for zeros.
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
