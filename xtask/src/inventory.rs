//! The tests that this repository once had, and where each of them runs now: none is lost.
//!
//! `inventory.txt` lists the tests of commit 04ebe94. It was made from its sources: every function marked
//! `#[test]`, those inside `proptest!` included, under the module path that its program has for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, bail};

use crate::tally::Outcome;
use crate::test::Suite;

const LIST: &str = "xtask/inventory.txt";
/// Tests that run elsewhere or under another name, with the reason.
const EXCEPTIONS: &str = "xtask/inventory-exceptions.tsv";

/// Modules that only say how their tests run. A test keeps its name in the list when it moves into one.
const MARKERS: [&str; 2] = ["exclusive", "oldest_kernel"];

/// A test of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// It ran in the Linux 6.1 guest as well.
    pub(crate) guest: bool,
    /// It ran under `--full` only.
    full: bool,
}

/// Where a test of the list is now, if not under its own name in every run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Under its own name, by `--full` only.
    Full,
    /// The tests of these names make its assertions, under new names or with others.
    Merged(Vec<String>),
    /// The tested thing no longer exists.
    Gone,
}

/// The list and its exceptions.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    entries: Vec<Entry>,
    exceptions: BTreeMap<String, Place>,
}

/// The part of a crate's tests that a test belongs to: `relay` for unit tests, `relay it traps` for a
/// module of the integration tests.
pub(crate) fn group(name: &str) -> &str {
    let package = name.split(' ').next().unwrap_or_default();
    let integration = format!("{package} it ");
    match name.strip_prefix(&integration) {
        Some(path) => {
            let module = path.split("::").next().unwrap_or_default();
            &name[..integration.len() + module.len()]
        }
        None => package,
    }
}

/// A test's name without the modules that only say how it runs.
fn without_markers(name: &str) -> String {
    let (package, path) = name.rsplit_once(' ').unwrap_or(("", name));
    let parts: Vec<&str> = path
        .split("::")
        .filter(|part| !MARKERS.contains(part))
        .collect();
    format!("{package} {}", parts.join("::"))
}

impl Inventory {
    pub(crate) fn load() -> Result<Self> {
        let list = fs::read_to_string(LIST).context(LIST)?;
        let exceptions = fs::read_to_string(EXCEPTIONS).context(EXCEPTIONS)?;
        Self::parse(&list, &exceptions)
    }

    fn parse(list: &str, exceptions: &str) -> Result<Self> {
        Ok(Self {
            entries: list.lines().map(entry).collect::<Result<_>>()?,
            exceptions: exceptions_by_name(exceptions)?,
        })
    }

    /// The groups of which tests ran in the guest, by the names that they have now.
    pub(crate) fn guest_groups(&self) -> BTreeSet<&str> {
        let entries = self.entries.iter().filter(|entry| entry.guest);
        let names = entries.flat_map(|entry| match self.exceptions.get(&entry.name) {
            Some(Place::Merged(names)) => names.as_slice(),
            _ => std::slice::from_ref(&entry.name),
        });
        names.map(|name| group(name)).collect()
    }

    /// Looks every test of the list up among those of the built programs.
    pub(crate) fn check(&self, tests: &Tests) -> Outcome {
        let mut lost = Vec::new();
        let mut counts = Counts::default();
        for entry in &self.entries {
            if let Err(why) = self.place(entry, tests, &mut counts) {
                lost.push(format!("{}: {why}", entry.name));
            }
        }
        let listed: BTreeSet<&str> = self.entries.iter().map(|entry| &*entry.name).collect();
        for name in self.exceptions.keys() {
            if !listed.contains(name.as_str()) {
                lost.push(format!("{name}: an exception for a test that {LIST} lacks"));
            }
        }
        println!(
            "inventory: of {} tests {} run here, {} under --full only, {} are renamed or merged, {} are gone; \
             of {} in the guest {} are, {} are under --full only",
            self.entries.len(),
            counts.here,
            counts.full,
            counts.merged,
            counts.gone,
            counts.guest + counts.guest_full,
            counts.guest,
            counts.guest_full,
        );
        if lost.is_empty() {
            Outcome::Passed
        } else {
            lost.push(format!("restore them, or give the reason in {EXCEPTIONS}"));
            Outcome::Failed(lost.join("\n"))
        }
    }

