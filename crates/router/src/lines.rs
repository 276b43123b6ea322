//! Text by lines, with their numbers.

use std::io::BufRead;

use crate::error::{Fault, Place};

/// No line of a table or rule set is longer.
const MAX_LINE_LEN: u64 = 1 << 20;

/// Lines of text; each is valid only until the next is read.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(input: R) -> Self {
        Self {
            input,
            line: Vec::new(),
            number: 0,
        }
    }

    /// The next line's number, from 1, and its text without the end.
    ///
    /// # Errors
    /// Reading, a line that is not UTF-8 or is longer than 1 MiB.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, &str)>, Fault> {
        self.line.clear();
        self.number += 1;
        let mut input = std::io::Read::take(&mut self.input, MAX_LINE_LEN);
        let read = input.read_until(b'\n', &mut self.line);
        if read.map_err(|cause| Fault::reading(Place::Line(self.number), cause))? == 0 {
            return Ok(None);
        }
        let whole = self.line.pop_if(|last| *last == b'\n').is_some();
        if !whole && self.line.len() as u64 == MAX_LINE_LEN {
            let what = "a line of more than 1 MiB: this is no text of routes or rules";
            return Err(Fault::line(self.number, what));
        }
        match std::str::from_utf8(&self.line) {
            Ok(text) => Ok(Some((self.number, text.trim_end()))),
            Err(_) => Err(Fault::line(self.number, "not text: no UTF-8")),
        }
    }
}
