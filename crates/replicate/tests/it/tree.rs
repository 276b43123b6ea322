//! The tree accepts every record that can follow, and no other.

use proptest::prelude::*;
use replicate::record::{Change, Entry, Kind, Part};
use replicate::tree::{Invalid, MAX_FILE_SIZE, Stale, Tree};

use crate::common::{ROOT, data, epoch, file, gone, link, name, new, record, size, start, unlink};

fn folded(entries: impl IntoIterator<Item = Entry>) -> Tree {
    let mut tree = Tree::default();
    for entry in entries {
        tree.enter(&entry).unwrap();
    }
    tree
}

fn refused(before: impl IntoIterator<Item = Entry>, entry: &Entry) -> Invalid {
    let mut tree = folded(before);
    let was = tree.clone();
    let invalid = tree.enter(entry).unwrap_err();
    assert_eq!(tree, was, "a refused record leaves the tree as it was");
    invalid
}

/// `a/b/c`, where the directories are 10 and 11 and the file is 12.
fn nested() -> Vec<Entry> {
    vec![
        start(),
        new(10, Kind::Directory),
        link(2, "a", 10),
        new(11, Kind::Directory),
        link(10, "b", 11),
        new(12, Kind::Regular),
        link(11, "c", 12),
    ]
}

#[test]
fn paths_follow_renames_of_what_is_above() {
    let mut tree = folded(nested());
    let path = |tree: &Tree| tree.path(file(12)).unwrap();
    assert_eq!(path(&tree), [name("a"), name("b"), name("c")]);
    tree.enter(&link(2, "moved", 11)).unwrap();
    assert_eq!(path(&tree), [name("moved"), name("c")]);
    assert_eq!(tree.child(file(10), &name("b")), None);
    assert_eq!(tree.children(ROOT).count(), 2);
    assert_eq!(tree.path(ROOT), Some(Vec::new()));
}

#[test]
fn hard_links_are_names_of_one_file() {
    let mut tree = folded(nested());
    tree.enter(&link(2, "d", 12)).unwrap();
    tree.enter(&data(12, 10, b"abc")).unwrap();
    assert_eq!(tree.get(file(12)).unwrap().names.len(), 2);
    assert_eq!(tree.get(file(12)).unwrap().size, 13);
    tree.enter(&unlink(11, "c")).unwrap();
    assert_eq!(tree.path(file(12)), Some(vec![name("d")]));
    tree.enter(&unlink(2, "d")).unwrap();
    assert_eq!(tree.path(file(12)), None);
    tree.enter(&epoch(1)).unwrap();
    tree.enter(&gone(12)).unwrap();
    assert!(tree.get(file(12)).is_none());
}

#[test]
fn an_exchange_of_directories_passes_through_one_without_a_name() {
    let mut tree = folded(nested());
    for entry in [
        new(20, Kind::Directory),
        link(2, "x", 20),
        link(2, "x", 11),
        link(10, "b", 20),
        epoch(1),
    ] {
        tree.enter(&entry).unwrap();
    }
    assert_eq!(tree.path(file(12)), Some(vec![name("x"), name("c")]));
    assert_eq!(tree.path(file(20)), Some(vec![name("a"), name("b")]));
}

#[test]
fn what_no_tree_can_be_is_refused() {
    let cycle = Invalid::Cycle {
        file: file(10),
        directory: file(11),
    };
    assert_eq!(refused(nested(), &link(11, "d", 10)), cycle);
    assert!(matches!(
        refused(nested(), &link(10, "self", 10)),
        Invalid::Cycle { .. }
    ));
    assert!(matches!(
        refused(nested(), &link(10, "root", 2)),
        Invalid::Cycle { .. }
    ));
    let of = |inode| file(inode);
    assert_eq!(
        refused(nested(), &link(12, "d", 10)),
        Invalid::NoDirectory { file: of(12) }
    );
    assert_eq!(
        refused(nested(), &link(2, "d", 99)),
        Invalid::Unknown { file: of(99) }
    );
    assert_eq!(
        refused(nested(), &new(12, Kind::Fifo)),
        Invalid::Again { file: of(12) }
    );
    assert_eq!(
        refused(nested(), &gone(12)),
        Invalid::InUse { file: of(12) }
    );
    assert_eq!(refused(nested(), &gone(2)), Invalid::InUse { file: of(2) });
    assert_eq!(
        refused(nested(), &data(10, 0, b"x")),
        Invalid::NoContent { file: of(10) }
    );
    assert!(matches!(
        refused(nested(), &size(12, MAX_FILE_SIZE + 1)),
        Invalid::TooLarge { .. }
    ));
    assert!(matches!(
        refused(nested(), &data(12, MAX_FILE_SIZE, b"x")),
        Invalid::TooLarge { .. }
    ));
    assert!(matches!(
        refused(nested(), &data(12, u64::MAX, b"x")),
        Invalid::TooLarge { .. }
    ));
    assert!(matches!(
        refused(nested(), &unlink(2, "c")),
        Invalid::NoEntry { .. }
    ));
    assert_eq!(refused([], &epoch(1)), Invalid::NoStart);
    assert_eq!(refused([], &new(10, Kind::Fifo)), Invalid::NoStart);
}