    fn place(&self, entry: &Entry, tests: &Tests, counts: &mut Counts) -> Result<(), String> {
        let exception = self.exceptions.get(&entry.name);
        let names = match exception {
            Some(Place::Gone) => {
                counts.gone += 1;
                return if tests.all.contains(&entry.name) {
                    Err("is not gone".to_owned())
                } else {
                    Ok(())
                };
            }
            Some(Place::Merged(names)) => names.as_slice(),
            Some(Place::Full) | None => std::slice::from_ref(&entry.name),
        };
        if let Some(absent) = names.iter().find(|name| !tests.all.contains(*name)) {
            return Err(match exception {
                Some(Place::Merged(_)) => format!("merged into {absent}, which does not exist"),
                _ => "is lost".to_owned(),
            });
        }
        // A shorter test with the same assertions may run in the place of one that only `--full` runs.
        let ignored = names.iter().all(|name| tests.ignored.contains(name));
        match exception {
            Some(Place::Merged(_)) => counts.merged += 1,
            _ if ignored => counts.full += 1,
            _ => counts.here += 1,
        }
        if ignored && !entry.full && exception != Some(&Place::Full) {
            return Err("ran always, and is now run by --full only".to_owned());
        }
        if entry.guest && names.iter().any(|name| tests.guest.contains(name)) {
            counts.guest += 1;
        } else if entry.guest {
            counts.guest_full += 1;
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Counts {
    here: usize,
    full: usize,
    merged: usize,
    gone: usize,
    guest: usize,
    guest_full: usize,
}

/// The names of the tests that the built programs hold.
#[derive(Debug, Default)]
pub(crate) struct Tests {
    all: BTreeSet<String>,
    /// Tests that only `--full` runs.
    ignored: BTreeSet<String>,
    /// Tests that every run repeats in the guest.
    guest: BTreeSet<String>,
}

impl Tests {
    pub(crate) fn of(suites: &[Suite], guest: BTreeSet<String>) -> Self {
        let ignored = suites.iter().flat_map(|suite| {
            let names = suite.ignored.iter();
            names.map(|test| suite.binary.canonical(test))
        });
        let plain = |name: String| without_markers(&name);
        Self {
            all: suites
                .iter()
                .flat_map(Suite::canonical)
                .map(plain)
                .collect(),
            ignored: ignored.map(plain).collect(),
            guest: guest.into_iter().map(plain).collect(),
        }
    }
}

fn entry(line: &str) -> Result<Entry> {
    let Some((place, name)) = line.split_once(' ') else {
        bail!("{LIST}: {line}");
    };
    let name = name.trim_start();
    let (full, name) = match name.strip_prefix("full ") {
        Some(name) => (true, name),
        None => (false, name),
    };
    Ok(Entry {
        name: name.to_owned(),
        guest: place == "guest",
        full,
    })
}

/// The exceptions of each test. Several lines for one test name the tests that it is split into.
fn exceptions_by_name(text: &str) -> Result<BTreeMap<String, Place>> {
    let mut exceptions: BTreeMap<String, Place> = BTreeMap::new();
    let lines = text.lines();
    for line in lines.filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (name, place) = exception(line)?;
        match (exceptions.get_mut(&name), place) {
            (None, place) => {
                exceptions.insert(name, place);
            }
            (Some(Place::Merged(names)), Place::Merged(more)) => names.extend(more),
            _ => bail!("{EXCEPTIONS}: {name} has two places"),
        }
    }
    Ok(exceptions)
}

fn exception(line: &str) -> Result<(String, Place)> {
    let columns: Vec<&str> = line.split('\t').collect();
    let (name, place) = match columns.as_slice() {
        [name, "full", reason] if !reason.is_empty() => (name, Place::Full),
        [name, "gone", reason] if !reason.is_empty() => (name, Place::Gone),
        [name, place, reason] if !reason.is_empty() => match place.split_once(' ') {
            Some(("merged" | "renamed", into)) => {
                (name, Place::Merged(vec![without_markers(into)]))
            }
            _ => bail!("{EXCEPTIONS}: {place} is not full, gone, renamed NAME or merged NAME"),
        },
        _ => bail!("{EXCEPTIONS}: name, place and reason, separated by tabs: {line}"),
    };
    Ok(((*name).to_owned(), place))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str =
        "guest relay it traps::one\nhost  relay it traps::two\nhost  full relay three\n";

    fn tests(all: &[&str], ignored: &[&str]) -> Tests {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Tests {
            all: names(all),
            ignored: names(ignored),
            guest: BTreeSet::new(),
        }
    }

    fn findings(exceptions: &str, tests: &Tests) -> String {
        match Inventory::parse(LIST, exceptions).unwrap().check(tests) {
            Outcome::Failed(why) => why,
            _ => String::new(),
        }
    }

    #[test]
    fn lost_tests_are_found() {
        let all = ["relay it traps::one", "relay it traps::two", "relay three"];
        assert_eq!(findings("", &tests(&all, &["relay three"])), "");
        let lost = findings("", &tests(&all[1..], &[]));
        assert!(lost.contains("relay it traps::one: is lost"), "{lost}");
        let merged = "relay it traps::one\tmerged relay it traps::two\tone rig for both\n";
        assert_eq!(findings(merged, &tests(&all[1..], &[])), "");
        let split = format!("{merged}relay it traps::one\tmerged relay three\tits other half\n");
        assert_eq!(findings(&split, &tests(&all[1..], &[])), "");
        assert!(findings(&split, &tests(&all[1..2], &[])).contains("relay three, which"));
        let absent = findings(merged, &tests(&all[2..], &[]));
        assert!(absent.contains("which does not exist"), "{absent}");
    }

    #[test]
    fn tests_of_full_runs_need_a_reason() {
        let all = ["relay it traps::one", "relay it traps::two", "relay three"];
        let ignored = tests(&all, &["relay it traps::two"]);
        assert!(findings("", &ignored).contains("by --full only"));
        let reason = "relay it traps::two\tfull\ta minute of random input\n";
        assert_eq!(findings(reason, &ignored), "");
        assert!(Inventory::parse(LIST, "relay three\tfull\t\n").is_err());
    }

    #[test]
    fn markers_are_no_part_of_names() {
        let name = "relay it noise::exclusive::oldest_kernel::one";
        assert_eq!(without_markers(name), "relay it noise::one");
        assert_eq!(without_markers("relay exclusive::one"), "relay one");
    }

    #[test]
    fn groups_are_crates_or_modules() {
        assert_eq!(group("relay it traps::one"), "relay it traps");
        assert_eq!(group("relay it live::refused::one"), "relay it live");
        assert_eq!(group("relay config::tests::one"), "relay");
        let inventory = Inventory::parse(LIST, "").unwrap();
        assert_eq!(Vec::from_iter(inventory.guest_groups()), ["relay it traps"]);
    }
}
