//! The meaning of patterns in its simplest form: name by name, without preparation. It shares no
//! code with the code under test, and supports only `*`, `?` and `**`.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use replicate::patterns::Patterns;

/// Patterns, and what they leave in. None leave everything in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Naive {
    include: Vec<String>,
    exclude: Vec<String>,
}

impl Naive {
    pub(crate) fn of(patterns: &Patterns) -> Self {
        let Patterns { include, exclude } = patterns.clone();
        Self { include, exclude }
    }

    /// Whether a path below the root belongs.
    pub(crate) fn admits(&self, path: &Path, directory: bool) -> bool {
        let names: Vec<&[u8]> = path.iter().map(OsStrExt::as_bytes).collect();
        let named = |patterns: &[String]| {
            (1..=names.len()).any(|depth| {
                let directory = directory || depth < names.len();
                patterns
                    .iter()
                    .any(|one| whole(one, &names[..depth], directory))
            })
        };
        let leads = || {
            let one_of = |one: &String| leads(&parts(one).0, &names);
            directory && self.include.iter().any(one_of)
        };
        !named(&self.exclude) && (self.include.is_empty() || named(&self.include) || leads())
    }
}

/// A pattern's names, and whether it means directories alone.
fn parts(pattern: &str) -> (Vec<&str>, bool) {
    let (glob, directory) = match pattern.strip_suffix('/') {
        Some(glob) => (glob, true),
        None => (pattern, false),
    };
    let mut names: Vec<&str> = glob.trim_start_matches('/').split('/').collect();
    if !glob.contains('/') {
        names.insert(0, "**");
    }
    (names, directory)
}

fn whole(pattern: &str, names: &[&[u8]], directory: bool) -> bool {
    let (parts, only_directories) = parts(pattern);
    (directory || !only_directories) && all(&parts, names)
}

fn all(parts: &[&str], names: &[&[u8]]) -> bool {
    match (parts, names) {
        ([], names) => names.is_empty(),
        (["**"], names) => !names.is_empty(),
        (["**", rest @ ..], names) => (0..=names.len()).any(|skip| all(rest, &names[skip..])),
        ([part, rest @ ..], [name, below @ ..]) => one(part.as_bytes(), name) && all(rest, below),
        (_, []) => false,
    }
}

/// Whether something below these names may be meant.
fn leads(parts: &[&str], names: &[&[u8]]) -> bool {
    match (parts, names) {
        ([], _) => false,
        (["**", ..], _) | (_, []) => true,
        ([part, rest @ ..], [name, below @ ..]) => one(part.as_bytes(), name) && leads(rest, below),
    }
}

fn one(part: &[u8], name: &[u8]) -> bool {
    match part {
        [] => name.is_empty(),
        [b'*', rest @ ..] => (0..=name.len()).any(|skip| one(rest, &name[skip..])),
        [b'?', rest @ ..] => !name.is_empty() && one(rest, &name[1..]),
        [byte, rest @ ..] => name.first() == Some(byte) && one(rest, &name[1..]),
    }
}
