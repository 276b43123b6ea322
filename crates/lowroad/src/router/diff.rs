//! `lowroad router diff`: compares engines with a naive one, or two table images or files of routes or rules.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use lpm::Layout4;
use router::check::{self, CheckResult, Keys};
use router::engine::{Contents, Engine as _, Function};
use router::gpu::{CopyMode, Gpu};
use router::image::{self, Change, Changes, Image};
use serde_json::{Value, json};

use super::device::{self, Device};
use super::table_source::TableSource;
use crate::exit::{self, Failure, OrFail as _};

#[derive(Debug, Args)]
pub(super) struct Diff {
    /// Table image, in place of --rib and --rules
    image: Option<PathBuf>,
    /// Second table image, or file of routes or rules as the first may be too: list the differences from the first one
    #[arg(requires = "image")]
    new: Option<PathBuf>,
    /// Check rules with N five-tuples [default: about a second of them]
    #[arg(long, value_name = "N", conflicts_with = "new", value_parser = clap::value_parser!(u32).range(1..))]
    keys: Option<u32>,
    /// Random seed
    #[arg(long, default_value = "1", conflicts_with = "new")]
    seed: u64,
    #[command(flatten)]
    source: TableSource,
    #[command(flatten)]
    device: Device,
}

impl Diff {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        if let (Some(old), Some(new)) = (&self.image, &self.new) {
            let (old, new) = (self.source.image_of(old)?, self.source.image_of(new)?);
            return print_changes(&image::changes(&old, &new), json);
        }
        let image = self.source.image(self.image.as_deref())?;
        let device = self.device.device.as_deref();
        let device = device.map(|name| (name, layout4(&image), contents(&image)));
        let mut checked = Vec::new();
        if let Some(tables) = image.tables {
            checked.extend(check::tables(tables, self.seed)?.1);
        }
        if let Some(rules) = &image.rules {
            let found = check::rule_set(rules, self.keys(), self.seed);
            checked.extend(found.or_fail()?);
        }
        if let Some((name, layout4, contents)) = device {
            checked.extend(self.on_device(name, layout4, &contents)?);
        }
        exit::print(&if json {
            let engines: Vec<Value> = checked.iter().map(engine_json).collect();
            format!("{:#}\n", json!({ "engines": engines }))
        } else {
            checked.iter().map(engine_text).collect()
        })?;
        let wrong: usize = checked.iter().map(|checked| checked.wrong).sum();
        if wrong == 0 {
            return Ok(());
        }
        let what = "answers differ from the naive engine's; build the image again, and report it if they still do";
        Err(Failure::Failed(anyhow!("{wrong} {what}")))
    }

    fn keys(&self) -> Keys {
        self.keys
            .map_or(Keys::Usual, |keys| Keys::Exactly(keys as usize))
    }

    /// Checks the device with each function that there are tables for.
    fn on_device(
        &self,
        name: &str,
        layout4: Layout4,
        contents: &Contents,
    ) -> Result<Vec<CheckResult>, Failure> {
        let options = self.device.options(name, layout4)?;
        if options.copy == CopyMode::Full {
            let what = "--gpu-copy full sends frames, and keys are asked for here: leave it out";
            return Err(Failure::Input(what.to_owned()));
        }
        let routed = !contents.v4.is_empty() || !contents.v6.is_empty();
        let filtered = !contents.rules.v4.is_empty() || !contents.rules.v6.is_empty();
        let gpu = Gpu::setup(contents.clone(), &options).map_err(device::failure)?;
        for warning in gpu.warnings() {
            tracing::warn!("{warning}");
        }
        let mut checked = Vec::new();
        for function in Function::ALL {
            if function.routes() && !routed || function.filters() && !filtered {
                continue;
            }
            let mut processor = gpu.processor(function).or_fail()?;
            let found = check::processor(&mut processor, name, contents, self.keys(), self.seed);
            checked.extend(found.or_fail()?);
        }
        Ok(checked)
    }
}

fn layout4(image: &Image) -> Layout4 {
    let tables = image.tables.as_ref();
    tables.map_or(Layout4::Mixed, |tables| tables.layout4)
}

/// Routes and rules of an image.
fn contents(image: &Image) -> Contents {
    let mut contents = Contents::default();
    if let Some(tables) = &image.tables {
        contents.v4 = tables.fib4.rib().clone();
        contents.v6 = tables.fib6.rib().clone();
    }
    contents.rules = image.rules.clone().unwrap_or_default();
    contents
}

fn engine_text(checked: &CheckResult) -> String {
    let CheckResult {
        engine,
        keys,
        wrong,
        first,
    } = checked;
    let mut text = format!("{engine:<36} {keys:>9} keys  {wrong} wrong\n");
    for wrong in first {
        let (key, answer, right) = (&wrong.key, &wrong.answer, &wrong.right);
        text += &format!("  {key}: {answer}, where {right} is right\n");
    }
    text
}

fn engine_json(checked: &CheckResult) -> Value {
    let first = checked
        .first
        .iter()
        .map(|wrong| json!({"key": wrong.key, "answer": wrong.answer, "right": wrong.right}));
    json!({
        "engine": checked.engine,
        "keys": checked.keys,
        "wrong": checked.wrong,
        "first": first.collect::<Vec<_>>(),
    })
}

fn print_changes(changes: &Changes, json: bool) -> Result<(), Failure> {
    if json {
        let list = |changes: &[Change]| -> Vec<Value> {
            let change = |change: &Change| json!({"what": change.what, "before": change.before, "after": change.after});
            changes.iter().map(change).collect()
        };
        let account = json!({
            "routes": list(&changes.routes),
            "rules": list(&changes.rules),
            "rules_moved": changes.moved,
        });
        return exit::print(&format!("{account:#}\n"));
    }
    if changes.is_empty() {
        return exit::print("no difference\n");
    }
    let mut text = summary("routes", &changes.routes);
    text += &changes.routes.iter().map(line).collect::<String>();
    text += &summary("rules", &changes.rules);
    text += &changes.rules.iter().map(line).collect::<String>();
    if changes.moved > 0 {
        text += &format!("{} rules come in another order\n", changes.moved);
    }
    exit::print(&text)
}

fn summary(what: &str, changes: &[Change]) -> String {
    let added = changes
        .iter()
        .filter(|change| change.before.is_none())
        .count();
    let removed = changes
        .iter()
        .filter(|change| change.after.is_none())
        .count();
    let changed = changes.len() - added - removed;
    format!("{what}: {added} added, {removed} removed, {changed} changed\n")
}

fn line(change: &Change) -> String {
    let what = &change.what;
    match (&change.before, &change.after) {
        (None, Some(after)) => format!("  + {what}  {after}\n"),
        (Some(before), None) => format!("  - {what}  {before}\n"),
        (before, after) => {
            let text = |side: &Option<String>| side.clone().unwrap_or_default();
            format!("  ~ {what}  {} -> {}\n", text(before), text(after))
        }
    }
}
