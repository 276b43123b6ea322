//! Every dependency can be distributed under MIT or Apache-2.0; the list of licences is deny.toml's.

use std::fs;

use anyhow::{Context, Result};

use crate::metadata::{self, packages, text};
use crate::tally::Outcome;

pub(super) fn check() -> Result<Outcome> {
    let allowed = allow_list()?;
    let metadata = metadata::load(true)?;
    let refused: Vec<String> = packages(&metadata)
        .filter(|package| !satisfies(text(package, "license"), &allowed))
        .map(|package| {
            format!(
                "{} {}: licence {:?}",
                text(package, "name"),
                text(package, "version"),
                text(package, "license")
            )
        })
        .collect();
    Ok(super::verdict(
        &refused,
        "use another crate; deny.toml says which licences are allowed",
    ))
}

fn allow_list() -> Result<Vec<String>> {
    let text = fs::read_to_string("deny.toml").context("deny.toml")?;
    let table: toml::Table = text.parse().context("deny.toml")?;
    let list = table
        .get("licenses")
        .and_then(|licences| licences.get("allow"))
        .and_then(toml::Value::as_array)
        .context("deny.toml has no licenses.allow")?;
    Ok(list
        .iter()
        .filter_map(|licence| licence.as_str().map(str::to_owned))
        .collect())
}

/// Evaluates an SPDX expression: OR binds weaker than AND; `/` is the old spelling of OR.
fn satisfies(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = tokens.as_slice();
    let verdict = either(&mut rest, allowed);
    verdict && rest.is_empty()
}

fn either(tokens: &mut &[&str], allowed: &[String]) -> bool {
    let mut verdict = both(tokens, allowed);
    while let ["OR", rest @ ..] = *tokens {
        *tokens = rest;
        verdict |= both(tokens, allowed);
    }
    verdict
}

fn both(tokens: &mut &[&str], allowed: &[String]) -> bool {
    let mut verdict = one(tokens, allowed);
    while let ["AND", rest @ ..] = *tokens {
        *tokens = rest;
        verdict &= one(tokens, allowed);
    }
    verdict
}

fn one(tokens: &mut &[&str], allowed: &[String]) -> bool {
    match *tokens {
        ["(", rest @ ..] => {
            *tokens = rest;
            let verdict = either(tokens, allowed);
            if let [")", rest @ ..] = *tokens {
                *tokens = rest;
                return verdict;
            }
            false
        }
        [licence, "WITH", exception, rest @ ..] => {
            *tokens = rest;
            allowed.contains(&format!("{licence} WITH {exception}"))
        }
        [licence, rest @ ..] => {
            *tokens = rest;
            allowed.iter().any(|known| known == licence)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_as_spdx_means_them() {
        let allowed = ["MIT".to_owned(), "Unicode-3.0".to_owned()];
        for (expression, expected) in [
            ("MIT", true),
            ("MIT/GPL-3.0", true),
            ("GPL-2.0-only OR MIT", true),
            ("GPL-2.0-only AND MIT", false),
            ("(MIT OR GPL-2.0-only) AND Unicode-3.0", true),
            ("(MIT OR GPL-2.0-only) AND GPL-2.0-only", false),
            ("MIT WITH LLVM-exception", false),
            ("", false),
            ("(MIT", false),
        ] {
            assert_eq!(satisfies(expression, &allowed), expected, "{expression}");
        }
    }
}
