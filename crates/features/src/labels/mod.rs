//! Labels from a file, joined to rows by time, addresses, ports and protocol. Rows know nothing of it: `rows` finds
//! what a label asks for in the columns of any schema that has them.

mod csv;
mod forms;
mod index;
mod protocols;
mod rows;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use csv::Lines;
use forms::Form;
use index::Index;

pub use rows::{Labeller, labelled_schema};

/// The name of the column.
pub const COLUMN: &str = "label";

/// The longest file. That of CIC-IDS2017 has 1.1 GB, the largest of CTU-13 0.9 GB.
const MAX_BYTES: u64 = 2 << 30;
/// The most lines with a label, which take about 100 bytes each.
const MAX_LABELS: u32 = 10_000_000;
/// The most different labels, and the bytes of one.
const MAX_NAMES: usize = 65_536;
const MAX_NAME_BYTES: usize = 256;

/// Labels of flows.
#[derive(Debug)]
pub struct Labels {
    names: Vec<String>,
    index: Index,
}

/// A flow's label: what a line of a file says. A condition that is none holds for every flow.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    /// First and last nanosecond since the epoch.
    first_ns: i64,
    last_ns: i64,
    /// IPv4 mapped into IPv6.
    addresses: [Option<u128>; 2],
    ports: [Option<u16>; 2],
    protocol: Option<u8>,
    label: String,
}

/// What of a row a label can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) first_ns: i64,
    pub(crate) last_ns: i64,
    /// Source and destination. A label is about a flow, so that they match in either order.
    pub(crate) addresses: [u128; 2],
    pub(crate) ports: [u16; 2],
    pub(crate) protocol: u8,
}

/// Why a file of labels cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {error}", path.display())]
    Io {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{}: line {line}: {what}", path.display())]
    Line {
        path: PathBuf,
        line: u64,
        what: String,
    },
    #[error("{}: more than 2 GiB or 10 000 000 labels: split the file and the captures", .0.display())]
    TooLarge(PathBuf),
    #[error(
        "the rows have no column {0}, by which labels are joined; choose a schema with addresses, as flow.v1"
    )]
    NoColumn(&'static str),
    #[error("the rows have a column label already")]
    Already,
    #[error("column {0} has a type by which labels cannot be joined")]
    Type(String),
}

impl Labels {
    /// Reads a file, whose first line tells its form.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let io = |error| Error::Io {
            path: path.to_owned(),
            error,
        };
        let file = File::open(path).map_err(io)?;
        let size = file.metadata().map_err(io)?.len();
        if size > MAX_BYTES {
            return Err(Error::TooLarge(path.to_owned()));
        }
        Self::parse(path, BufReader::new(file.take(MAX_BYTES + 1)))
    }

    fn parse(path: &Path, input: impl std::io::BufRead) -> Result<Self, Error> {
        let mut lines = Lines::new(input);
        let wrong = |line, what| Error::Line {
            path: path.to_owned(),
            line,
            what,
        };
        let io = |error| Error::Io {
            path: path.to_owned(),
            error,
        };
        let mut form = None;
        let mut labels = Builder::default();
        while let Some(read) = lines.read().map_err(io)? {
            let number = lines.number();
            let fields = read.map_err(|what| wrong(number, what))?;
            let Some(form) = &form else {
                form = Some(Form::of(&fields).map_err(|what| wrong(number, what))?);
                continue;
            };
            let rule = form.rule(&fields).map_err(|what| wrong(number, what))?;
            if let Some(rule) = rule {
                labels.add(&rule).map_err(|what| wrong(number, what))?;
            }
            if labels.count > MAX_LABELS || lines.bytes() > MAX_BYTES {
                return Err(Error::TooLarge(path.to_owned()));
            }
        }
        if form.is_none() {
            return Err(wrong(1, forms::NO_HEADER.to_owned()));
        }
        Ok(labels.finish())
    }

    /// The label of a row: the first line that matches it.
    pub(crate) fn label(&self, subject: &Subject) -> Option<&str> {
        let label = self.index.find(subject)?;
        self.names.get(label as usize).map(String::as_str)
    }
}

#[derive(Default)]
struct Builder {
    names: Vec<String>,
    numbers: HashMap<String, u32>,
    index: Index,
    count: u32,
}

impl Builder {
    fn add(&mut self, rule: &Rule) -> Result<(), String> {
        if rule.label.len() > MAX_NAME_BYTES {
            return Err(format!("a label of more than {MAX_NAME_BYTES} bytes"));
        }
        let number = match self.numbers.get(&rule.label) {
            Some(number) => *number,
            None if self.names.len() == MAX_NAMES => {
                return Err(format!("more than {MAX_NAMES} different labels"));
            }
            None => {
                let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
                self.names.push(rule.label.clone());
                self.numbers.insert(rule.label.clone(), number);
                number
            }
        };
        self.index.add(rule, self.count, number);
        self.count += 1;
        Ok(())
    }

    fn finish(mut self) -> Labels {
        self.index.sort();
        Labels {
            names: self.names,
            index: self.index,
        }
    }
}

#[cfg(test)]
mod tests;
