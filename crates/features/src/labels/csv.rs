//! Lines of comma-separated values (RFC 4180), without line ends within quotes.

use std::io::{self, BufRead};

/// The longest line.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// Reads lines, and counts them from 1. Lines without any value are left out.
pub(super) struct Lines<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
    bytes: u64,
}

/// The values of a line, or why it is none.
type Fields = Result<Vec<String>, String>;

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            line: Vec::new(),
            number: 0,
            bytes: 0,
        }
    }

    /// The number of the line that was read last.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Bytes read so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn read(&mut self) -> io::Result<Option<Fields>> {
        loop {
            self.line.clear();
            let mut limited = io::Read::take(&mut self.input, MAX_LINE_BYTES);
            let came = limited.read_until(b'\n', &mut self.line)? as u64;
            if came == 0 {
                return Ok(None);
            }
            self.number += 1;
            self.bytes += came;
            if came == MAX_LINE_BYTES && !self.line.ends_with(b"\n") {
                return Ok(Some(Err("is longer than 64 KiB".to_owned())));
            }
            let text = text(&self.line);
            let mut text = text.trim_end_matches(['\n', '\r']);
            if self.number == 1 {
                text = text.trim_start_matches('\u{feff}');
            }
            match fields(text) {
                Ok(fields) if fields.iter().all(String::is_empty) => {}
                fields => return Ok(Some(fields)),
            }
        }
    }
}

/// A line as text: UTF-8, or the Windows code page in which CIC-IDS2017 has its dashes.
fn text(line: &[u8]) -> String {
    match std::str::from_utf8(line) {
        Ok(text) => text.to_owned(),
        Err(_) => line.iter().map(|byte| windows_1252(*byte)).collect(),
    }
}

fn windows_1252(byte: u8) -> char {
    match byte {
        0x91 | 0x92 => '\u{2019}',
        0x93 | 0x94 => '"',
        0x96 => '\u{2013}',
        0x97 => '\u{2014}',
        byte => char::from(byte),
    }
}

/// The values of a line, without spaces around them.
fn fields(line: &str) -> Fields {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let (field, after) = match rest.trim_start().strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        fields.push(field.trim().to_owned());
        match after.strip_prefix(',') {
            Some(after) => rest = after,
            None => return Ok(fields),
        }
    }
}

/// A value behind its first quote, and what follows its last one.
fn unquote(text: &str) -> Result<(String, &str), String> {
    let mut field = String::new();
    let mut rest = text;
    loop {
        let Some((part, after)) = rest.split_once('"') else {
            return Err("a quote that does not end".to_owned());
        };
        field += part;
        if let Some(after) = after.strip_prefix('"') {
            field.push('"');
            rest = after;
            continue;
        }
        let after = after.trim_start();
        if !after.is_empty() && !after.starts_with(',') {
            return Err("something between a quote and the next comma".to_owned());
        }
        return Ok((field, after));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Vec<(u64, Fields)> {
        let mut lines = Lines::new(text);
        let mut all = Vec::new();
        while let Some(fields) = lines.read().unwrap() {
            all.push((lines.number(), fields));
        }
        all
    }

    #[test]
    fn values_are_separated_by_commas_and_may_be_quoted() {
        let text = b"\xef\xbb\xbfa, b ,\r\n,,\n\n\"x,\"\"y\"\"\" ,\"\",z";
        let expected = [vec!["a", "b", ""], vec!["x,\"y\"", "", "z"]];
        let read: Vec<_> = read(text).into_iter().collect();
        assert_eq!(read[0], (1, Ok(expected[0].map_all())));
        assert_eq!(read[1], (4, Ok(expected[1].map_all())));
        assert_eq!(read.len(), 2);
    }

    trait MapAll {
        fn map_all(&self) -> Vec<String>;
    }

    impl MapAll for Vec<&str> {
        fn map_all(&self) -> Vec<String> {
            self.iter().map(|text| (*text).to_owned()).collect()
        }
    }

    #[test]
    fn lines_that_are_no_values_are_errors_with_their_number() {
        for (text, what) in [
            (&b"a\n\"b\n"[..], "a quote that does not end"),
            (
                b"a\n\"b\"c,d\n",
                "something between a quote and the next comma",
            ),
        ] {
            assert_eq!(read(text)[1], (2, Err(what.to_owned())));
        }
        let long = [b"a\n".to_vec(), vec![b'x'; 1 << 17]].concat();
        assert_eq!(read(&long)[1], (2, Err("is longer than 64 KiB".to_owned())));
    }

    #[test]
    fn dashes_of_windows_are_read() {
        let read = read(b"Web Attack \x96 XSS");
        assert_eq!(read[0].1, Ok(vec!["Web Attack \u{2013} XSS".to_owned()]));
    }
}
