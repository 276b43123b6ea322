//! Lists the parts of a tree that are in doubt, by paths and up to a limit.

use std::time::{Duration, Instant};

use crate::record::Part;
use crate::tree::Tree;

/// How many are listed. All are counted.
const MAX_LISTED: usize = 16;
/// The shortest interval between listings, because a program that writes without pause always has
/// something in doubt.
const INTERVAL: Duration = Duration::from_millis(250);

/// The parts that epochs wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Open {
    pub parts: usize,
    /// The first of them, in the order of their files.
    pub listed: Vec<OpenPart>,
}

/// A part of a file that has to be read or is being read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenPart {
    /// The path below the tree, empty for its root. `None` for a file that no path leads to.
    pub path: Option<Vec<u8>>,
    pub part: Part,
}

/// The parts in doubt at the last listing.
#[derive(Debug, Default)]
pub(super) struct OpenFiles {
    open: Open,
    looked: Option<Instant>,
}

impl OpenFiles {
    pub(super) fn look(&mut self, tree: &Tree) -> Open {
        if !tree.doubtful() {
            *self = Self::default();
        } else if self
            .looked
            .is_none_or(|looked| looked.elapsed() >= INTERVAL)
        {
            *self = Self {
                open: Open::of(tree),
                looked: Some(Instant::now()),
            };
        }
        self.open.clone()
    }
}

impl Open {
    fn of(tree: &Tree) -> Self {
        let mut open = Self::default();
        for (file, part) in tree.in_doubt() {
            open.parts += 1;
            if open.listed.len() < MAX_LISTED {
                let path = tree.path(file).map(|names| {
                    let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
                    names.join(&b'/')
                });
                open.listed.push(OpenPart { path, part });
            }
        }
        open
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Change, Entry, File, Kind, Name};

    fn file(inode: u64) -> File {
        File {
            inode,
            generation: 1,
        }
    }

    /// A directory `d` in the root, with a file in it for each number.
    fn tree(files: u64) -> Tree {
        let mut tree = Tree::default();
        let mut enter = |entry| tree.enter(&entry).unwrap();
        let link = |directory, name: &str, file| Change::Link {
            directory,
            name: Name::new(name.as_bytes()).unwrap(),
            file,
        };
        enter(Entry::Start { root: file(1) });
        for (number, kind) in [(2, Kind::Directory)]
            .into_iter()
            .chain((3..3 + files).map(|number| (number, Kind::Regular)))
        {
            let new = file(number);
            enter(Entry::Change(Change::New { file: new, kind }));
            enter(Entry::Change(match number {
                2 => link(file(1), "d", new),
                _ => link(file(2), &number.to_string(), new),
            }));
        }
        tree
    }

    fn mark_dirty(tree: &mut Tree, number: u64, part: Part) {
        let file = file(number);
        let change = Change::Doubt { file, part };
        tree.enter(&Entry::Change(change)).unwrap();
    }

    #[test]
    fn parts_are_called_by_the_paths_of_their_files() {
        let mut tree = tree(2);
        let range = Part::Range {
            offset: 4096,
            length: 10,
        };
        mark_dirty(&mut tree, 1, Part::Names);
        mark_dirty(&mut tree, 3, range.clone());
        let open = Open::of(&tree);
        let listed = [(&b""[..], Part::Names), (b"d/3", range)].map(|(path, part)| OpenPart {
            path: Some(path.to_vec()),
            part,
        });
        assert_eq!((open.parts, &open.listed[..]), (2, &listed[..]));
    }

    #[test]
    fn all_are_counted_and_some_are_listed() {
        let mut tree = tree(40);
        for number in 3..43 {
            mark_dirty(&mut tree, number, Part::Attributes);
        }
        let open = Open::of(&tree);
        assert_eq!((open.parts, open.listed.len()), (40, MAX_LISTED));
    }

    #[test]
    fn what_is_settled_is_not_open_any_more() {
        let mut tree = tree(1);
        let mut watched = OpenFiles::default();
        mark_dirty(&mut tree, 3, Part::Attributes);
        assert_eq!(watched.look(&tree).parts, 1);
        let settled = Change::Settled {
            file: file(3),
            part: Part::Attributes,
        };
        tree.enter(&Entry::Change(settled)).unwrap();
        // At once, whatever the interval.
        assert_eq!(watched.look(&tree), Open::default());
        mark_dirty(&mut tree, 3, Part::Attributes);
        assert_eq!(watched.look(&tree).parts, 1);
    }
}
