//! A log is copied exactly, from any position, and only the right key makes a valid signature.

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;
use std::thread;
use std::time::Duration;

use replicate::log::{self, Durability, Error, Options, Reader, Writer, compact};
use replicate::record::{Entry, Kind, Record};
use replicate::ship::{Key, KeyError, Sink, Source, Watch};

use crate::common::{data, epoch, link, new, start};

fn some(count: u64) -> Vec<Entry> {
    let mut all = vec![start()];
    for inode in 10..10 + count {
        all.push(new(inode, Kind::Regular));
        all.push(link(2, &format!("file {inode}"), inode));
        all.push(data(inode, 3, &inode.to_le_bytes()));
        all.push(epoch(inode));
    }
    all
}

fn write(folder: &Path, entries: &[Entry]) {
    let options = Options {
        durability: Durability::OnRequest,
        segment: 300,
    };
    let mut writer = Writer::open(folder, options).unwrap();
    for entry in entries {
        let at_ns = 1_000 + writer.number();
        writer.append(at_ns, entry.clone()).unwrap();
    }
    writer.sync().unwrap();
}

/// Compacts up to an epoch that may be in the last segment.
fn fold(folder: &Path, epoch: u64) {
    let mut writer = Writer::open(folder, Options::default()).unwrap();
    writer.seal().unwrap();
    drop(writer);
    compact(folder, epoch).unwrap();
}

fn read(folder: &Path) -> Vec<Record> {
    let mut reader = Reader::open(folder).unwrap();
    let mut all = Vec::new();
    while let Some(located) = reader.read().unwrap() {
        all.push(located.record);
    }
    all
}

/// Copies at most this many records.
fn copy(from: &Path, to: &Path, at_most: usize) -> Result<(), Error> {
    let mut sink = Sink::open(to)?;
    let held = sink.held();
    let mut source = Source::open(from, held.map_or(0, |held| held.number))?;
    if let Some(beginning) = source.beginning()? {
        sink.begin(&beginning)?;
    }
    for _ in 0..at_most {
        match source.read()? {
            Some(record) => assert!(sink.receive(&record)?),
            None => break,
        }
    }
    sink.sync()
}

#[test]
fn a_copy_made_in_steps_is_the_log() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let all = some(10);
    copy(from.path(), to.path(), 9).unwrap();
    assert_eq!(read(to.path()), []);
    write(from.path(), &all[..30]);
    for step in [1, 5, 0, 7, 100] {
        copy(from.path(), to.path(), step).unwrap();
    }
    write(from.path(), &all[30..]);
    copy(from.path(), to.path(), 100).unwrap();
    assert_eq!(read(to.path()), read(from.path()));
    let beginning = |folder| Reader::open(folder).unwrap().beginning().unwrap().unwrap();
    assert_eq!(beginning(to.path()), beginning(from.path()));
    let held = Sink::open(to.path()).unwrap().held().unwrap();
    assert_eq!((held.number, held.epoch), (41, 19));
    assert_eq!(held.at_ns, 1_040);
}

#[test]
fn a_compacted_log_is_copied_from_its_base_on() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(from.path(), &some(10));
    write(from.path(), &[data(10, 0, &[7; 1000]), epoch(30)]);
    write(from.path(), &[epoch(31)]);
    fold(from.path(), 30);
    let all = read(from.path());
    assert!(all[0].number > 1);
    for step in [0, 3, 100] {
        copy(from.path(), to.path(), step).unwrap();
        assert_eq!(read(to.path())[..], all[..read(to.path()).len()]);
    }
    assert_eq!(read(to.path()), all);
    write(from.path(), &[data(11, 0, b"later"), epoch(32)]);
    copy(from.path(), to.path(), 100).unwrap();
    assert_eq!(read(to.path()), read(from.path()));
    // A copy of a copy is one as well.
    let third = tempfile::tempdir().unwrap();
    copy(to.path(), third.path(), 100).unwrap();
    assert_eq!(read(third.path()), read(from.path()));
}

#[test]
fn a_copy_that_is_behind_a_compaction_is_told_so() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(from.path(), &some(10));
    copy(from.path(), to.path(), 4).unwrap();
    for _ in 0..10 {
        write(from.path(), &[data(10, 0, b"again")]);
    }
    write(from.path(), &[epoch(30)]);
    write(from.path(), &[epoch(31)]);
    fold(from.path(), 30);
    let error = copy(from.path(), to.path(), 100).unwrap_err();
    assert!(
        matches!(error, Error::Compacted { number: 5, .. }),
        "{error}"
    );
    let mut sink = Sink::open(to.path()).unwrap();
    sink.clear().unwrap();
    assert_eq!(sink.held(), None);
    drop(sink);
    copy(from.path(), to.path(), 100).unwrap();
    assert_eq!(read(to.path()), read(from.path()));
}

