//! Names of types, modules, files, constants and functions are the field's terms.
//!
//! The check refuses what it can recognise: bare participles, and words for moods or degrees. It covers the
//! crates that have been renamed.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::run;
use crate::tally::Outcome;

/// The folders that are checked. A crate that passes is added.
const FOLDERS: &[&str] = &[
    "crates/acl/",
    "crates/arguments/",
    "crates/benchmarks/",
    "crates/boot/",
    "crates/bpf/",
    "crates/compare/",
    "crates/control/",
    "crates/datapath/",
    "crates/experiment/",
    "crates/features/",
    "crates/gpu/",
    "crates/guest/",
    "crates/loadgen/",
    "crates/lowroad/",
    "crates/lpm/",
    "crates/nats/",
    "crates/netbench-agent/",
    "crates/netbench/",
    "crates/netdev/",
    "crates/onnx-protocol/",
    "crates/onnx/",
    "crates/packet/",
    "crates/prefix/",
    "crates/probes/",
    "crates/process/",
    "crates/python/",
    "crates/rcu/",
    "crates/relay/",
    "crates/replicate/",
    "crates/report/",
    "crates/router-c/",
    "crates/router/",
    "crates/splitmix/",
    "crates/stats/",
    "crates/sys/",
    "crates/test-support/",
    "crates/testbed/",
    "crates/units/",
    "crates/xsk/",
    "xtask/",
];

/// Words that do not say what a thing is. They are refused as the whole name of a type, a module or a file.
const VAGUE_WORDS: &str = "\
    again alive alone asleep awake behind beside beyond dead detail doubt due effort fake \
    foreign fresh inside keeper labour moment outlet outside own patience pen road room runs \
    seat standing talk unfit vague within world";

/// Words that a constant's name must not contain, and what to write instead.
const BARRED_IN_CONSTANTS: &[(&str, &str)] = &[
    ("again", "a noun"),
    ("alone", "LOCK"),
    ("beside", "a noun"),
    ("beyond", "PADDING"),
    ("deepest", "MAX_DEPTH"),
    ("earliest", "MIN"),
    ("enough", "TARGET"),
    ("everybody", "ALL"),
    ("fewest", "MIN"),
    ("few", "MAX"),
    ("highest", "MAX"),
    ("largest", "MAX_LEN or MAX_SIZE"),
    ("least", "MIN"),
    ("longest", "MAX_LEN"),
    ("lowest", "MIN"),
    ("many", "BATCH or MIN"),
    ("most", "MAX"),
    ("nobody", "NONE"),
    ("often", "INTERVAL"),
    ("patience", "TIMEOUT"),
    ("room", "CAPACITY"),
    ("seldom", "INTERVAL"),
    ("shortest", "MIN_LEN"),
    ("slowest", "MIN_RATE"),
    ("smallest", "MIN"),
    ("some", "MAX"),
    ("stuck", "TIMEOUT"),
    ("together", "BATCH"),
    ("worth", "THRESHOLD"),
];

/// Names of functions that do not say what the function does.
const BARRED_FUNCTIONS: &str = "\
    asked beside doubt given heard kept left made patience said shown told";

/// Participles that do not end in `ed`, without those that are nouns as well (bound, cut, set, split).
const IRREGULAR: &str = "\
    begun broken brought built caught chosen dealt done drawn driven fallen forgotten found \
    frozen given gone grown heard held hidden kept known laid left lent lost made meant met \
    paid said seen sent shown slept sold spent stolen stood swept taken thrown told torn withdrawn won \
    worn written";

/// Words that look like participles and are nouns, or terms that stand alone.
const ALLOWED_WORDS: &str = "\
    armed bed buffered cached disarmed done embed feed fixed mapped need pinned sched sealed seed shared \
    shed signed speed unpinned unsigned unsupported";

pub(super) fn check() -> Result<Outcome> {
    let mut findings = Vec::new();
    for file in run::sources(&[".rs"])? {
        if FOLDERS.iter().any(|folder| file.starts_with(folder)) {
            let text = fs::read_to_string(&file).with_context(|| file.clone())?;
            findings.extend(refused(&file, &text));
        }
    }
    Ok(super::verdict(
        &findings,
        "rename them after what they are: docs/src/glossary.md has the terms",
    ))
}

/// The refused names of a file, and of its module.
fn refused(file: &str, text: &str) -> Vec<String> {
    let own = module_name(file).and_then(|name| {
        let why = fault(Kind::Module, name)?;
        Some(format!("{file}: `{name}` {why}"))
    });
    let lines = (1..).zip(text.lines());
    let declared = lines.filter_map(|(number, line)| {
        let (kind, name) = declaration(line)?;
        let why = fault(kind, name)?;
        Some(format!("{file}:{number}: `{name}` {why}"))
    });
    own.into_iter().chain(declared).collect()
}

/// The name that a file gives its module; none of a crate's root.
fn module_name(file: &str) -> Option<&str> {
    let path = Path::new(file);
    let stem = match path.file_stem()?.to_str()? {
        "mod" => path.parent()?.file_name()?.to_str()?,
        stem => stem,
    };
    (!matches!(stem, "lib" | "main")).then_some(stem)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Type,
    Module,
    Constant,
    Function,
}

