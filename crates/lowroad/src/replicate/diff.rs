//! `lowroad replicate diff`: lists the changes between two epochs of a log.

use std::path::PathBuf;

use clap::Args;
use replicate::diff::{self, Diff as Compared, Difference, What};
use serde_json::json;

use crate::exit::{self, Failure};

#[derive(Debug, Args)]
pub(super) struct Diff {
    /// Folder of the log
    #[arg(value_name = "LOG")]
    folder: PathBuf,
    /// Earlier epoch
    #[arg(long, value_name = "N")]
    from: u64,
    /// Later epoch [default: the last one]
    #[arg(long, value_name = "N")]
    to: Option<u64>,
}

impl Diff {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let compared = diff::diff(&self.folder, self.from, self.to)?;
        for difference in &compared.all {
            let line = match json {
                true => object(difference),
                false => words(difference),
            };
            if !exit::print_more(&format!("{line}\n"))? {
                return Ok(());
            }
        }
        exit::print(&format!("{}\n", summary(&compared, json)))
    }
}

fn words(Difference { path, what }: &Difference) -> String {
    let name = what.name();
    let path = path.escape_ascii();
    match what {
        What::Renamed { from } => {
            let from = from.escape_ascii();
            format!("{name:<9} ./{from} -> ./{path}")
        }
        What::Created | What::Removed | What::Content | What::Metadata => {
            format!("{name:<9} ./{path}")
        }
    }
}

fn object(Difference { path, what }: &Difference) -> String {
    let mut object = json!({ "what": what.name(), "path": path.escape_ascii().to_string() });
    if let What::Renamed { from } = what {
        object["from"] = from.escape_ascii().to_string().into();
    }
    object.to_string()
}

/// The last line, with the number of differences of each kind.
fn summary(compared: &Compared, json: bool) -> String {
    let count = |name: &str| {
        let all = compared.all.iter();
        all.filter(|difference| difference.what.name() == name)
            .count()
    };
    let names = ["created", "removed", "renamed", "content", "metadata"];
    let counts = names.map(|name| (name, count(name)));
    let Compared { from, to, .. } = compared;
    if json {
        let mut object = json!({ "from": from, "to": to });
        for (name, count) in counts {
            object[name] = count.into();
        }
        return json!({ "summary": object }).to_string();
    }
    let counts = counts.map(|(name, count)| format!("  {name} {count}"));
    format!("epochs {from} to {to}{}", counts.concat())
}
