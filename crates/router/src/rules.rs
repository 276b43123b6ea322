//! Rules: five-tuple rules of which the first match counts, made from the rule sets of firewalls.
//!
//! What such rules cannot say is left to the kernel where that is sound: packets that may fall
//! under an inexpressible rule, and are not decided before it, are punted. A [`Note`] says so.

mod classbench;
mod compile;
mod csv;
mod format;
mod hits;
mod hook;
mod iptables;
mod nft;
mod objects;
mod region;
mod shadows;
mod show;
mod values;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use acl::{Rule4, Rule6};

use crate::budget::{Budget, Exhaustion};
use crate::enum_names::formats;
use crate::error::{Error, Fault, Place};
use crate::source::Source;
use format::Importer;

pub use hits::{Hits, RuleHits, rule_hits};
pub(crate) use shadows::covers;
pub use shadows::{Shadows, find_shadows};
pub use show::{RuleText, action};

formats! { Format or UnknownFormat of "rules" by Importer:
    /// ClassBench's filter sets.
    ClassBench = "classbench": classbench::IMPORTER,
    /// What `iptables-save` and `ip6tables-save` write.
    Iptables = "iptables": iptables::IMPORTER,
    /// What `nft -j list ruleset` writes.
    Nft = "nft": nft::IMPORTER,
    /// A table of our own: a header line that names columns, then a rule a line.
    Csv = "csv": csv::IMPORTER,
    /// The same as a JSON array of objects.
    Json = "json": objects::IMPORTER,
}

/// Which packets the rules are for: which of a firewall's chains they pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hook {
    /// From one device to another: prerouting, forward and postrouting.
    #[default]
    Forward,
    /// To this host: prerouting and input.
    Input,
}

/// How to read.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which format; by content when none is named.
    pub format: Option<Format>,
    pub hook: Hook,
    /// Only these tables of a firewall; all when none is named.
    pub tables: Vec<String>,
}

/// Rules of both families; the first that matches counts.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    /// A rule's `id` is the place of its origin in `origins`.
    pub v4: Vec<Rule4>,
    pub v6: Vec<Rule6>,
    pub origins: Vec<Origin>,
    /// What became of rules that the engine cannot hold as they are.
    pub notes: Vec<Note>,
}

/// What a rule was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub place: Place,
    /// The rule as the file has it, or the chain whose policy it is.
    pub text: Box<str>,
}

/// What the kernel does instead, or nobody, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub place: Place,
    pub kind: NoteKind,
    pub what: String,
}

/// What became of something that the engine cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoteKind {
    /// The kernel decides such packets.
    Punted,
    /// Something beside the decision is not done: a log entry, a counter.
    Undone,
    /// Not taken, as asked or as no such packet meets it.
    LeftOut,
}

/// Whether a file holds rules, by its beginning; routes in JSON begin as rules do, and are told apart by their members.
///
/// # Errors
/// Reading.
pub fn recognizes(path: &Path) -> Result<bool, Error> {
    let name = path.display().to_string();
    let budget = Budget::new();
    let source = File::open(path)
        .map_err(Fault::from)
        .and_then(|file| Source::new(file, &budget));
    let source = source.map_err(|fault| fault.of(&name))?;
    Ok(match format::detect(source.head()) {
        Ok(Format::Json) => {
            let head = String::from_utf8_lossy(source.head());
            head.contains("\"action\"")
        }
        detected => detected.is_ok(),
    })
}

/// Reads a file, packed by gzip or bzip2 or plain.
///
/// # Errors
/// The first thing that is not a rule of the format or can be neither expressed nor left to the
/// kernel, with its line; reading.
pub fn open(path: &Path, options: &Options) -> Result<RuleSet, Error> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|cause| Fault::from(cause).of(&name))?;
    read(&name, file, options)
}

/// As [`open`], of content that `name` stands for in errors.
///
/// # Errors
/// As `open`.
pub fn read(name: &str, input: impl Read, options: &Options) -> Result<RuleSet, Error> {
    import(input, options, &Budget::new()).map_err(|fault| fault.of(name))
}

fn import(input: impl Read, options: &Options, budget: &Budget) -> Result<RuleSet, Fault> {
    let source = Source::new(input, budget)?;
    let format = match options.format {
        Some(format) => format,
        None => format::detect(source.head())?,
    };
    let set = (format.importer().read)(&mut source.content(), options, budget)?;
    // No engine holds more, so that none has to say it.
    set.fits()
        .map_err(|error| Fault::new(Place::File, error.to_string()))?;
    Ok(set)
}

impl RuleSet {
    /// Whether lookups can hold the rules.
    ///
    /// # Errors
    /// Too many.
    pub fn fits(&self) -> Result<(), acl::Error> {
        acl::fits(&self.v4)?;
        acl::fits(&self.v6)
    }

    /// Adds an origin, and returns its place.
    fn origin(&mut self, place: Place, text: &str, budget: &Budget) -> Result<u32, String> {
        budget.hold(2 * size_of::<Origin>() + text.len())?;
        let at = u32::try_from(self.origins.len()).map_err(|_| "too many rules")?;
        let text = text.into();
        self.origins.push(Origin { place, text });
        Ok(at)
    }

    /// Adds a note.
    fn note(
        &mut self,
        place: Place,
        kind: NoteKind,
        what: String,
        budget: &Budget,
    ) -> Result<(), Exhaustion> {
        budget.hold(2 * size_of::<Note>() + what.len())?;
        self.notes.push(Note { place, kind, what });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
