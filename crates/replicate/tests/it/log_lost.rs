//! A power failure may lose any unsynced block and keep later ones. A copy is then replaced.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use replicate::log::{Beginning, Durability, Error, Options, Reader, Writer};
use replicate::record::{Entry, Kind};

use crate::common::{data, epoch, link, new, start};

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
    let segment = segment(folder.path());
    let bytes = fs::read(&segment).unwrap();
    assert!(bytes.len() > 16 * BLOCK);
    // The earlier part of a block may have been synced before.
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

fn segment(folder: &Path) -> PathBuf {
    let mut names = fs::read_dir(folder).unwrap();
    let segment = names.find_map(|entry| {
        let path = entry.unwrap().path();
        path.extension()
            .is_some_and(|it| it == "log")
            .then_some(path)
    });
    segment.unwrap()
}

/// A reader that has read everything.
fn read_all(folder: &Path) -> Reader {
    let mut reader = Reader::open(folder).unwrap();
    while reader.read().unwrap().is_some() {}
    reader
}

#[test]
fn a_reader_is_told_that_the_disk_has_lost_what_it_has_read() {
    let all = some();
    // The new records may be longer, or have the same lengths.
    for more in [0, 1, 40] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &all);
        let mut reader = read_all(folder.path());
        let segment = segment(folder.path());
        let mut bytes = fs::read(&segment).unwrap();
        let lost = bytes.len() - bytes.len() / BLOCK / 2 * BLOCK;
        bytes[lost..].fill(0);
        fs::write(&segment, bytes).unwrap();
        let seen = entries(folder.path()).len();
        assert!(seen < all.len());
        write(folder.path(), &all[seen..]);
        write(folder.path(), &vec![data(50, 0, b"more"); more]);
        let told = reader.read();
        assert!(matches!(told, Err(Error::Replaced(_))), "{told:?}");
        let names = fs::read_dir(folder.path()).unwrap();
        let left = names
            .filter(|entry| entry.as_ref().unwrap().path().extension() == Some("tmp".as_ref()));
        assert_eq!(left.count(), 0);
    }
}

#[test]
fn a_reader_is_told_that_its_segment_ends_before_what_it_has_read() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &some());
    let mut reader = read_all(folder.path());
    let file = File::options().write(true).open(segment(folder.path()));
    file.unwrap().set_len(2 * BLOCK as u64).unwrap();
    let told = reader.read();
    assert!(matches!(told, Err(Error::Replaced(_))), "{told:?}");
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
    // Like a copy that starts anew, of another history of the same log.
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
