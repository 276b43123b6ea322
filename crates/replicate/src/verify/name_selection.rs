//! Selects the paths of two trees that are compared.

use std::cmp::Ordering;
use std::collections::BTreeSet;

/// All paths or some.
#[derive(Debug)]
pub(super) enum NameSelection {
    All,
    /// These paths and everything below them.
    Below(BTreeSet<Vec<u8>>),
    /// Only these paths.
    Only(BTreeSet<Vec<u8>>),
    /// The paths after one and up to another, in the order of a walk. Without bounds, from the
    /// first and to the last.
    Between {
        after: Option<Vec<u8>>,
        /// Paths below the lower bound come after it, too.
        enter: bool,
        to: Option<Vec<u8>>,
    },
}

impl NameSelection {
    /// Whether a path is compared or leads to one that is. The root always is, whatever is below
    /// it.
    pub(super) fn has(&self, path: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Below(paths) => {
                leads_to_one(path, paths)
                    || (0..=path.len())
                        .filter(|at| *at == path.len() || path.get(*at) == Some(&b'/'))
                        .any(|at| path.get(..at).is_some_and(|one| paths.contains(one)))
            }
            Self::Only(paths) => paths.contains(path) || leads_to_one(path, paths),
            Self::Between { after, enter, to } => {
                let early = after
                    .as_ref()
                    .is_some_and(|after| match order(path, after) {
                        Ordering::Less => !leads(path, after),
                        Ordering::Equal => !enter,
                        Ordering::Greater => false,
                    });
                let late = to
                    .as_ref()
                    .is_some_and(|to| order(path, to) == Ordering::Greater);
                !early && !late
            }
        }
    }
}

/// The order in which trees are walked: a directory, then its contents.
fn order(one: &[u8], other: &[u8]) -> Ordering {
    let slash = |byte: &u8| *byte == b'/';
    one.split(slash).cmp(other.split(slash))
}

fn leads(path: &[u8], to: &[u8]) -> bool {
    let below = to.strip_prefix(path);
    below.is_some_and(|below| below.starts_with(b"/"))
}

fn leads_to_one(path: &[u8], paths: &BTreeSet<Vec<u8>>) -> bool {
    let below = [path, b"/"].concat();
    let first = paths.range(below.clone()..).next();
    first.is_some_and(|one| one.starts_with(&below))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(paths: &[&str]) -> BTreeSet<Vec<u8>> {
        paths.iter().map(|path| path.as_bytes().to_vec()).collect()
    }

    #[test]
    fn some_are_wanted_with_what_leads_to_them_and_what_is_below() {
        let wanted = NameSelection::Below(all(&["", "a/b", "c", "d-"]));
        for path in ["a", "a/b", "a/b/c", "c", "c/x/y", "d-"] {
            assert!(wanted.has(path.as_bytes()), "{path}");
        }
        for path in ["a-", "a/bb", "a/a", "b", "cc", "d", "d-e", "x"] {
            assert!(!wanted.has(path.as_bytes()), "{path}");
        }
        assert!(NameSelection::All.has(b"x"));
    }

    #[test]
    fn some_are_wanted_alone() {
        let wanted = NameSelection::Only(all(&["a/b", "c"]));
        for path in ["a", "a/b", "c"] {
            assert!(wanted.has(path.as_bytes()), "{path}");
        }
        for path in ["a/b/c", "a/c", "c/x", "b"] {
            assert!(!wanted.has(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn each_path_is_between_two_others_once() {
        // The order of a walk. A comparison of bytes alone would put "a-" before "a/b".
        let walk = ["a", "a/b", "a/b/c", "a/d", "a-", "b", "b/x", "c"];
        let path = |at: usize| Some(walk[at].as_bytes().to_vec());
        for first in 0..walk.len() {
            for last in first..walk.len() {
                for enter in [false, true] {
                    let wanted = NameSelection::Between {
                        after: first.checked_sub(1).and_then(path),
                        enter,
                        to: path(last),
                    };
                    for (at, one) in walk.iter().enumerate() {
                        let inside = (first..=last).contains(&at);
                        let before = first.checked_sub(1).map_or("", |before| walk[before]);
                        let through = leads(one.as_bytes(), before.as_bytes());
                        let entered = enter && *one == before;
                        let expected = inside || through || entered;
                        assert_eq!(wanted.has(one.as_bytes()), expected, "{one}");
                    }
                }
            }
        }
        let rest = NameSelection::Between {
            after: path(5),
            enter: true,
            to: None,
        };
        assert!(rest.has(b"b/x") && rest.has(b"zz") && !rest.has(b"a-"));
    }
}
