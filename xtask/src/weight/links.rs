//! Which crates the programs link.

use std::collections::BTreeSet;

use anyhow::Result;

use crate::run;
use crate::tally::Outcome;

/// Packages whose programs people build, and the most crates that each may be built from. Both read captures
/// compressed by xz and lz4, which take three crates and six seconds of a build. Crypto-PAn needs single blocks of AES,
/// which ring does not offer (its keys of QUIC headers give 5 of 16 bytes): aes, cipher and inout.
const LIMITS: &[(&str, usize)] = &[("lowroad", 255), ("compare", 252)];

/// Beginnings of names of crates that took a third of the build, and why the programs do without them.
const BARRED_CRATES: &[(&str, &str)] = &[
    ("tract-", "lowroad-onnx evaluates ONNX models"),
    ("arrow-cast", "features writes CSV and JSON itself"),
    ("arrow-csv", "features writes CSV and JSON itself"),
    ("arrow-json", "features writes CSV and JSON itself"),
    ("arrow-ord", "features writes CSV and JSON itself"),
    ("resvg", "report draws PNG itself"),
    ("fontdb", "report draws PNG itself"),
];

/// The check: each program is built from few enough crates, and from none that is barred.
pub(crate) fn check() -> Result<Outcome> {
    let mut findings = Vec::new();
    for (package, most) in LIMITS {
        let crates = crates(package)?;
        println!("{package}: {} crates of at most {most}", crates.len());
        if crates.len() > *most {
            findings.push(format!(
                "{package}: {} crates, at most {most}",
                crates.len()
            ));
        }
        for name in &crates {
            let barred = BARRED_CRATES
                .iter()
                .find(|(head, _)| name.starts_with(head));
            if let Some((_, why)) = barred {
                findings.push(format!("{package} must not link {name}: {why}"));
            }
        }
    }
    if findings.is_empty() {
        return Ok(Outcome::Passed);
    }
    Ok(Outcome::Failed(findings.join("\n")))
}

/// Every crate, with its version, that a package's programs are built from, build scripts included.
fn crates(package: &str) -> Result<BTreeSet<String>> {
    let tree = run::output(
        "cargo",
        &[
            "tree",
            "--locked",
            "--package",
            package,
            "--edges",
            "normal,build",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ],
    )?;
    Ok(tree.lines().filter_map(name).collect())
}

/// `serde v1.0.229 (proc-macro) (*)` is the crate `serde v1.0.229`.
fn name(line: &str) -> Option<String> {
    let mut words = line.split(' ');
    let (name, version) = (words.next()?, words.next()?);
    version
        .starts_with('v')
        .then(|| format!("{name} {version}"))
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn crate_lines_are_read() {
        let line = "serde_derive v1.0.229 (proc-macro) (*)";
        assert_eq!(name(line).as_deref(), Some("serde_derive v1.0.229"));
        assert_eq!(name("[build-dependencies]"), None);
    }
}
