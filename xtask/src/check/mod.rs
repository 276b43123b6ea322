//! Checks of the tree itself: form, spelling, licences, layers. None of them runs our code.

mod bpf_format;
mod circles;
mod impls;
mod layers;
mod licences;
mod lints;
mod marks;
mod modules;
mod sizes;
mod spelling;
mod test_files;
mod words;

use std::time::Instant;

use anyhow::Result;

use crate::Usage;
use crate::tally::{Outcome, Tally};

/// A check: `Ok(Some(..))` when it cannot run here, an error that says what to change.
struct Check {
    name: &'static str,
    what: &'static str,
    run: fn() -> Result<Outcome>,
}

const CHECKS: &[Check] = &[
    Check {
        name: "rustfmt",
        what: "Rust is formatted",
        run: lints::rustfmt,
    },
    Check {
        name: "bpf-format",
        what: "BPF C is formatted (clang-format)",
        run: bpf_format::check,
    },
    Check {
        name: "spelling",
        what: "no known misspellings (typos)",
        run: spelling::check,
    },
    Check {
        name: "layers",
        what: "crates depend downwards only",
        run: layers::check,
    },
    Check {
        name: "licences",
        what: "every dependency's licence is allowed by deny.toml",
        run: licences::check,
    },
    Check {
        name: "sizes",
        what: "files stay short enough to read",
        run: sizes::check,
    },
    Check {
        name: "circles",
        what: "few files import each other in a circle",
        run: circles::check,
    },
    Check {
        name: "impls",
        what: "the methods of a type are in one file",
        run: impls::check,
    },
    Check {
        name: "test-files",
        what: "every test file is compiled, by one program for each crate",
        run: test_files::check,
    },
    Check {
        name: "words",
        what: "renamed crates have the field's terms as names",
        run: words::check,
    },
    Check {
        name: "marks",
        what: "no unfinished work, and unsafe code only where it belongs",
        run: marks::check,
    },
    Check {
        name: "weight",
        what: "the programs link few crates, and none that is barred",
        run: crate::weight::check_links,
    },
    Check {
        name: "clippy",
        what: "no lint speaks",
        run: lints::clippy,
    },
];

pub(crate) fn list() {
    for check in CHECKS {
        println!("{:<12} {}", check.name, check.what);
    }
}

/// Runs the named checks, or all of them, and prints the closing line.
pub(crate) fn run(names: &[&str]) -> Result<Tally> {
    if let Some(unknown) = names
        .iter()
        .find(|name| !CHECKS.iter().any(|check| check.name == **name))
    {
        let message = format!("no check is called {unknown}: see `cargo xtask check --list`");
        return Err(Usage(message).into());
    }
    let mut tally = Tally::default();
    run_into(&mut tally, names, &[]);
    tally.close();
    Ok(tally)
}

/// Runs the named checks, or all but those to `skip`.
pub(crate) fn run_into(tally: &mut Tally, names: &[&str], skip: &[&str]) {
    for check in CHECKS {
        let named = names.is_empty() || names.contains(&check.name);
        if !named || skip.contains(&check.name) {
            continue;
        }
        let start = Instant::now();
        let outcome = (check.run)().unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        let word = match &outcome {
            Outcome::Passed => "ok",
            Outcome::Failed(_) => "FAILED",
            Outcome::Skipped(_) => "skipped",
        };
        println!(
            "{word:>8}  {:<12} {} ({:.1} s)",
            check.name,
            check.what,
            start.elapsed().as_secs_f64()
        );
        tally.add(&format!("check {}", check.name), outcome);
    }
}

/// Passed when nothing was found; otherwise the findings and what to do about them.
fn verdict(findings: &[String], remedy: &str) -> Outcome {
    if findings.is_empty() {
        Outcome::Passed
    } else {
        Outcome::Failed(format!("{}\n{remedy}", findings.join("\n")))
    }
}