/// The declaration in a line, if there is one.
fn declaration(line: &str) -> Option<(Kind, &str)> {
    let mut kind = None;
    for word in without_visibility(line).split_whitespace() {
        kind = match word {
            "struct" | "enum" | "union" | "trait" | "type" => Some(Kind::Type),
            "mod" => Some(Kind::Module),
            "const" | "static" => Some(Kind::Constant),
            "fn" => Some(Kind::Function),
            "async" | "default" | "extern" | "mut" | "safe" | "unsafe" | "\"C\"" => kind,
            name => return Some((kind?, identifier(name))),
        };
    }
    None
}

fn without_visibility(line: &str) -> &str {
    let line = line.trim_start();
    let rest = line.strip_prefix("pub").unwrap_or(line);
    let scope = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    scope.map_or(rest, |(_, rest)| rest)
}

fn identifier(text: &str) -> &str {
    let end = text.find(|letter: char| letter != '_' && !letter.is_alphanumeric());
    &text[..end.unwrap_or(text.len())]
}

/// Why a name is refused.
fn fault(kind: Kind, name: &str) -> Option<String> {
    let words = words(name);
    let word = match words.as_slice() {
        [word] => Some(word.as_str()),
        _ => None,
    };
    match kind {
        Kind::Type | Kind::Module => {
            let word = word?;
            if lists(VAGUE_WORDS, word) {
                return Some("does not say what it is".to_owned());
            }
            is_participle(word).then(|| "is a participle: name the thing by a noun".to_owned())
        }
        Kind::Constant => {
            let barred = BARRED_IN_CONSTANTS
                .iter()
                .find(|(barred, _)| words.iter().any(|word| word == barred));
            if let Some((barred, instead)) = barred {
                return Some(format!("has `{}`: write {instead}", barred.to_uppercase()));
            }
            // Coordinates have a LEFT as well as a RIGHT.
            (name != "LEFT" && is_participle(word?))
                .then(|| "is a participle: name the quantity".to_owned())
        }
        Kind::Function => lists(BARRED_FUNCTIONS, word?)
            .then(|| "does not say what it does: begin with a verb".to_owned()),
    }
}

fn lists(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|listed| listed == word)
}

fn is_participle(word: &str) -> bool {
    let regular = word.len() > 3 && word.ends_with("ed");
    (regular || lists(IRREGULAR, word)) && !lists(ALLOWED_WORDS, word)
}

/// The words of a name, in small letters and without numbers: `next` and `hop` of `NextHop4` and of `NEXT_HOP`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_small = false;
    for letter in name.chars() {
        let begins = letter == '_' || letter.is_uppercase() && after_small;
        if begins && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        after_small = letter.is_lowercase();
        if letter.is_alphabetic()
            && let Some(word) = words.last_mut()
        {
            word.extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuses(line: &str) -> bool {
        !refused("crates/lpm/src/rib.rs", line).is_empty()
    }

    #[test]
    fn participles_and_moods_are_refused() {
        for line in [
            "struct Told;",
            "pub(crate) struct Held<'a> {",
            "pub enum Found {",
            "pub unsafe trait Covered<A>: Copy {",
            "    type Stored = u8;",
            "mod kept;",
            "pub(in crate::rib) struct Placed {",
            "struct Room4(u32);",
            "const PATIENCE: Duration = Duration::from_secs(30);",
            "pub(super) const MOST_BITS: u32 = 12;",
            "    const WITHDRAWN: f64 = 0.1;",
            "static ASKED: Mutex<()> = Mutex::new(());",
            "pub(crate) fn told() {}",
        ] {
            assert!(refuses(line), "{line}");
        }
    }

    #[test]
    fn terms_and_states_are_accepted() {
        for line in [
            "struct Shared<T> {",
            "pub struct SeedReport {",
            "pub struct RecvMeta {",
            "enum Width<B, W> {",
            "    Passed(u32),",
            "mod capacity;",
            "const MAX_BITS: u32 = 12;",
            "const UNPINNED: u64 = u64::MAX;",
            "const LEFT: f64 = 52.0;",
            "const fn found_or_created() {}",
            "fn masked(self) -> Self;",
            "const { Vec::new() };",
            "    // struct Told",
            "    \"pub(crate) struct Told;\",",
            "let most = 3;",
            "for<'a> fn(&'a u8)",
        ] {
            assert!(!refuses(line), "{line}");
        }
    }

    #[test]
    fn findings_name_file_line_and_remedy() {
        let found = refused("crates/lpm/src/kept/mod.rs", "\nconst LONGEST: u8 = 1;\n");
        let expected = [
            "crates/lpm/src/kept/mod.rs: `kept` is a participle: name the thing by a noun",
            "crates/lpm/src/kept/mod.rs:2: `LONGEST` has `LONGEST`: write MAX_LEN",
        ];
        assert_eq!(found, expected);
        assert!(refused("crates/lpm/src/lib.rs", "").is_empty());
        assert_eq!(refused("crates/lpm/tests/it/removed.rs", "").len(), 1);
    }

    #[test]
    fn names_are_divided_into_words() {
        assert_eq!(words("NextHop4"), ["next", "hop"]);
        assert_eq!(words("MAX_LINE_LEN"), ["max", "line", "len"]);
        assert_eq!(words("Room6"), ["room"]);
    }
}
