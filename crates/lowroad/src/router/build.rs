//! `lowroad router build`: a table image from what people have, and what became of each line of it.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::given::{Made, failure};
use super::inputs::Inputs;
use super::report;
use crate::exit::{self, Failure};

#[derive(Debug, Args)]
pub(super) struct Build {
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    made: Made,
    /// The table image to write; without it, only what was read is said
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Build {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let read = self.inputs.read()?;
        let mut account = json!({
            "routes": read.routes.as_ref().map(|(name, imported)| report::routes_json(name, imported)),
            "rules": read.rules.as_ref().map(|(name, rules)| report::rules_json(name, rules)),
        });
        let mut text = String::new();
        if let Some((name, imported)) = &read.routes {
            text += &report::routes_text(name, imported);
        }
        if let Some((name, rules)) = &read.rules {
            text += &report::rules_text(name, rules);
        }
        let image = self.made.image(read)?;
        if let Some(out) = &self.out {
            let bytes = image.save(out).map_err(failure)?;
            account["image"] = json!({"file": out, "bytes": bytes});
            text += &format!("{}: {bytes} bytes\n", out.display());
        }
        if json {
            return exit::print(&format!("{account:#}\n"));
        }
        exit::print(&text)
    }
}
