//! ClassBench's filter sets, which say which packets and not what becomes of them: all accept.

use std::io::BufRead;

use acl::classbench;

use super::format::Importer;
use super::{Origin, RuleSet};
use crate::error::{Fault, Place};

pub(super) const IMPORTER: Importer = Importer {
    recognizes: |head| head.line.starts_with('@'),
    read: |content, _| read(content),
};

pub(super) fn read(content: impl BufRead) -> Result<RuleSet, Fault> {
    let fault = |error| match error {
        acl::Error::Line { line, what } => Fault::line(line as u64, what),
        acl::Error::Read(cause) => Fault::Read(cause),
        other => Fault::new(Place::File, other.to_string()),
    };
    let mut v4 = classbench::rules(content).map_err(fault)?;
    let mut origins = Vec::with_capacity(v4.len());
    for (at, rule) in (0..).zip(&mut v4) {
        origins.push(Origin {
            place: Place::Line(u64::from(rule.id)),
            text: "".into(),
        });
        rule.id = at;
    }
    Ok(RuleSet {
        v4,
        origins,
        ..RuleSet::default()
    })
}
