//! Selects which names of a source's tree its log has: those that are included and not excluded. It
//! decides by a path and whether that is a directory. The caller handles files that enter and leave
//! the selection.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

/// The limit for all patterns of a log together, in bytes, because one record contains them.
const MAX_BYTES: usize = 64 << 10;

/// The patterns as they were written, which is how a log stores them. Without any, everything is
/// selected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patterns {
    /// Patterns of names that belong to the log, with everything below them. If empty, all names
    /// do.
    pub include: Vec<String>,
    /// Patterns of names that do not belong to the log, with everything below them. They take
    /// precedence.
    pub exclude: Vec<String>,
}

/// An invalid pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("pattern {pattern:?}: {why}")]
    Pattern { pattern: String, why: String },
    #[error("{0} bytes of patterns: {MAX_BYTES} at most")]
    Long(usize),
}

/// Compiled patterns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    include: Option<Inclusion>,
    exclude: Set,
    /// Whether moving a directory may change what belongs to the log.
    anchored: bool,
}

#[derive(Clone, Debug)]
struct Inclusion {
    names: Set,
    /// Directories below which a name may be included. `None` if that holds for every directory.
    ways: Option<GlobSet>,
}

/// Patterns for all names, and patterns for directories only.
#[derive(Clone, Debug, Default)]
struct Set {
    all: GlobSet,
    directories: GlobSet,
}

/// A parsed pattern.
struct Pattern<'a> {
    text: &'a str,
    /// The pattern without its anchor and its trailing slash.
    glob: &'a str,
    anchored: bool,
    directory: bool,
}

impl Patterns {
    /// Sorts the patterns, because their order has no meaning.
    pub fn new(mut include: Vec<String>, mut exclude: Vec<String>) -> Self {
        for patterns in [&mut include, &mut exclude] {
            patterns.sort();
            patterns.dedup();
        }
        Self { include, exclude }
    }

    /// # Errors
    /// Names the first invalid pattern.
    pub fn check(&self) -> Result<(), Error> {
        Filter::new(self).map(drop)
    }

    pub fn is_empty(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }
}

impl Filter {
    pub(crate) fn new(patterns: &Patterns) -> Result<Self, Error> {
        let all = || patterns.include.iter().chain(&patterns.exclude);
        let length = all().map(String::len).sum();
        if length > MAX_BYTES {
            return Err(Error::Long(length));
        }
        let include = Pattern::all(&patterns.include)?;
        let exclude = Pattern::all(&patterns.exclude)?;
        // Everything below an included name is included, so a move in or out changes the selection.
        let anchored = !include.is_empty() || exclude.iter().any(|one| one.anchored);
        let included = match include.is_empty() {
            true => None,
            false => Some(Inclusion {
                names: Set::of(&include)?,
                ways: ways(&include),
            }),
        };
        Ok(Self {
            include: included,
            exclude: Set::of(&exclude)?,
            anchored,
        })
    }

    /// Whether everything is selected.
    pub(crate) fn is_empty(&self) -> bool {
        self.include.is_none() && self.exclude.is_empty()
    }

    /// Whether the selection of a name can change when it is moved to another directory.
    pub(crate) fn moves(&self) -> bool {
        self.anchored
    }

    /// Whether the file at a path below the root belongs to the log. The root always does.
    pub(crate) fn admits(&self, path: &[u8], directory: bool) -> bool {
        if self.is_empty() || path.is_empty() {
            return true;
        }
        let above = || {
            let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            slashes.filter_map(|(at, _)| path.get(..at))
        };
        let in_set = |set: &Set| set.has(path, directory) || above().any(|one| set.has(one, true));
        if in_set(&self.exclude) {
            return false;
        }
        let Some(Inclusion { names, ways }) = &self.include else {
            return true;
        };
        let leads = || {
            ways.as_ref()
                .is_none_or(|ways| ways.is_match(as_path(path)))
        };
        in_set(names) || directory && leads()
    }
}

impl Set {
    fn of(patterns: &[Pattern<'_>]) -> Result<Self, Error> {
        let set = |directory| -> Result<GlobSet, Error> {
            let mut set = GlobSetBuilder::new();
            for one in patterns.iter().filter(|one| one.directory == directory) {
                set.add(one.compile()?);
            }
            set.build().map_err(|error| Error::Pattern {
                pattern: patterns
                    .iter()
                    .map(|one| one.text)
                    .collect::<Vec<_>>()
                    .join(" "),
                why: error.kind().to_string(),
            })
        };
        Ok(Self {
            all: set(false)?,
            directories: set(true)?,
        })
    }

    fn is_empty(&self) -> bool {
        self.all.is_empty() && self.directories.is_empty()
    }

    fn has(&self, path: &[u8], directory: bool) -> bool {
        let path = as_path(path);
        self.all.is_match(path) || directory && self.directories.is_match(path)
    }
}

impl<'a> Pattern<'a> {
    fn all(texts: &'a [String]) -> Result<Vec<Self>, Error> {
        texts.iter().map(|text| Self::new(text)).collect()
    }