#[test]
fn numbers_of_one_fold_are_not_taken_for_those_of_another() {
    let (from, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(from.path(), &some(10));
    write(from.path(), &[data(10, 0, &[7; 1000]), epoch(30)]);
    write(from.path(), &[epoch(31)]);
    for segment in fs::read_dir(from.path()).unwrap() {
        let segment = segment.unwrap();
        fs::copy(segment.path(), other.path().join(segment.file_name())).unwrap();
    }
    fold(from.path(), 12);
    fold(other.path(), 30);
    let mut source = Source::open(from.path(), 0).unwrap();
    let began = source.beginning().unwrap().unwrap();
    let number = source.read().unwrap().unwrap().number;
    assert!(Source::of(from.path(), number, &began).is_ok());
    // Its reader has an end that is none, as if a writer had been killed.
    let [base, successor] = [from.path(), other.path()].map(|folder| {
        let listed = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        let mut bases =
            listed.filter(|entry| entry.path().extension().is_some_and(|it| it == "base"));
        bases.next().unwrap()
    });
    fs::write(base.path(), vec![9; 4 << 20]).unwrap();
    fs::remove_file(base.path()).unwrap();
    let place = from.path().join(successor.file_name());
    fs::rename(successor.path(), place).unwrap();
    loop {
        match source.read() {
            Ok(record) => drop(record.unwrap()),
            Err(Error::Compacted { number: due, .. }) => break assert!(due > number),
            Err(error) => panic!("{error}"),
        }
    }
    let anew = Source::of(from.path(), number, &began);
    assert!(matches!(anew, Err(Error::Compacted { .. })), "{anew:?}");
    assert!(Source::of(from.path(), began.folded + 30, &began).is_ok());
}

#[test]
fn a_copy_takes_no_other_log() {
    let from = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let to = tempfile::tempdir().unwrap();
    for folder in &from {
        write(folder.path(), &some(3));
    }
    copy(from[0].path(), to.path(), 4).unwrap();
    let error = copy(from[1].path(), to.path(), 4).unwrap_err();
    assert!(matches!(error, Error::Mixed(_)), "{error}");
    let mut sink = Sink::open(to.path()).unwrap();
    sink.clear().unwrap();
    drop(sink);
    copy(from[1].path(), to.path(), 100).unwrap();
    assert_eq!(read(to.path()), read(from[1].path()));
}

#[test]
fn a_copy_that_was_only_begun_may_become_one_of_another_log() {
    let from = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let to = tempfile::tempdir().unwrap();
    for folder in &from {
        write(folder.path(), &some(3));
    }
    copy(from[0].path(), to.path(), 1).unwrap();
    let segment = to.path().join(format!("{:020}.log", 1));
    let header = fs::read(&segment).unwrap()[..52].to_vec();
    fs::write(&segment, header).unwrap();
    assert_eq!(Sink::open(to.path()).unwrap().held(), None);
    copy(from[1].path(), to.path(), 100).unwrap();
    assert_eq!(read(to.path()), read(from[1].path()));
}

#[test]
fn a_source_outlives_the_writer_that_was_killed_while_it_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        durability: Durability::OnRequest,
        ..Options::default()
    };
    let mut writer = Writer::open(folder.path(), options).unwrap();
    writer.append(5, start()).unwrap();
    writer.append(5, epoch(1)).unwrap();
    drop(writer);
    let path = folder.path().join(format!("{:020}.log", 1));
    let whole = fs::metadata(&path).unwrap().len();
    let mut writer = Writer::open(folder.path(), options).unwrap();
    writer.append(5, data(10, 0, &[1; 500])).unwrap();
    drop(writer);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(whole + 100).unwrap();
    let mut source = Source::open(folder.path(), 0).unwrap();
    for number in [1, 2] {
        assert_eq!(source.read().unwrap().unwrap().number, number);
    }
    assert_eq!(source.read().unwrap(), None);
    let mut writer = Writer::open(folder.path(), options).unwrap();
    writer.append(5, data(11, 0, &[2; 700])).unwrap();
    writer.append(5, epoch(2)).unwrap();
    let record = source.read().unwrap().unwrap();
    assert_eq!((record.number, record.entry), (3, data(11, 0, &[2; 700])));
    assert_eq!(source.read().unwrap().unwrap().number, 4);
    // Damage stays an error.
    file.write_all_at(&[9; 600], whole + 20).unwrap();
    let mut source = Source::open(folder.path(), 2).unwrap();
    assert!(matches!(source.read(), Err(Error::Damaged { .. })));
    assert!(matches!(source.read(), Err(Error::Damaged { .. })));
}

