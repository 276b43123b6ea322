//! Captures that are read one after the other as if they were one. A capture that is damaged is remembered with
//! its error, and the next one follows.

use std::fmt;
use std::io::{self, Read};
use std::iter;
use std::path::PathBuf;

use packet::pcap::{Block, Error as PcapError, Reader};

/// The bytes of a capture.
pub type Input<'a> = Box<dyn Read + Send + 'a>;

/// A capture, opened when its turn comes.
type Opened<'a> = (Option<PathBuf>, io::Result<Input<'a>>);

/// Captures in the order in which they are read.
pub struct Captures<'a> {
    following: Box<dyn Iterator<Item = Opened<'a>> + Send + 'a>,
    current: Option<Current<'a>>,
    begun: u64,
    damaged: Vec<Damage>,
}

struct Current<'a> {
    name: Option<PathBuf>,
    reader: Reader<Input<'a>>,
}

/// A capture that could not be read to its end.
#[derive(Debug)]
pub struct Damage {
    /// None for a single input that the caller knows.
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
    /// One capture, whose name is left out of errors.
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

    fn new(captures: impl Iterator<Item = Opened<'a>> + Send + 'a) -> Self {
        Self {
            following: Box::new(captures),
            current: None,
            begun: 0,
            damaged: Vec::new(),
        }
    }

    /// Reads the header of the first capture that has one; `false` if there is no such capture.
    pub(super) fn begin(&mut self) -> bool {
        self.current.is_some() || self.advance()
    }

    /// As [`Reader::read_block`], over the end of a capture.
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
                    self.damaged.push(Damage { name, error });
                }
            }
        }
        false
    }

    fn advance(&mut self) -> bool {
        for (name, input) in self.following.by_ref() {
            self.begun += 1;
            match input.map_err(PcapError::Open).and_then(Reader::new) {
                Ok(reader) => {
                    self.current = Some(Current { name, reader });
                    return true;
                }
                Err(error) => self.damaged.push(Damage { name, error }),
            }
        }
        false
    }

    /// How many captures were begun, and those that could not be read to their end.
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
