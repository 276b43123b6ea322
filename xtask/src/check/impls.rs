//! Where the methods of a type are: its inherent impls are in one file of the crate.
//!
//! A type is found by its name. Where a crate has several types of one name, an impl belongs to that of its own file, or
//! else to the one whose module is nearest. Tests and trait impls are left out.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::modules::{Module, crates, is_word, product};
use crate::tally::Outcome;

/// Types whose impls are in several files: the crate, the type's path in it, and the number of files. An entry fails the
/// check as soon as its number is wrong, so that numbers only decrease and entries only leave.
const EXCEPTIONS: &[(&str, &str, usize)] = &[
    ("bpf", "map::Map", 2),
    ("features", "model::Column", 2),
    ("features", "model::Model", 2),
    ("features", "schema::Schema", 2),
    ("relay", "core::Core", 3),
    ("relay", "core::State", 4),
    ("relay", "kernel::tables::Tables", 2),
    ("replicate", "apply::Replica", 2),
    ("testbed", "environment::Kind", 2),
];

/// The files with inherent impls of each type, by the crate and the type's path.
type Impls = BTreeMap<(String, String), BTreeSet<Module>>;

pub(super) fn check() -> Result<Outcome> {
    let mut impls = Impls::new();
    for (name, modules) in crates()? {
        for (path, files) in of_crate(&modules) {
            impls.insert((name.clone(), path), files);
        }
    }
    Ok(super::verdict(
        &findings(&impls, EXCEPTIONS),
        "move the methods of a type into one file, or its duties into types and functions of their own",
    ))
}

fn findings(impls: &Impls, exceptions: &[(&str, &str, usize)]) -> Vec<String> {
    let mut findings = Vec::new();
    for ((name, path), files) in impls {
        let of_type = |(at, of, _): &&(&str, &str, usize)| at == name && of == path;
        let limit = exceptions
            .iter()
            .find(of_type)
            .map_or(1, |(.., limit)| *limit);
        if files.len() > limit {
            let files: Vec<String> = files.iter().map(|module| module.join("/")).collect();
            findings.push(format!(
                "{name}: impls of {path} are in {} files, at most {limit}: {}",
                files.len(),
                files.join(" ")
            ));
        }
    }
    for (name, path, limit) in exceptions {
        let key = ((*name).to_owned(), (*path).to_owned());
        let count = impls.get(&key).map_or(0, BTreeSet::len);
        if count < *limit {
            findings.push(format!(
                "{name}: the exception for {path} says {limit} files, and there are {count}: lower or delete it"
            ));
        }
    }
    findings
}

/// The files with inherent impls of each type of a crate, by the type's path.
fn of_crate(modules: &BTreeMap<Module, String>) -> BTreeMap<String, BTreeSet<Module>> {
    let sources: BTreeMap<&Module, String> = modules
        .iter()
        .map(|(module, source)| (module, product(source)))
        .collect();
    let mut types: BTreeMap<&str, BTreeSet<&Module>> = BTreeMap::new();
    for (module, source) in &sources {
        for name in source.lines().filter_map(defined) {
            types.entry(name).or_default().insert(module);
        }
    }
    let mut impls: BTreeMap<String, BTreeSet<Module>> = BTreeMap::new();
    for (module, source) in &sources {
        for name in inherent_impls(source) {
            let home = types.get(name).and_then(|homes| nearest(module, homes));
            let mut path = home.cloned().unwrap_or_default();
            path.push(name.to_owned());
            let files = impls.entry(path.join("::")).or_default();
            files.insert((*module).clone());
        }
    }
    impls
}

/// The module of those that has the longest beginning in common with this one; the shortest where several have.
fn nearest<'a>(module: &Module, homes: &BTreeSet<&'a Module>) -> Option<&'a Module> {
    let common = |home: &Module| {
        let parts = module.iter().zip(home);
        parts.take_while(|(one, other)| one == other).count()
    };
    let homes = homes.iter().copied();
    homes.max_by_key(|home| (*home == module, common(home), usize::MAX - home.len()))
}

/// The name of the type that a line defines.
fn defined(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(line) => match line.strip_prefix('(') {
            Some(line) => line.split_once(')')?.1,
            None => line,
        },
        None => line,
    };
    let (word, name) = line.trim_start().split_once(' ')?;
    let name = identifier(name);
    (matches!(word, "struct" | "enum" | "union") && !name.is_empty()).then_some(name)
}