#[test]
fn a_source_goes_on_with_no_other_record_than_the_one_it_has_read_last() {
    let [folder, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let options = Options {
        durability: Durability::OnRequest,
        ..Options::default()
    };
    let append = |folder: &Path, at_ns, entries: &[Entry]| {
        let mut writer = Writer::open(folder, options).unwrap();
        for entry in entries {
            writer.append(at_ns, entry.clone()).unwrap();
        }
    };
    let segment = format!("{:020}.log", 1);
    let [path, elsewhere] = [&folder, &other].map(|folder| folder.path().join(&segment));
    append(folder.path(), 5, &[start(), epoch(1)]);
    fs::copy(&path, &elsewhere).unwrap();
    append(folder.path(), 6, &[data(10, 0, &[1; 500]), epoch(2)]);
    let mut source = Source::open(folder.path(), 0).unwrap();
    for number in 1..=4 {
        assert_eq!(source.read().unwrap().unwrap().number, number);
    }
    // The disk has lost the last two records, and others of other lengths were written in their
    // place.
    append(
        other.path(),
        7,
        &[epoch(2), data(10, 0, &[2; 900]), epoch(3)],
    );
    append(other.path(), 8, &[data(10, 0, &[2; 900]), epoch(4)]);
    fs::write(&path, fs::read(&elsewhere).unwrap()).unwrap();
    for _ in 0..2 {
        let told = source.read();
        assert!(matches!(told, Err(Error::Replaced(_))), "{told:?}");
    }
}

#[test]
fn a_copy_without_a_record_begins_where_its_source_does_by_now() {
    let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    write(from.path(), &some(10));
    let begun = Source::open(from.path(), 0).unwrap().beginning().unwrap();
    let mut sink = Sink::open(to.path()).unwrap();
    sink.begin(&begun.unwrap()).unwrap();
    write(from.path(), &[data(10, 0, &[7; 1000]), epoch(30)]);
    fold(from.path(), 30);
    let mut source = Source::open(from.path(), 0).unwrap();
    let beginning = source.beginning().unwrap().unwrap();
    assert!(beginning.first > 1);
    sink.begin(&beginning).unwrap();
    while let Some(record) = source.read().unwrap() {
        assert!(sink.receive(&record).unwrap());
    }
    sink.sync().unwrap();
    // A copy with a record continues.
    sink.begin(&begun.unwrap()).unwrap();
    drop(sink);
    assert_eq!(read(to.path()), read(from.path()));
}

#[test]
fn a_copy_knows_when_each_of_its_records_was_written() {
    let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    write(from.path(), &some(10));
    copy(from.path(), to.path(), 100).unwrap();
    let all = read(from.path());
    let mut sink = Sink::open(to.path()).unwrap();
    for number in [1, 2, 3, 20, 41, 7, 40, 42, 0] {
        let written = all.iter().find(|record| record.number == number);
        let at_ns = written.map(|record| record.at_ns);
        assert_eq!(sink.written_at(number).unwrap(), at_ns, "{number}");
    }
    drop(sink);
    fold(to.path(), 12);
    let mut sink = Sink::open(to.path()).unwrap();
    assert_eq!(sink.written_at(5).unwrap(), None);
    assert_eq!(sink.written_at(30).unwrap(), Some(all[29].at_ns));
    sink.clear().unwrap();
    assert_eq!(sink.written_at(30).unwrap(), None);
}

#[test]
fn who_watches_a_log_is_woken_by_each_write() {
    let folder = tempfile::tempdir().unwrap();
    let watch = Watch::new(folder.path()).unwrap();
    let mut source = Source::open(folder.path(), 0).unwrap();
    let path = folder.path().to_owned();
    let all = some(20);
    thread::scope(|scope| {
        let all = &all;
        scope.spawn(move || {
            for entry in all {
                write(&path, std::slice::from_ref(entry));
            }
        });
        let mut seen = 0;
        while seen < all.len() {
            // Longer than the test may take, so only a wake-up lets it continue.
            watch.wait(Duration::from_secs(3600)).unwrap();
            while source.read().unwrap().is_some() {
                seen += 1;
            }
        }
    });
    assert!(Watch::new(&folder.path().join("none")).is_err());
}

#[test]
fn a_signature_is_of_one_record_of_one_log_by_one_key() {
    let folder = tempfile::tempdir().unwrap();
    let [path, other] = ["key", "other"].map(|name| folder.path().join(name));
    Key::create(&path).unwrap();
    Key::create(&other).unwrap();
    assert!(matches!(Key::create(&path), Err(KeyError::Io { .. })));
    let (key, other) = (Key::read(&path).unwrap(), Key::read(&other).unwrap());
    let id: log::Id = [3; 16];
    let signature = key.sign(&id, 7, b"a record");
    assert!(key.signed(&id, 7, b"a record", &signature));
    assert!(!other.signed(&id, 7, b"a record", &signature));
    assert!(!key.signed(&[4; 16], 7, b"a record", &signature));
    assert!(!key.signed(&id, 8, b"a record", &signature));
    assert!(!key.signed(&id, 7, b"A record", &signature));
    assert!(!key.signed(&id, 7, b"a record", &signature[..31]));
    let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    mode(0o640);
    let refused = Key::read(&path).unwrap_err().to_string();
    assert!(refused.contains("chmod 600"), "{refused}");
    mode(0o600);
    fs::write(&path, "0123").unwrap();
    assert!(matches!(Key::read(&path), Err(KeyError::Malformed(_))));
}
