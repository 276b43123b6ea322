//! Reads several captures in sequence as if they were one. A damaged capture is recorded with its error, and reading
//! continues with the next one.

use std::fmt;
use std::io::{self, Read};
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use packet::pcap::{Block, Error as PcapError, Reader};

use super::follow::Rotation;

/// The bytes of a capture.
pub type Input<'a> = Box<dyn Read + Send + 'a>;

/// A capture, opened when it is next in the sequence.
pub(super) type OpenResult<'a> = (Option<PathBuf>, io::Result<Input<'a>>);

/// Captures in the order in which they are read.
pub struct Captures<'a> {
    following: Box<dyn Iterator<Item = OpenResult<'a>> + Send + 'a>,
    current: Option<Current<'a>>,
    begun: u64,
    damaged: Vec<Damage>,
    /// For a rotation: set to stop waiting for new files.
    end: Option<&'a AtomicBool>,
}

struct Current<'a> {
    name: Option<PathBuf>,
    reader: Reader<Input<'a>>,
}

/// A capture that could not be read to its end.
#[derive(Debug)]
pub struct Damage {
    /// `None` for a single input that the caller knows.
    pub name: Option<PathBuf>,
    pub error: PcapError,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{}: {}", name.display(), self.error),
            None => self.error.fmt(f),
        }
    }
}

impl<'a> Captures<'a> {
    /// A single capture. Errors do not mention its name.
    pub fn one(input: impl Read + Send + 'a) -> Self {
        let input: Input<'a> = Box::new(input);
        Self::new(iter::once((None, Ok(input))))
    }

    /// The captures of these files; `-` is standard input.
    pub fn of_files(files: impl IntoIterator<Item = PathBuf, IntoIter: Send + 'a>) -> Self {
        Self::new(files.into_iter().map(|path| {
            let input = packet::pcap::open(&path).map(|input| -> Input<'a> { input });
            (Some(path), input)
        }))
    }

    /// The captures in a directory that a capture program writes, in the order of their names. When `end` is set, the
    /// existing files are read to their current ends.
    pub fn following(directory: &Path, end: &'a AtomicBool) -> Self {
        Self {
            end: Some(end),
            ..Self::new(Rotation::new(directory, end))
        }
    }

    /// Whether more data may arrive while it is read.
    pub(super) fn follows(&self) -> bool {
        self.end.is_some()
    }

    fn new(captures: impl Iterator<Item = OpenResult<'a>> + Send + 'a) -> Self {
        Self {
            following: Box::new(captures),
            current: None,
            begun: 0,
            damaged: Vec::new(),
            end: None,
        }
    }

    /// Reads the header of the first capture that has a valid one. Returns `false` if there is none.
    pub(super) fn begin(&mut self) -> bool {
        self.current.is_some() || self.advance()
    }

    /// Like [`Reader::read_block`], but continues with the next capture.
    pub(super) fn read_block(&mut self, into: &mut Block) -> bool {
        while self.begin() {
            let Some(current) = &mut self.current else {
                return false;
            };
            match current.reader.read_block(into) {
                Ok(true) => return true,
                Ok(false) => self.current = None,
                Err(error) => {
                    let name = self.current.take().and_then(|current| current.name);
                    self.add_damage(name, error);
                }
            }
        }
        false
    }

    fn add_damage(&mut self, name: Option<PathBuf>, error: PcapError) {
        let damage = Damage { name, error };
        if let Some(end) = self.end {
            let is_incomplete = matches!(
                damage.error,
                PcapError::Truncated { .. } | PcapError::Format
            );
            // When the run is ended, the last file may still be incomplete.
            if is_incomplete && end.load(Ordering::Relaxed) {
                return;
            }
            tracing::warn!("{damage}; the captures after it are read");
        }
        self.damaged.push(damage);
    }

    fn advance(&mut self) -> bool {
        while let Some((name, input)) = self.following.next() {
            self.begun += 1;
            match input.map_err(PcapError::Open).and_then(Reader::new) {
                Ok(reader) => {
                    self.current = Some(Current { name, reader });
                    return true;
                }
                Err(error) => self.add_damage(name, error),
            }
        }
        false
    }

    /// The number of captures that were begun, and those that could not be read to their end.
    pub(super) fn finish(self) -> (u64, Vec<Damage>) {
        (self.begun, self.damaged)
    }
}

impl fmt::Debug for Captures<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Captures")
            .field("begun", &self.begun)
            .field("damaged", &self.damaged)
            .finish_non_exhaustive()
    }
}
