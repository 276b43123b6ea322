//! A file that no longer fits a sitting is split.

use std::fs;

use anyhow::{Context, Result};

use crate::run;
use crate::tally::Outcome;

/// Lines a file may have, by how its name ends; the first that matches counts.
const LIMITS: &[(&str, usize)] = &[(".bpf.c", 200), (".rs", 800), ("ARCHITECTURE.md", 200)];

pub(super) fn check() -> Result<Outcome> {
    let endings: Vec<&str> = LIMITS.iter().map(|(ending, _)| *ending).collect();
    let mut long = Vec::new();
    for file in run::sources(&endings)? {
        let lines = fs::read_to_string(&file)
            .with_context(|| file.clone())?
            .lines()
            .count();
        let limit = LIMITS
            .iter()
            .find(|(ending, _)| file.ends_with(ending))
            .map_or(usize::MAX, |(_, limit)| *limit);
        if lines > limit {
            long.push(format!("{file}: {lines} lines, at most {limit}"));
        }
    }
    Ok(super::verdict(&long, "split them by what they decide"))
}
