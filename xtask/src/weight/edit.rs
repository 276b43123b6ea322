//! The time that a developer waits after a change of one line in relay's core.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::build::{self, Cost};
use crate::tally::{Outcome, Tally};

/// A checkout with a build of its own, kept so that the next weighing starts from a warm one.
const FOLDER: &str = "target/weight/edit";

/// The file that is changed.
const FILE: &str = "crates/relay/src/core/mod.rs";

/// Each build with its arguments, and the seconds that it may take on two cores.
const BUILDS: &[(&str, &[&str], f64)] = &[
    (
        "the dev binary",
        &["build", "--locked", "--quiet", "--bin", "lowroad"],
        30.0,
    ),
    (
        "relay's tests",
        &[
            "test",
            "--locked",
            "--quiet",
            "--package",
            "relay",
            "--tests",
            "--no-run",
        ],
        60.0,
    ),
];

pub(super) fn weigh(tally: &mut Tally) -> Result<()> {
    let folder = Path::new(FOLDER);
    if !folder.exists() {
        build::checkout("HEAD", folder)?;
    }
    let head = crate::run::output("git", &["rev-parse", "HEAD"])?;
    let checkout = folder.to_string_lossy().into_owned();
    for step in [
        &["fetch", "--quiet", "origin"][..],
        &["checkout", "--quiet", "--force", "--detach", head.trim()][..],
    ] {
        crate::run::quietly("git", &[&["-C", &checkout][..], step].concat())?;
    }
    for (what, arguments, limit) in BUILDS {
        build::cargo(folder, arguments).with_context(|| format!("{what}, before the change"))?;
        change(&folder.join(FILE))?;
        let cost = build::measure(|| build::cargo(folder, arguments))?;
        report(tally, what, cost, *limit);
    }
    Ok(())
}

fn report(tally: &mut Tally, what: &str, cost: Cost, limit: f64) {
    let text = format!(
        "{:.0} s of at most {limit:.0} s on two cores ({:.0} s of CPU time)",
        cost.wall, cost.cpu
    );
    println!("{what}: {text}");
    let outcome = if cost.wall <= limit {
        Outcome::Passed
    } else {
        Outcome::Failed(text)
    };
    tally.add(&format!("weight: {what}"), outcome);
}

/// Adds a line that ends up in the program, another one at each call.
fn change(file: &Path) -> Result<()> {
    let name = file.display().to_string();
    let text = fs::read_to_string(file).with_context(|| name.clone())?;
    let number = text.matches("static WEIGHT_").count();
    let line = format!("#[used] static WEIGHT_{number}: usize = {number};\n");
    fs::write(file, text + &line).with_context(|| name)
}
