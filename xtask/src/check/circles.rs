//! Circles of files that import each other: what is in one is only understood as a whole.
//!
//! An edge is a path that begins with `crate`, `super` or `self` and leads to another file; one that leads
//! to a module's own ancestor is none. What follows `#[cfg(test)] mod` is left out.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::modules::{Module, crates, is_word, product};
use crate::tally::Outcome;

/// How many files may import each other in a circle.
const LIMIT: usize = 8;

type Graph = BTreeMap<Module, BTreeSet<Module>>;

pub(super) fn check() -> Result<Outcome> {
    let mut findings = Vec::new();
    let mut largest = 0;
    for (name, modules) in crates()? {
        for circle in circles(&graph(&modules)) {
            largest = largest.max(circle.len());
            if circle.len() > LIMIT {
                let files: Vec<String> = circle.iter().map(|module| module.join("/")).collect();
                findings.push(format!(
                    "{name}: {} files import each other in a circle, at most {LIMIT}: {}",
                    circle.len(),
                    files.join(" ")
                ));
            }
        }
    }
    println!("largest circle of imports: {largest} files");
    Ok(super::verdict(
        &findings,
        "move what both sides of an import need into a file that imports neither",
    ))
}

fn graph(modules: &BTreeMap<Module, String>) -> Graph {
    let edges = |module: &Module, source: &str| -> BTreeSet<Module> {
        paths(&product(source))
            .iter()
            .filter_map(|path| target(module, path, modules))
            .collect()
    };
    modules
        .iter()
        .map(|(module, source)| (module.clone(), edges(module, source)))
        .collect()
}

/// The file that a path leads to: the deepest there is on its way. None for the module itself and for
/// those it is in.
fn target(module: &Module, path: &[String], modules: &BTreeMap<Module, String>) -> Option<Module> {
    let (root, rest) = path.split_first()?;
    let mut full = match root.as_str() {
        "crate" => Vec::new(),
        _ => module.clone(),
    };
    if root == "super" {
        full.pop();
    }
    let supers = rest.iter().take_while(|part| *part == "super").count();
    full.truncate(full.len().saturating_sub(supers));
    full.extend_from_slice(&rest[supers..]);
    while !modules.contains_key(&full) {
        full.pop()?;
    }
    (!full.is_empty() && !module.starts_with(&full)).then_some(full)
}

/// Every path of a source that begins with `crate`, `super` or `self`; one that ends in braces is as many
/// paths as these have members, of which the first braces inside them end.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut at = 0;
    let mut before = ' ';
    while let Some(letter) = code[at..].chars().next() {
        let rest = &code[at..];
        let root = ["crate", "super", "self"]
            .into_iter()
            .find(|root| !is_word(before) && rest.starts_with(root));
        let Some(root) = root else {
            before = letter;
            at += letter.len_utf8();
            continue;
        };
        let mut base = vec![root.to_owned()];
        let mut rest = &rest[root.len()..];
        while let Some(part) = rest.strip_prefix("::") {
            let end = part.find(|letter| !is_word(letter)).unwrap_or(part.len());
            if end == 0 {
                break;
            }
            base.push(part[..end].to_owned());
            rest = &part[end..];
        }
        if let Some((members, after)) = rest.strip_prefix("::{").and_then(braces)
            && !members.is_empty()
        {
            found.extend(split(members).map(|member| [&base[..], &parts(member)[..]].concat()));
            rest = after;
        } else {
            found.push(base);
        }
        at = code.len() - rest.len();
        before = code[..at].chars().next_back().unwrap_or(' ');
    }
    found
}

/// The text before the closing brace, with at most one level of braces inside, and the text after it.
fn braces(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0;
    for (at, letter) in text.char_indices() {
        match letter {
            '{' if depth == 1 => return None,
            '{' => depth = 1,
            '}' if depth == 0 => return Some((&text[..at], &text[at + 1..])),
            '}' => depth = 0,
            _ => {}
        }
    }
    None
}

/// The members of braces, apart from commas inside of inner ones.
fn split(members: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    members
        .split(move |letter| {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            letter == ',' && depth == 0
        })
        .filter(|member| !member.trim().is_empty())
}

/// The names of one member, up to its inner braces.
fn parts(member: &str) -> Vec<String> {
    let first = member.trim().split(' ').next().unwrap_or_default();
    first
        .trim_end_matches('{')
        .split("::")
        .filter(|part| !part.is_empty() && part.chars().all(is_word))
        .map(str::to_owned)
        .collect()
}

/// The strongly connected components of more than one file: files that each reach all others.
fn circles(graph: &Graph) -> Vec<Vec<&Module>> {
    let mut found = Vec::new();
    let mut left: BTreeSet<&Module> = graph.keys().collect();
    let back = reversed(graph);
    while let Some(first) = left.pop_first() {
        let forth = reachable(graph, first);
        let circle: Vec<&Module> = reachable(&back, first)
            .intersection(&forth)
            .filter_map(|module| graph.get_key_value(*module))
            .map(|(module, _)| module)
            .collect();
        for module in &circle {
            left.remove(module);
        }
        if circle.len() > 1 {
            found.push(circle);
        }
    }
    found
}

fn reversed(graph: &Graph) -> Graph {
    let mut back: Graph = graph
        .keys()
        .map(|module| (module.clone(), BTreeSet::new()))
        .collect();
    for (from, targets) in graph {
        for to in targets {
            back.entry(to.clone()).or_default().insert(from.clone());
        }
    }
    back
}

/// A module and all that can be reached from it.
fn reachable<'a>(graph: &'a Graph, from: &'a Module) -> BTreeSet<&'a Module> {
    let mut seen = BTreeSet::from([from]);
    let mut waiting = vec![from];
    while let Some(module) = waiting.pop() {
        for next in graph.get(module).into_iter().flatten() {
            if seen.insert(next) {
                waiting.push(next);
            }
        }
    }
    seen
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
    fn circles_span_files() {
        let modules = modules(&[
            ("", "mod a; mod b; mod c;"),
            ("a", "use crate::b::{self, Type};\nmod inner;"),
            ("a/inner", "use super::Own; use super::super::c;"),
            ("b", "use super::{a::inner::{One, Two}, c}; // crate::d"),
            ("c", "#[cfg(test)]\nmod tests {\n    use crate::a;\n}"),
        ]);
        let graph = graph(&modules);
        // `a` and `b` import each other's files only by way of `inner`, which imports `c`.
        assert!(circles(&graph).is_empty(), "{graph:?}");
        let mut modules = modules;
        modules.insert(
            vec!["c".to_owned()],
            "fn f() { crate::a::go(); }".to_owned(),
        );
        let graph = super::graph(&modules);
        let circles = circles(&graph);
        assert_eq!(circles.len(), 1);
        assert_eq!(circles[0].len(), 4, "{circles:?}");
    }

    #[test]
    fn braces_are_several_paths() {
        let found = paths("use crate::{a::B, c::{D, E}, f};");
        let found: Vec<String> = found.iter().map(|path| path.join("::")).collect();
        assert_eq!(found, ["crate::a::B", "crate::c", "crate::f"]);
    }
}