/// The names of the types of which a source has inherent impls, once for each impl.
fn inherent_impls(source: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let (mut at, mut before) = (0, "");
    for line in source.split_inclusive('\n') {
        let text = line.trim();
        let start = at + line.len() - line.trim_start().len();
        at += line.len();
        if text
            .strip_prefix("impl")
            .is_some_and(|rest| rest.starts_with([' ', '<']))
        {
            let header = source[start + "impl".len()..].split('{').next();
            let tests = before == "#[cfg(test)]";
            names.extend(header.filter(|_| !tests).and_then(own_type));
        }
        before = text;
    }
    names
}

/// The type of an impl's header, without `impl`. A header with a trait has none.
fn own_type(header: &str) -> Option<&str> {
    let header = header.trim_start();
    let header = match header.starts_with('<') {
        true => &header[end_of_generics(header)?..],
        false => header,
    };
    let header = header.trim_start();
    let (path, rest) = match header.find('<') {
        Some(at) => (
            &header[..at],
            &header[at + end_of_generics(&header[at..])?..],
        ),
        None => (header, ""),
    };
    let is_trait = |text: &str| text.split_whitespace().any(|word| word == "for");
    if is_trait(path) || is_trait(rest.split("where").next().unwrap_or_default()) {
        return None;
    }
    let path = path.split_whitespace().next()?;
    let name = path.rsplit("::").next().map(identifier)?;
    (!name.is_empty()).then_some(name)
}

/// The length of the generics at the beginning of a text, brackets included.
fn end_of_generics(text: &str) -> Option<usize> {
    let mut depth = 0;
    let mut before = ' ';
    for (at, letter) in text.char_indices() {
        match letter {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
        before = letter;
    }
    None
}

fn identifier(text: &str) -> &str {
    let end = text.find(|letter| !is_word(letter)).unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(files: &[(&str, &str)]) -> BTreeMap<Module, String> {
        let module = |path: &str| -> Module {
            let parts = path.split('/').filter(|part| !part.is_empty());
            parts.map(str::to_owned).collect()
        };
        let files = files.iter();
        files
            .map(|(path, source)| (module(path), (*source).to_owned()))
            .collect()
    }

    #[test]
    fn headers_name_types() {
        for (header, name) in [
            (" Table {", Some("Table")),
            (
                "<'a, F: Fn() -> u32> super::Table<'a, F>\nwhere\n    F: for<'b> Fn() {",
                Some("Table"),
            ),
            (" Iterator for Table {", None),
            ("<A> From<A> for Table<A> {", None),
            (" Table<dyn for<'a> Fn(&'a u8)> {", Some("Table")),
            (" $name {", None),
        ] {
            assert_eq!(own_type(header.trim_end_matches('{')), name, "{header}");
        }
        assert_eq!(defined("pub(super) struct Table<A> {"), Some("Table"));
        assert_eq!(defined("    enum Kind {"), Some("Kind"));
        assert_eq!(defined("structure of things"), None);
    }

    #[test]
    fn types_of_one_name_are_told_apart() {
        let impls = of_crate(&modules(&[
            ("a", "pub struct Table;\nimpl Table {\n}\nmod part;"),
            (
                "a/part",
                "use super::Table;\nimpl Table {\n}\n#[cfg(test)]\nimpl Other {\n}",
            ),
            (
                "b",
                "struct Table;\nimpl Table {\n}\nimpl Default for Table {\n}",
            ),
            (
                "c",
                "// impl Table {\n#[cfg(test)]\nmod tests {\n    impl Table {\n    }\n}",
            ),
        ]));
        let counts: Vec<_> = impls
            .iter()
            .map(|(path, files)| (&path[..], files.len()))
            .collect();
        assert_eq!(counts, [("a::Table", 2), ("b::Table", 1)]);
    }

    #[test]
    fn exceptions_only_shrink() {
        let files = |count: usize| (0..count).map(|at| vec![at.to_string()]).collect();
        let impls = |count| Impls::from([(("relay".to_owned(), "Core".to_owned()), files(count))]);
        let known = [("relay", "Core", 3)];
        assert!(findings(&impls(3), &known).is_empty());
        assert!(findings(&impls(1), &[]).is_empty());
        assert!(findings(&impls(2), &[])[0].contains("at most 1"));
        assert!(findings(&impls(4), &known)[0].contains("at most 3"));
        assert!(findings(&impls(2), &known)[0].contains("lower"));
        assert!(findings(&Impls::new(), &known)[0].contains("there are 0"));
    }
}
