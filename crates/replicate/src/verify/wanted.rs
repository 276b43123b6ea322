//! Which paths of two trees are compared.

use std::collections::BTreeSet;

/// All, or some with everything below them.
#[derive(Debug, Default)]
pub(super) struct Wanted(Option<BTreeSet<Vec<u8>>>);

impl Wanted {
    pub(super) fn all() -> Self {
        Self(None)
    }

    /// These, and what leads to them. The root alone is no more than itself.
    pub(super) fn only(paths: BTreeSet<Vec<u8>>) -> Self {
        Self(Some(paths))
    }

    pub(super) fn has(&self, path: &[u8]) -> bool {
        let Some(paths) = &self.0 else {
            return true;
        };
        let mut below = path.to_vec();
        below.push(b'/');
        let leads = paths.range(below.clone()..).next();
        leads.is_some_and(|one| one.starts_with(&below))
            || (0..below.len())
                .filter(|at| below[*at] == b'/')
                .any(|at| paths.contains(&below[..at]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_are_wanted_with_what_leads_to_them_and_what_is_below() {
        let paths = ["", "a/b", "c", "d-"].map(|path| path.as_bytes().to_vec());
        let wanted = Wanted::only(paths.into());
        for path in ["a", "a/b", "a/b/c", "c", "c/x/y", "d-"] {
            assert!(wanted.has(path.as_bytes()), "{path}");
        }
        for path in ["a-", "a/bb", "a/a", "b", "cc", "d", "d-e", "x"] {
            assert!(!wanted.has(path.as_bytes()), "{path}");
        }
        assert!(Wanted::all().has(b"x"));
    }
}
