//! The memory file that both sides share: the inputs of a batch, then in their place its scores.
//!
//! Inputs are one column after the other, each with one `f64` a row. Scores are one probability (`f64`) a row, then
//! one class (`u32`) a row. All are in the machine's byte order.
//!
//! The file is read and written with system calls and not mapped: a file that the other side has cut short is then an
//! error rather than a `SIGBUS`, and numbers are checked in memory that only one process can change.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::sys::memfd::{MFdFlags, memfd_create};

/// The greatest number of bytes that a batch takes in the file. Larger ones are scored in parts.
pub const MAX_BATCH: usize = 64 << 20;

const NUMBER: usize = size_of::<f64>();
const CLASS: usize = size_of::<u32>();

/// A memory file. It grows to the largest batch so far, and is freed with the last process that has it.
#[derive(Debug)]
pub struct Memory {
    file: File,
    /// Kept between batches.
    bytes: Vec<u8>,
}

impl Memory {
    /// An empty file that other processes get only by inheritance.
    pub fn new() -> io::Result<Self> {
        Ok(memfd_create(c"lowroad-onnx", MFdFlags::MFD_CLOEXEC)?.into())
    }

    /// Writes values from `first` on, up to `rows`, of every column.
    pub fn write_inputs(
        &mut self,
        columns: &[Vec<f64>],
        first: usize,
        rows: usize,
    ) -> io::Result<()> {
        self.bytes.resize(rows * columns.len() * NUMBER, 0);
        let mut places = self.bytes.chunks_exact_mut(NUMBER);
        for column in columns {
            let values = &column[first..first + rows];
            // In this order: the shorter one of a zip is asked first.
            for (value, place) in values.iter().zip(places.by_ref()) {
                place.copy_from_slice(&value.to_ne_bytes());
            }
        }
        self.file.write_all_at(&self.bytes, 0)
    }

    /// The columns of a batch; an error where it would be larger than [`MAX_BATCH`] or the file is shorter.
    pub fn read_inputs(&mut self, rows: usize, columns: usize) -> io::Result<Vec<Vec<f64>>> {
        let column = rows.saturating_mul(NUMBER);
        self.read(column.saturating_mul(columns))?;
        let columns = (0..columns).map(|at| numbers(&self.bytes[at * column..][..column]));
        Ok(columns.collect())
    }

    /// Writes the scores of a batch.
    pub fn write_scores(&mut self, probabilities: &[f64], classes: &[u32]) -> io::Result<()> {
        self.bytes.clear();
        let probabilities = probabilities.iter().flat_map(|value| value.to_ne_bytes());
        self.bytes.extend(probabilities);
        let classes = classes.iter().flat_map(|class| class.to_ne_bytes());
        self.bytes.extend(classes);
        self.file.write_all_at(&self.bytes, 0)
    }

    /// Probabilities and classes of a batch; errors as of [`Self::read_inputs`].
    pub fn read_scores(&mut self, rows: usize) -> io::Result<(Vec<f64>, Vec<u32>)> {
        self.read(rows.saturating_mul(NUMBER + CLASS))?;
        let (probabilities, classes) = self.bytes.split_at(rows * NUMBER);
        let classes = classes.chunks_exact(CLASS);
        let class = |bytes: &[u8]| bytes.try_into().map(u32::from_ne_bytes);
        Ok((numbers(probabilities), classes.flat_map(class).collect()))
    }

    fn read(&mut self, length: usize) -> io::Result<()> {
        if length > MAX_BATCH {
            let what = format!("a batch of {length} bytes is larger than {MAX_BATCH}");
            return Err(io::Error::other(what));
        }
        self.bytes.resize(length, 0);
        self.file.read_exact_at(&mut self.bytes, 0)
    }
}

impl From<OwnedFd> for Memory {
    fn from(file: OwnedFd) -> Self {
        Self {
            file: file.into(),
            bytes: Vec::new(),
        }
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// How many rows fit into the file at once.
pub(crate) fn rows_at_once(columns: usize) -> usize {
    let row = (columns * NUMBER).max(NUMBER + CLASS);
    (MAX_BATCH / row).max(1)
}

fn numbers(bytes: &[u8]) -> Vec<f64> {
    let numbers = bytes.chunks_exact(NUMBER);
    let number = |bytes: &[u8]| bytes.try_into().map(f64::from_ne_bytes);
    numbers.flat_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file as both sides have it.
    fn shared() -> (Memory, Memory) {
        let ours = Memory::new().unwrap();
        let theirs = ours.as_fd().try_clone_to_owned().unwrap();
        (ours, theirs.into())
    }

    #[test]
    fn batches_of_any_size_are_shared() {
        let (mut ours, mut theirs) = shared();
        for rows in [1_u32, 1000, 3, 100_000] {
            let column = |by: f64| (0..rows).map(|row| f64::from(row) * by).collect();
            let columns: Vec<Vec<f64>> = vec![column(1.0), column(0.5)];
            let rows = columns[0].len();
            ours.write_inputs(&columns, 0, rows).unwrap();
            assert!(theirs.read_inputs(rows, 2).unwrap() == columns, "{rows}");
            let classes: Vec<u32> = (7..).take(rows).collect();
            theirs.write_scores(&columns[1], &classes).unwrap();
            let scores = ours.read_scores(rows).unwrap();
            assert!(scores == (columns[1].clone(), classes), "{rows}");
        }
    }

    #[test]
    fn a_part_of_a_batch_is_written() {
        let (mut ours, mut theirs) = shared();
        let columns = [vec![1.0, 2.0, 3.0], vec![4.0, 5.0, 6.0]];
        ours.write_inputs(&columns, 1, 2).unwrap();
        let part = theirs.read_inputs(2, 2).unwrap();
        assert_eq!(part, [vec![2.0, 3.0], vec![5.0, 6.0]]);
    }

    #[test]
    fn short_files_and_large_batches_are_errors() {
        let (mut ours, mut theirs) = shared();
        ours.write_inputs(&[vec![1.0]], 0, 1).unwrap();
        assert!(theirs.read_inputs(2, 1).is_err());
        for (rows, columns) in [(usize::MAX, 2), (MAX_BATCH / NUMBER, 2), (2, usize::MAX)] {
            let error = theirs.read_inputs(rows, columns).unwrap_err();
            assert!(error.to_string().contains("larger"), "{error}");
        }
        assert!(ours.read_scores(usize::MAX).is_err());
    }

    #[test]
    fn parts_fit_into_the_file() {
        for columns in [0, 1, 2, 80, 10_000_000] {
            let rows = rows_at_once(columns);
            assert!(rows >= 1);
            assert!(rows == 1 || rows * columns * NUMBER <= MAX_BATCH);
        }
    }
}
