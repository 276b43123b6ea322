//! ClassBench's filter sets, which say which packets and not what becomes of them: all accept.
//!
//! Their columns of TCP flags are no part of a five-tuple. A note says how many rules have one that counts.

use std::io::BufRead;

use acl::{Rule4, classbench};

use super::format::Importer;
use super::{Note, NoteKind, RuleSet};
use crate::budget::Budget;
use crate::error::{Fault, Place};
use crate::lines::Lines;

pub(super) const IMPORTER: Importer = Importer {
    recognizes: |head| head.line.starts_with('@'),
    read: |content, _, budget| read(content, budget),
};

/// The column of flags and their mask.
const FLAGS: usize = 9;

pub(super) fn read(content: impl BufRead, budget: &Budget) -> Result<RuleSet, Fault> {
    let mut rules = RuleSet::default();
    let (mut flagged, mut first) = (0_u64, None);
    let mut lines = Lines::new(content);
    while let Some((number, line)) = lines.next()? {
        let fault = |what| Fault::line(number, what);
        if line.trim().is_empty() {
            continue;
        }
        let place = Place::Line(number);
        let origin = rules.origin(place, "", budget);
        let id = origin.map_err(fault)?;
        let rule = classbench::rule(id, line).map_err(fault)?;
        let held = budget.hold(2 * size_of::<Rule4>());
        held.map_err(|exhausted| fault(exhausted.into()))?;
        rules.v4.push(rule);
        if let Some(flags) = line.split_whitespace().nth(FLAGS)
            && !any(flags)
        {
            flagged += 1;
            first.get_or_insert_with(|| (place, flags.to_owned()));
        }
    }
    if let Some((place, flags)) = first {
        let what = format!(
            "the TCP flags of {flagged} rules, here {flags}, are left out: the rules match packets with any flags"
        );
        rules.notes.push(Note {
            place,
            kind: NoteKind::LeftOut,
            what,
        });
    }
    Ok(rules)
}

/// Whether flags with an empty mask are meant.
fn any(flags: &str) -> bool {
    let mask = flags.rsplit_once("/0x").map(|(_, mask)| mask);
    mask.is_some_and(|mask| u16::from_str_radix(mask, 16) == Ok(0))
}
