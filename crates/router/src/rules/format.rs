//! Which format a file of rules has: the first whose importer recognizes the beginning of the content.

use std::io::BufRead;

use super::{Format, Options, RuleSet};
use crate::budget::Budget;
use crate::error::{Fault, Place};

/// Reads rules of one format.
pub(super) struct Importer {
    /// Whether content that begins so has the format.
    pub(super) recognizes: fn(&Head<'_>) -> bool,
    pub(super) read: fn(&mut dyn BufRead, &Options, &Budget) -> Result<RuleSet, Fault>,
}

/// The beginning of content.
pub(super) struct Head<'a> {
    /// Without spaces before it.
    pub(super) text: &'a str,
    /// The first line that is neither empty nor a comment.
    pub(super) line: &'a str,
}

pub(super) fn detect(head: &[u8]) -> Result<Format, Fault> {
    let text = String::from_utf8_lossy(head);
    let said = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
    let head = Head {
        text: text.trim_start(),
        line: text.lines().find(said).unwrap_or_default(),
    };
    let recognizes = |format: &Format| (format.importer().recognizes)(&head);
    Format::ALL.into_iter().find(recognizes).ok_or_else(|| {
        let names = Format::ALL.map(Format::name).join(", ");
        let what = format!("no format of rules begins so: name it, one of {names}");
        Fault::new(Place::File, what)
    })
}
