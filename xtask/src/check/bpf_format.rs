//! clang-format over our BPF C; the vendored vmlinux.h keeps its own form.

use anyhow::Result;

use crate::run;
use crate::tally::{Outcome, Skip};

pub(super) fn check() -> Result<Outcome> {
    if !run::exists("clang-format") {
        return Ok(Outcome::Skipped(Skip::new(
            "core",
            "needs clang-format: apt-get install clang-format",
        )));
    }
    let mut arguments = vec!["--dry-run".to_owned(), "-Werror".to_owned()];
    let options = arguments.len();
    arguments.extend(sources()?);
    if arguments.len() == options {
        return Ok(Outcome::Passed);
    }
    Ok(match run::quietly("clang-format", &arguments) {
        Ok(()) => Outcome::Passed,
        Err(_) => Outcome::Failed("run `clang-format -i` on the files named above".to_owned()),
    })
}

fn sources() -> Result<Vec<String>> {
    Ok(run::sources(&[".bpf.c", ".h", ".bpf.h"])?
        .into_iter()
        .filter(|file| file.contains("/bpf/") && !file.ends_with("vmlinux.h"))
        .collect())
}
