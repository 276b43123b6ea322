//! Epoch numbers continue wherever a log is continued.

use std::path::Path;

use replicate::log::{Durability, Error, Options, Reader, Writer, compact};
use replicate::record::{Change, Entry, Kind, Part};
use replicate::tree::{Invalid, Tree};

use crate::common::{self, data, epoch, link, new, start};

fn writer(folder: &Path, segment: u64) -> Writer {
    let options = Options {
        durability: Durability::OnRequest,
        segment,
    };
    Writer::open(folder, options).unwrap()
}

fn tree_of(folder: &Path) -> Tree {
    let mut reader = Reader::open(folder).unwrap();
    let mut tree = Tree::default();
    while let Some(located) = reader.read().unwrap() {
        tree.fold(&located.record).unwrap();
    }
    tree
}

fn file(inode: u64) -> [Entry; 3] {
    let name = format!("file {inode}");
    let linked = link(2, &name, inode);
    [new(inode, Kind::Regular), linked, data(inode, 0, b"some")]
}

#[test]
fn a_tree_that_was_begun_anew_and_not_finished_leaves_the_number_of_the_last_epoch() {
    for (compacted, segment) in [(false, 1 << 20), (true, 1 << 20), (false, 60)] {
        let folder = tempfile::tempdir().unwrap();
        let mut log = writer(folder.path(), segment);
        log.append(1, start()).unwrap();
        for number in 1..=9 {
            for entry in file(number + 10) {
                log.append(2, entry).unwrap();
            }
            // Gives the compaction something to save.
            log.append(2, data(11, 0, b"again")).unwrap();
            log.append(3, epoch(number)).unwrap();
        }
        log.seal().unwrap();
        drop(log);
        if compacted {
            compact(folder.path(), 9).unwrap();
        }
        let mut log = writer(folder.path(), segment);
        let doubt = Change::Doubt {
            file: common::file(11),
            part: Part::Range {
                offset: 0,
                length: 1,
            },
        };
        // A start ends the doubt, and the first copy after it is killed.
        log.append(4, Entry::Change(doubt)).unwrap();
        log.append(4, start()).unwrap();
        for entry in file(30) {
            log.append(5, entry).unwrap();
        }
        drop(log);
        let mut log = writer(folder.path(), segment);
        assert_eq!(log.epoch(), 9, "compacted: {compacted}, {segment}");
        assert!(!log.doubtful());
        let refused = log.append(6, epoch(9)).unwrap_err();
        let invalid = Invalid::Epoch { number: 9, last: 9 };
        assert!(
            matches!(&refused, Error::Invalid { invalid: it, .. } if *it == invalid),
            "{refused}"
        );
        log.append(6, epoch(10)).unwrap();
        drop(log);
        assert_eq!(tree_of(folder.path()).epoch(), 10);
    }
}

#[test]
fn a_log_that_never_had_an_epoch_is_taken_up() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = writer(folder.path(), 60);
    log.append(1, start()).unwrap();
    for entry in (11..20).flat_map(file) {
        log.append(2, entry).unwrap();
    }
    let number = log.number();
    drop(log);
    let mut log = writer(folder.path(), 60);
    assert_eq!((log.number(), log.epoch()), (number, 0));
    log.append(3, epoch(1)).unwrap();
    drop(log);
    assert_eq!(tree_of(folder.path()).epoch(), 1);
}
