//! Which format a file has: the first whose importer recognizes the beginning of the content.

use std::io::BufRead;

use super::table::Builder;
use super::{Format, Options};
use crate::error::{Fault, Place};

/// Reads routes of one format.
pub(super) struct Importer {
    /// Whether content that begins so has the format. A file of a format that is refused may be an error.
    pub(super) recognizes: fn(&Head<'_>) -> Result<bool, Fault>,
    pub(super) read: fn(&mut dyn BufRead, &Options, &mut Builder<'_>) -> Result<(), Fault>,
}

/// The beginning of content.
#[derive(Default)]
pub(super) struct Head<'a> {
    pub(super) bytes: &'a [u8],
    /// The first character of text, behind spaces.
    pub(super) first: Option<char>,
    /// Of the first line that is neither empty nor a comment; none of what is no text, or JSON.
    pub(super) words: Vec<&'a str>,
}

impl<'a> Head<'a> {
    fn new(bytes: &'a [u8], text: &'a str) -> Self {
        if bytes.contains(&0) {
            return Self {
                bytes,
                ..Self::default()
            };
        }
        let first = text.trim_start().chars().next();
        let said = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
        let line = text.lines().find(said).unwrap_or_default();
        let json = matches!(first, Some('[' | '{'));
        let words = line.split_whitespace().filter(|_| !json).collect();
        Self {
            bytes,
            first,
            words,
        }
    }
}

/// The format of content that begins with `head`.
pub(super) fn detect(head: &[u8]) -> Result<Format, Fault> {
    let unknown = |what: &str| Err(Fault::new(Place::File, what));
    if head.is_empty() {
        return unknown("empty");
    }
    let text = String::from_utf8_lossy(head);
    let head = Head::new(head, &text);
    for format in Format::ALL {
        if (format.importer().recognizes)(&head)? {
            return Ok(format);
        }
    }
    if head.bytes.contains(&0) {
        return unknown("neither text nor MRT");
    }
    unknown("no route in it")
}
