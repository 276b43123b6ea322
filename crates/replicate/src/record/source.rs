//! The identity of a log's tree, which keeps a capture from writing the changes of another tree
//! into the log.

use std::fmt::{self, Write as _};

use super::field::{Cursor, Field, InvalidRecord, Members};

/// The identity of a source tree, beside the inode of its root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The path that was given to the capture. It is only for people; no decision depends on it.
    pub path: Vec<u8>,
    /// The type of its file system, such as `ext4`.
    pub file_system: String,
    /// The UUID of the file system, followed on btrfs by the subvolume's number (a little-endian
    /// u64). Empty if the kernel does not report a UUID.
    pub volume: Vec<u8>,
}

impl Source {
    /// Whether both are on the same file system, as far as it is known of both. A newer kernel that
    /// reports more than an older one does not change the identity.
    pub fn is_on_volume_of(&self, other: &Self) -> bool {
        let comparable = !self.volume.is_empty() && self.volume.len() == other.volume.len();
        self.file_system == other.file_system && (!comparable || self.volume == other.volume)
    }

    /// The volume in hexadecimal digits, with the hyphens of a UUID.
    fn volume_text(&self) -> String {
        let mut text = String::new();
        for (at, byte) in self.volume.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10 | 16) {
                text.push('-');
            }
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    pub(crate) fn put(&self, to: &mut Vec<u8>) {
        self.path.put(to);
        self.file_system.put(to);
        self.volume.put(to);
    }

    pub(crate) fn take(from: &mut Cursor<'_>) -> Result<Self, InvalidRecord> {
        Ok(Self {
            path: Field::take(from)?,
            file_system: Field::take(from)?,
            volume: Field::take(from)?,
        })
    }

    pub(crate) fn show(&self, to: &mut Members) {
        self.path.escape_ascii().to_string().show("path", to);
        self.file_system.show("file_system", to);
        self.volume_text().show("volume", to);
    }
}

/// Displays the file system: its type and volume.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file_system)?;
        match self.volume.is_empty() {
            true => Ok(()),
            false => write!(f, " {}", self.volume_text()),
        }
    }
}