#[test]
fn an_epoch_has_no_entries_that_no_path_leads_to() {
    let mut before = nested();
    before.push(unlink(2, "a"));
    assert_eq!(
        refused(before, &epoch(1)),
        Invalid::Adrift { file: file(10) }
    );
}

#[test]
fn numbers_and_epochs_go_up() {
    let mut tree = Tree::default();
    tree.fold(&record(41, start())).unwrap();
    let gap = tree.fold(&record(43, epoch(1))).unwrap_err();
    assert_eq!(
        gap,
        Invalid::Gap {
            expected: 42,
            found: 43
        }
    );
    tree.fold(&record(42, epoch(8))).unwrap();
    let refused = tree.fold(&record(43, epoch(8))).unwrap_err();
    assert_eq!(refused, Invalid::Epoch { number: 8, last: 8 });
    assert!(matches!(
        tree.fold(&record(42, epoch(9))),
        Err(Invalid::Gap { .. })
    ));
}

/// If each took the time that all before it took, it would not end.
#[test]
fn depth_and_directories_without_a_name_cost_nothing_for_each_record() {
    const FILES: u64 = 200_000;
    let mut tree = folded([start()]);
    let mut enter = |entry: Entry| tree.enter(&entry).unwrap();
    for inode in 3..FILES {
        enter(new(inode, Kind::Directory));
        enter(link(inode - 1, "d", inode));
    }
    for inode in FILES..2 * FILES {
        enter(new(inode, Kind::Directory));
        enter(epoch(inode));
    }
}

#[test]
fn a_directory_that_is_adrift_and_empty_again_is_no_fault_at_an_epoch() {
    let mut tree = folded(nested());
    for entry in [new(20, Kind::Directory), new(21, Kind::Directory)] {
        tree.enter(&entry).unwrap();
    }
    tree.enter(&link(20, "b", 21)).unwrap();
    let adrift = Invalid::Adrift { file: file(20) };
    assert_eq!(tree.enter(&epoch(1)), Err(adrift.clone()));
    // By a name that is taken away, by a move, and by a name of its own.
    tree.enter(&unlink(20, "b")).unwrap();
    tree.enter(&epoch(1)).unwrap();
    tree.enter(&link(20, "b", 21)).unwrap();
    tree.enter(&link(2, "c", 21)).unwrap();
    tree.enter(&epoch(2)).unwrap();
    tree.enter(&link(20, "b", 21)).unwrap();
    assert_eq!(tree.enter(&epoch(3)), Err(adrift));
    tree.enter(&link(2, "c", 20)).unwrap();
    tree.enter(&epoch(3)).unwrap();
}

proptest! {
    /// However directories are linked, every walk up ends, and walks down agree with walks up.
    #[test]
    fn no_sequence_of_records_makes_a_graph(links in prop::collection::vec((2..10_u64, 0..4_u8, 2..10_u64, any::<bool>()), 0..80)) {
        let mut tree = folded([start()]);
        for inode in 3..10 {
            let kind = if inode < 8 { Kind::Directory } else { Kind::Regular };
            tree.enter(&new(inode, kind)).unwrap();
        }
        for (directory, as_, inode, unlinks) in links {
            let as_ = as_.to_string();
            let entry = if unlinks { unlink(directory, &as_) } else { link(directory, &as_, inode) };
            let was = tree.clone();
            if tree.enter(&entry).is_err() {
                prop_assert_eq!(&tree, &was);
            }
        }
        let mut found = 0;
        for (of, node) in tree.files() {
            for (directory, as_) in &node.names {
                prop_assert_eq!(tree.child(*directory, as_), Some(of));
                found += 1;
            }
            prop_assert!(node.kind != Kind::Directory || node.names.len() <= 1);
            tree.path(of);
        }
        let down: usize = tree.files().map(|(of, _)| tree.children(of).count()).sum();
        prop_assert_eq!(found, down);
    }
}

#[test]
fn an_epoch_may_have_an_earlier_state_of_files_that_it_names() {
    let doubt = |number| {
        Entry::Change(Change::Doubt {
            file: file(number),
            part: Part::Attributes,
        })
    };
    let stale = |number| Entry::Stale { file: file(number) };
    let open = nested().into_iter().chain([doubt(12)]);
    let invalid = refused(open.clone(), &epoch(1));
    assert_eq!(invalid, Invalid::Doubt { file: file(12) });
    let mut tree = folded(open.chain([stale(12), epoch(1)]));
    assert_eq!(tree.stale().collect::<Vec<_>>(), [file(12)]);
    let listed = vec![b"a/b/c".to_vec()];
    assert_eq!(Stale::of(&tree), Stale { files: 1, listed });
    // It names only the stale files of the epoch before.
    let settled = Change::Settled {
        file: file(12),
        part: Part::Attributes,
    };
    tree.enter(&Entry::Change(settled)).unwrap();
    tree.enter(&epoch(2)).unwrap();
    assert_eq!(Stale::of(&tree), Stale::default());
    let invalid = refused(nested(), &stale(99));
    assert_eq!(invalid, Invalid::Unknown { file: file(99) });
}
