//! typos, from its wheel in a virtual environment under .cache.

use std::path::Path;

use anyhow::Result;

use crate::run;
use crate::tally::{Outcome, Skip};

const VERSION: &str = "1.52.0";

pub(super) fn check() -> Result<Outcome> {
    let environment = format!(".cache/typos-{VERSION}");
    let typos = format!("{environment}/bin/typos");
    if !Path::new(&typos).is_file() && install(&environment).is_err() {
        return Ok(Outcome::Skipped(Skip::new(
            "opt-in",
            "typos is not installed: needs python3-venv and a reachable Python package index",
        )));
    }
    Ok(match run::quietly(&typos, &["--config", "typos.toml"]) {
        Ok(()) => Outcome::Passed,
        Err(_) => Outcome::Failed(format!(
            "correct the words above (`{typos} --write-changes`), or add them to typos.toml"
        )),
    })
}

fn install(environment: &str) -> Result<()> {
    run::output("python3", &["-m", "venv", environment])?;
    run::output(
        &format!("{environment}/bin/pip"),
        &["install", "--quiet", &format!("typos=={VERSION}")],
    )?;
    Ok(())
}