    fn new(text: &'a str) -> Result<Self, Error> {
        let wrong = |why: &str| Error::Pattern {
            pattern: text.to_owned(),
            why: why.to_owned(),
        };
        if text.starts_with('!') {
            return Err(wrong("! is not known here: what belongs, --include says"));
        }
        let (glob, directory) = match text.strip_suffix('/') {
            Some(glob) => (glob, true),
            None => (text, false),
        };
        let anchored = glob.contains('/');
        let glob = glob.strip_prefix('/').unwrap_or(glob);
        if glob.is_empty() {
            return Err(wrong("it names the tree itself"));
        }
        if glob.split('/').any(|name| ["", ".", ".."].contains(&name)) {
            return Err(wrong("no path below the tree is written so"));
        }
        if glob.contains('\0') {
            return Err(wrong("no name has a zero"));
        }
        Ok(Self {
            text,
            glob,
            anchored,
            directory,
        })
    }

    fn compile(&self) -> Result<Glob, Error> {
        let floating = format!("**/{}", self.glob);
        let glob = if self.anchored { self.glob } else { &floating };
        compile(glob).map_err(|error| Error::Pattern {
            pattern: self.text.to_owned(),
            why: error.kind().to_string(),
        })
    }

    /// Patterns for the directories that lead to a match. `None` if a match may be anywhere.
    fn ways(&self) -> Option<Vec<Glob>> {
        if !self.anchored {
            return None;
        }
        let mut ways = Vec::new();
        let slashes = self.glob.match_indices('/').map(|(at, _)| at);
        for at in slashes {
            let way = self.glob.get(..at)?;
            // A prefix that ends within braces or brackets is not a valid pattern.
            ways.push(compile(way).ok()?);
            if way.ends_with("**") {
                return (way != "**").then_some(ways);
            }
        }
        // The last component is a match itself, below all of these directories.
        Some(ways)
    }
}

fn ways(patterns: &[Pattern<'_>]) -> Option<GlobSet> {
    let mut set = GlobSetBuilder::new();
    for one in patterns {
        for way in one.ways()? {
            set.add(way);
        }
    }
    set.build().ok()
}

fn compile(glob: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(glob)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
}

fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(include: &[&str], exclude: &[&str]) -> Filter {
        let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        Filter::new(&Patterns::new(owned(include), owned(exclude))).unwrap()
    }

    /// The selected paths. A path that ends with a slash is a directory.
    fn admitted(filter: &Filter, paths: &[&str]) -> Vec<bool> {
        let admits = |path: &&str| match path.strip_suffix('/') {
            Some(path) => filter.admits(path.as_bytes(), true),
            None => filter.admits(path.as_bytes(), false),
        };
        paths.iter().map(admits).collect()
    }

    #[track_caller]
    fn leaves(filter: &Filter, inside: &[&str], outside: &[&str]) {
        let all = |paths: &[&str], wanted: bool| {
            for (path, found) in paths.iter().zip(admitted(filter, paths)) {
                assert_eq!(found, wanted, "{path}");
            }
        };
        all(inside, true);
        all(outside, false);
    }

    #[test]
    fn a_name_without_a_slash_is_meant_anywhere_and_others_from_the_root_down() {
        leaves(
            &filter(&[], &["*.tmp", "/cache", "a/*.log", "logs/**"]),
            &[
                "x",
                "tmp",
                "x.tmp.y",
                "b/cache",
                "b/a/x.log",
                "a/b/x.log",
                "logs/",
                "tmp./x",
            ],
            &[
                "x.tmp",
                ".tmp",
                "b/x.tmp",
                "x.tmp/",
                "x.tmp/y",
                "b/x.tmp/y/z",
                "cache",
                "cache/x",
                "a/x.log",
                "logs/x",
            ],
        );
    }

    #[test]
    fn a_slash_at_the_end_means_directories_alone() {
        leaves(
            &filter(&[], &["target/", "/out/"]),
            &["target", "a/target", "out", "a/out/", "a/out/x"],
            &[
                "target/",
                "target/x",
                "a/target/",
                "a/target/x/y",
                "out/",
                "out/x",
            ],
        );
    }

    #[test]
    fn what_is_included_comes_with_all_below_and_the_way_to_it() {
        leaves(
            &filter(&["/data", "srv/*/app.db"], &[]),
            &[
                "data/",
                "data",
                "data/x/y",
                "srv/",
                "srv/a/",
                "srv/a/app.db",
                "srv/a/app.db/x",
            ],
            &[
                "database",
                "a/",
                "a/data/",
                "a/data",
                "srv",
                "srv/a",
                "srv/a/b/",
                "srv/a/x",
                "srv/app.db",
            ],
        );
        // The name may be anywhere, so every directory leads to it.
        leaves(
            &filter(&["*.db"], &[]),
            &["a/", "a/b/", "a/x.db", "x.db"],
            &["a", "a/x"],
        );
        leaves(
            &filter(&["a/**/c", "b/**"], &[]),
            &[
                "a/", "a/x/", "a/x/y/", "a/c", "a/x/c", "a/x/c/d", "b/", "b/x", "b/x/y",
            ],
            &["a", "a/x", "b", "c", "x/", "x/a/c"],
        );
        leaves(
            &filter(&["**/x/y"], &[]),
            &["p/", "p/x/", "x/y", "p/x/y"],
            &["p", "p/x", "y"],
        );
    }

    #[test]
    fn what_is_excluded_is_so_whatever_includes_it() {
        leaves(
            &filter(&["*.db", "/keep"], &["old/", "x.db"]),
            &["a.db", "keep/x", "keep/", "b/"],
            &["old/", "old/a.db", "keep/old/y", "x.db", "keep/x.db"],
        );
        // A name that is included below an excluded one does not count.
        leaves(&filter(&["a/b/c"], &["/a"]), &[], &["a/", "a/b/", "a/b/c"]);
    }

    #[test]
    fn the_root_belongs_whatever_is_said() {
        for filter in [
            filter(&[], &["*"]),
            filter(&["x"], &["**"]),
            filter(&[], &[]),
        ] {
            assert!(filter.admits(b"", true));
        }
        leaves(&filter(&[], &["*"]), &[], &["a", "a/", "a/b"]);
        leaves(&filter(&[], &["**"]), &[], &["a", "a/", "a/b"]);
    }

    #[test]
    fn names_are_bytes() {
        let filter = filter(&[], &["*.tmp", "a?c", "p/*"]);
        for outside in [
            &b"\xff.tmp"[..],
            b"x\n.tmp",
            b"a\xffc",
            b"p/\xfe\n",
            b"..tmp",
            b"x..tmp",
        ] {
            assert!(!filter.admits(outside, false), "{}", outside.escape_ascii());
        }
        for inside in [
            &b"\xff.tm"[..],
            b"x.tmp\n",
            b"a\xff\xffc",
            b"p",
            b"x.tmp.",
            b"...",
        ] {
            assert!(filter.admits(inside, false), "{}", inside.escape_ascii());
        }
    }

    #[test]
    fn no_wildcard_but_two_asterisks_means_a_slash() {
        leaves(
            &filter(&[], &["/a?b", "/c[!x]d", "/e*f", "/g[+-0]h"]),
            &["a/b", "c/d", "e/f", "g/h"],
            &["axb", "cyd", "exf", "g.h"],
        );
    }

    #[test]
    fn special_characters_can_be_meant_themselves() {
        leaves(
            &filter(&[], &["\\*", "[[]x", "#y", "{a,b}c"]),
            &["x", "y", "c"],
            &["*", "[x", "#y", "ac", "bc"],
        );
    }

    #[test]
    fn a_pattern_that_says_nothing_is_refused() {
        for pattern in [
            "", "/", "//", "!x", "a//b", "./a", "../a", "a/..", "[", "a{b", "\\", "a\0",
        ] {
            let patterns = Patterns::new(Vec::new(), vec![pattern.to_owned()]);
            let error = patterns.check().unwrap_err().to_string();
            assert!(
                error.starts_with("pattern ") && !error.contains('\n'),
                "{error}"
            );
        }
        let long = vec!["x".repeat(MAX_BYTES + 1)];
        let long = Patterns::new(long, Vec::new());
        assert_eq!(long.check(), Err(Error::Long(MAX_BYTES + 1)));
    }

    #[test]
    fn only_places_that_are_named_make_a_move_matter() {
        for (include, exclude, moves) in [
            (&[][..], &["*.tmp", "old/"][..], false),
            (&[], &["/a"], true),
            (&[], &["a/b"], true),
            (&["*.db"], &[], true),
        ] {
            assert_eq!(
                filter(include, exclude).moves(),
                moves,
                "{include:?} {exclude:?}"
            );
        }
    }

    #[test]
    fn the_order_of_patterns_means_nothing() {
        let new = |all: &[&str]| {
            let all: Vec<_> = all.iter().map(|one| (*one).to_owned()).collect();
            Patterns::new(all.clone(), all)
        };
        assert_eq!(new(&["b", "a", "b"]), new(&["a", "b"]));
    }
}
