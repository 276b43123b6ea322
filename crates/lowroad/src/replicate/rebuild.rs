//! `lowroad replicate verify --rebuild`: rebuilds the tree from the log alone, and compares it.

use std::path::{Path, PathBuf};

use replicate::verify::{self, Progress, Rebuilt, Scope, Step, Verdict};
use serde_json::json;

use super::verify::{Line, judge, object, text};
use crate::exit::{self, Failure};

/// The names of the two sides of a comparison.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sides(pub(super) &'static str, pub(super) &'static str);

impl Sides {
    pub(super) const LOG: Self = Self("log", "folder");
    const REBUILT: Self = Self("log", "rebuilt");
    const AGAINST: Self = Self("rebuilt", "folder");
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Rebuild<'a> {
    pub(super) log: &'a Path,
    pub(super) epoch: Option<u64>,
    /// The folder for the rebuilt tree. By default it is beside the log.
    pub(super) within: Option<&'a Path>,
    pub(super) against: Option<&'a Path>,
    pub(super) scope: Scope,
}

impl Rebuild<'_> {
    pub(super) fn run(&self, line: &mut Line<'_>, json: bool) -> Result<(), Failure> {
        let within = match self.within {
            Some(within) => within.to_owned(),
            None => parent_folder(self.log)?,
        };
        let mut watch = |step, progress: &Progress| {
            let doing = match step {
                Step::Making => "rebuilding  ",
                Step::Log => "with the log  ",
                Step::Against => "with the folder  ",
            };
            line.show(doing, progress)
        };
        let places = (within.as_path(), self.against);
        let rebuilt = verify::verify_rebuilt(self.log, self.epoch, places, self.scope, &mut watch);
        line.clear();
        let rebuilt = rebuilt?;
        let report = if json {
            format!("{}\n", object_of(&rebuilt))
        } else {
            self.words(&rebuilt)
        };
        exit::print(&report)?;
        judge(&verdicts(&rebuilt))
    }

    fn words(&self, rebuilt: &Rebuilt) -> String {
        let mut words = text(&rebuilt.log, Sides::REBUILT) + "  log and rebuilt tree\n";
        if let (Some(verdict), Some(against)) = (&rebuilt.against, self.against) {
            let against = against.display();
            words += &text(verdict, Sides::AGAINST);
            words += &format!("  rebuilt tree and {against}\n");
        }
        words
    }
}

/// The parent of the log's folder.
fn parent_folder(log: &Path) -> Result<PathBuf, Failure> {
    let real = log.canonicalize();
    let real = real.map_err(|error| Failure::Input(format!("{}: {error}", log.display())))?;
    let parent = real.parent().map(Path::to_owned);
    parent.ok_or_else(|| Failure::Input("nothing is beside the log: name --in".to_owned()))
}

fn verdicts(rebuilt: &Rebuilt) -> Vec<&Verdict> {
    [Some(&rebuilt.log), rebuilt.against.as_ref()]
        .into_iter()
        .flatten()
        .collect()
}

fn object_of(rebuilt: &Rebuilt) -> serde_json::Value {
    let all = verdicts(rebuilt);
    json!({
        "equal": rebuilt.equal(),
        "partial": all.iter().any(|verdict| verdict.partial),
        "epoch": rebuilt.log.epoch,
        "names": rebuilt.names,
        "bytes": rebuilt.bytes,
        "differences": all.iter().map(|verdict| verdict.differing).sum::<u64>(),
        "undecided": all.iter().map(|verdict| verdict.undecided_count).sum::<u64>(),
        "rebuilt": object(&rebuilt.log, Sides::REBUILT),
        "against": rebuilt.against.as_ref().map(|verdict| object(verdict, Sides::AGAINST)),
    })
}
