//! The functions in which most samples were taken.

use std::collections::{BTreeMap, BTreeSet};

/// A function's samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    /// Taken in it.
    pub flat: u64,
    /// Taken in it or in what it called.
    pub cumulative: u64,
}

/// Every function of folded stacks, by flat samples and then by name. The root, which is the
/// command and no function, is left out; sort again for a list by cumulative samples.
pub fn hottest(folded: &BTreeMap<String, u64>) -> Vec<Function> {
    let mut functions: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (stack, samples) in folded {
        let frames: Vec<&str> = stack.split(';').skip(1).collect();
        if let Some(leaf) = frames.last() {
            functions.entry(leaf).or_default().0 += samples;
        }
        // A recursive function was active once.
        for frame in frames.into_iter().collect::<BTreeSet<_>>() {
            functions.entry(frame).or_default().1 += samples;
        }
    }
    let mut functions: Vec<Function> = functions
        .into_iter()
        .map(|(name, (flat, cumulative))| Function {
            name: name.to_owned(),
            flat,
            cumulative,
        })
        .collect();
    functions.sort_by_key(|function| std::cmp::Reverse(function.flat));
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recursion_counts_once_and_the_root_not_at_all() {
        let folded = [("cc;a;b;a", 5), ("cc;a;b", 2), ("cc", 9)]
            .map(|(stack, samples)| (stack.to_owned(), samples))
            .into();
        let found: Vec<_> = hottest(&folded)
            .into_iter()
            .map(|f| (f.name, f.flat, f.cumulative))
            .collect();
        assert_eq!(found, [("a".to_owned(), 5, 7), ("b".to_owned(), 2, 7)]);
    }
}
