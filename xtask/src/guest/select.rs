//! Which tests run in the guest.
//!
//! In every run: those that only another kernel can answer, by name in `guest.txt`, and all in a module
//! named `oldest_kernel`. Under `--full`: every module of which a test ever ran there, too.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::inventory::{self, Inventory};
use crate::test::{Binary, Scope, Suite};

const LIST: &str = "xtask/guest.txt";
/// The tests of a module of this name run in the guest without being listed.
const MODULE: &str = "oldest_kernel";

/// The tests that one command in the guest runs.
#[derive(Debug)]
pub(super) enum Selection<'a> {
    /// Tests of one module.
    Tests {
        binary: &'a Binary,
        tests: Vec<&'a str>,
    },
    /// `lowroad doctor`.
    Doctor,
}

impl Selection<'_> {
    pub(super) fn name(&self) -> String {
        match self {
            Selection::Doctor => "lowroad doctor".to_owned(),
            Selection::Tests { binary, tests } => {
                let first = tests.first().map(|test| binary.canonical(test));
                inventory::group(&first.unwrap_or_default()).to_owned()
            }
        }
    }
}

/// The names of the tests that every run repeats in the guest. Of the list, only what is of the scope must
/// exist.
pub(crate) fn names(suites: &[Suite], scope: &Scope) -> Result<BTreeSet<String>> {
    let text = fs::read_to_string(LIST).context(LIST)?;
    let in_scope = |line: &str| match scope {
        Scope::Workspace => true,
        Scope::Package(package) => line.split(' ').next() == Some(package.as_str()),
    };
    let listed: Vec<&str> = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#') && in_scope(line))
        .collect();
    let all: Vec<String> = suites.iter().flat_map(Suite::canonical).collect();
    choose(&listed, &all)
}

fn choose(listed: &[&str], all: &[String]) -> Result<BTreeSet<String>> {
    let is_listed = |line: &str, test: &str| {
        // A line that ends in `::` names a module.
        test == line || line.ends_with("::") && test.starts_with(line)
    };
    let absent: Vec<&str> = listed
        .iter()
        .copied()
        .filter(|line| !all.iter().any(|test| is_listed(line, test)))
        .collect();
    if !absent.is_empty() {
        bail!(
            "{LIST} names tests that do not exist:\n{}",
            absent.join("\n")
        );
    }
    Ok(all
        .iter()
        .filter(|test| {
            let path = test.rsplit(' ').next().unwrap_or_default();
            path.split("::").any(|part| part == MODULE)
                || listed.iter().any(|line| is_listed(line, test))
        })
        .cloned()
        .collect())
}

/// The guest's commands, one for each module: `lowroad doctor` comes last.
pub(super) fn selections<'a>(
    suites: &'a [Suite],
    scope: &Scope,
    full: bool,
) -> Result<Vec<Selection<'a>>> {
    let names = names(suites, scope)?;
    let inventory = Inventory::load()?;
    let groups = if full {
        inventory.guest_groups()
    } else {
        BTreeSet::new()
    };
    let mut selections = Vec::new();
    for suite in suites {
        let binary = &suite.binary;
        let runs = suite.tests.iter().filter(|test| {
            let name = binary.canonical(test);
            let chosen = names.contains(&name) || groups.contains(inventory::group(&name));
            chosen && !suite.ignored.contains(test)
        });
        let mut tests: Vec<&str> = runs.map(String::as_str).collect();
        let group = |test: &&str| inventory::group(&binary.canonical(test)).to_owned();
        // The order of `--list` is not promised.
        tests.sort_by_key(group);
        let modules = tests.chunk_by(|a, b| group(a) == group(b));
        selections.extend(modules.map(|tests| Selection::Tests {
            binary,
            tests: tests.to_vec(),
        }));
    }
    if matches!(scope, Scope::Workspace) {
        selections.push(Selection::Doctor);
    }
    Ok(selections)
}

#[cfg(test)]
mod tests {
    use super::choose;

    #[test]
    fn tests_are_chosen_by_name_and_module() {
        let all = [
            "relay it traps::one",
            "relay it traps::two",
            "xsk it veth::oldest_kernel::three",
            "xsk it veth::four",
        ];
        let all = all.map(str::to_owned);
        let chosen = |listed: &[&str]| Vec::from_iter(choose(listed, &all).unwrap());
        assert_eq!(chosen(&[]), [all[2].clone()]);
        assert_eq!(chosen(&["relay it traps::two"]), all[1..3]);
        assert_eq!(chosen(&["relay it traps::"]), all[..3]);
        let error = choose(&["relay it traps::tw"], &all)
            .unwrap_err()
            .to_string();
        assert!(error.contains("relay it traps::tw"), "{error}");
    }
}
