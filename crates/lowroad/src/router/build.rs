//! `lowroad router build`: makes a table image of routes and rules, and reports on each line.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::inputs::Inputs;
use super::report;
use super::table_source::TableOptions;
use crate::exit::{self, Failure};

#[derive(Debug, Args)]
pub(super) struct Build {
    /// Write the table image here; without it, only print the report
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    options: TableOptions,
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
        let image = self.options.image(read)?;
        if let Some(out) = &self.out {
            let bytes = image.save(out)?;
            account["image"] = json!({"file": out.display().to_string(), "bytes": bytes});
            text += &format!("{}: {bytes} bytes\n", out.display());
        }
        if json {
            return exit::print(&format!("{account:#}\n"));
        }
        exit::print(&text)
    }
}
