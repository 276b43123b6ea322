//! A loss of power may take any block of what was not synced, and leave those behind it; a copy is replaced then.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fs;
use std::path::Path;

use common::{data, epoch, link, new, start};
use replicate::log::{Beginning, Durability, Error, Options, Reader, Writer};
use replicate::record::{Entry, Kind};

const BLOCK: usize = 4096;

/// Some records are smaller than a block, and some larger.
fn some() -> Vec<Entry> {
    let mut all = vec![start()];
    for inode in 10..40 {
        all.push(new(inode, Kind::Regular));
        all.push(link(2, &format!("file {inode}"), inode));
        let length = usize::try_from(inode % 7 * 900).unwrap();
        all.push(data(inode, 0, &vec![b'x'; length]));
        all.push(epoch(inode));
    }
    all
}

fn write(folder: &Path, entries: &[Entry]) {
    let options = Options {
        durability: Durability::OnRequest,
        segment: 1 << 20,
    };
    let mut writer = Writer::open(folder, options).unwrap();
    for entry in entries {
        writer.append(5, entry.clone()).unwrap();
    }
    writer.sync().unwrap();
}

fn entries(folder: &Path) -> Vec<Entry> {
    let mut reader = Reader::open(folder).unwrap();
    let mut all = Vec::new();
    while let Some(located) = reader.read().unwrap() {
        all.push(located.record.entry);
    }
    all
}

#[test]
fn a_log_without_any_of_its_last_blocks_is_taken_up_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let all = some();
    write(folder.path(), &all);
    let mut names = fs::read_dir(folder.path()).unwrap();
    let segment = names.find_map(|entry| {
        let path = entry.unwrap().path();
        path.extension()
            .is_some_and(|it| it == "log")
            .then_some(path)
    });
    let segment = segment.unwrap();
    let bytes = fs::read(&segment).unwrap();
    assert!(bytes.len() > 16 * BLOCK);
    // What was there of a block before may have been synced.
    for (block, kept) in (0..bytes.len() / BLOCK).flat_map(|block| [(block, 0), (block, 1000)]) {
        let mut left = bytes.clone();
        left[block * BLOCK + kept..][..BLOCK - kept].fill(0);
        fs::write(&segment, left).unwrap();
        let seen = entries(folder.path());
        assert!(seen.len() < all.len(), "block {block} from {kept}");
        assert_eq!(seen, all[..seen.len()], "block {block} from {kept}");
        write(folder.path(), &all[seen.len()..]);
        assert_eq!(entries(folder.path()), all, "block {block} from {kept}");
    }
}

#[test]
fn a_reader_is_told_that_its_log_was_replaced_by_a_longer_one() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &some()[..13]);
    let mut reader = Reader::open(folder.path()).unwrap();
    while reader.read().unwrap().is_some() {}
    let options = Options {
        durability: Durability::OnRequest,
        segment: 300,
    };
    let mut writer = Writer::open(folder.path(), options).unwrap();
    let id = writer.id();
    writer.clear().unwrap();
    // As a copy that begins afresh, of another history of the same log.
    let beginning = Beginning {
        id,
        first: 1,
        folded: 0,
    };
    writer.adopt(&beginning).unwrap();
    for entry in some() {
        writer.append(5, entry).unwrap();
    }
    writer.sync().unwrap();
    let told = reader.read();
    assert!(matches!(told, Err(Error::Replaced(_))), "{told:?}");
}
