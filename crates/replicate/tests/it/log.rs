//! A log is read as it was written, up to an interrupted write, or not at all.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use replicate::log::{Durability, Error, LocatedRecord, Options, Reader, Writer, compact};
use replicate::record::{Change, Entry, Kind, Part, Record};
use replicate::tree::{Invalid, Tree};

use crate::common::{ROOT, data, epoch, file, gone, hole, link, new, record, size, start, unlink};

fn options(segment: u64) -> Options {
    Options {
        durability: Durability::OnRequest,
        segment,
    }
}

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

fn write(folder: &Path, segment: u64, entries: &[Entry]) {
    let mut writer = Writer::open(folder, options(segment)).unwrap();
    for entry in entries {
        writer.append(5, entry.clone()).unwrap();
    }
    writer.sync().unwrap();
}

fn read(folder: &Path) -> Result<Vec<Record>, Error> {
    let mut reader = Reader::open(folder)?;
    let mut all = Vec::new();
    while let Some(located) = reader.read()? {
        assert_eq!(located.place.read()?, located.record);
        all.push(located.record);
    }
    Ok(all)
}

fn entries(folder: &Path) -> Vec<Entry> {
    let all = read(folder).unwrap();
    for (index, record) in all.iter().enumerate() {
        assert_eq!(record.number, index as u64 + 1);
    }
    all.into_iter().map(|record| record.entry).collect()
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "log" || e == "base"))
        .collect();
    all.sort();
    all
}

#[test]
fn records_are_read_as_they_were_written_over_many_segments() {
    let folder = tempfile::tempdir().unwrap();
    let all = some(50);
    write(folder.path(), 200, &all[..80]);
    write(folder.path(), 200, &all[80..]);
    assert!(segments(folder.path()).len() > 10);
    assert_eq!(entries(folder.path()), all);
    for path in segments(folder.path()) {
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn a_reader_goes_on_where_what_it_began_to_read_was_cut_off() {
    let [folder, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let all = some(3);
    let [given_up, written] = [1, 2].map(|byte| data(10, 0, &[byte; 5000]));
    write(folder.path(), 1 << 20, &all);
    write(other.path(), 1 << 20, &[&all[..], &[given_up]].concat());
    let mut reader = Reader::open(folder.path()).unwrap();
    while reader.read().unwrap().is_some() {}
    let [there, whole] = [&folder, &other].map(|folder| segments(folder.path()).remove(0));
    let (begun, whole) = (fs::read(&there).unwrap(), fs::read(whole).unwrap());
    for cut in [1, 20, 4000] {
        let cut_off = &whole[begun.len()..][..cut];
        fs::write(&there, [&begun, cut_off].concat()).unwrap();
        assert!(reader.read().unwrap().is_none());
    }
    // The next writer cuts that off.
    write(folder.path(), 1 << 20, std::slice::from_ref(&written));
    assert_eq!(reader.read().unwrap().unwrap().record.entry, written);
}

#[test]
fn a_log_cut_anywhere_is_taken_up_where_its_last_whole_record_ends() {
    let whole = tempfile::tempdir().unwrap();
    let all = some(4);
    write(whole.path(), 400, &all);
    let last = segments(whole.path()).pop().unwrap();
    let bytes = fs::read(&last).unwrap();
    let before = segments(whole.path()).len();
    assert!(
        before > 1,
        "the cut goes through a segment that is not the first"
    );
    for end in 0..=bytes.len() {
        for zeros in [0, 600] {
            let folder = tempfile::tempdir().unwrap();
            copy(whole.path(), folder.path());
            let mut cut = bytes[..end].to_vec();
            cut.resize(end + zeros, 0);
            fs::write(folder.path().join(last.file_name().unwrap()), cut).unwrap();
            let seen = entries(folder.path());
            assert_eq!(seen, all[..seen.len()], "cut at {end}, then {zeros} zeros");
            write(folder.path(), 400, &all[seen.len()..]);
            assert_eq!(
                entries(folder.path()),
                all,
                "cut at {end}, then {zeros} zeros"
            );
        }
    }
}

#[test]
fn a_changed_byte_is_found_wherever_it_is() {
    let whole = tempfile::tempdir().unwrap();
    write(whole.path(), 400, &some(4));
    for path in segments(whole.path()) {
        let bytes = fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                fs::write(&path, changed).unwrap();
                let found = read(whole.path()).unwrap_err();
                let Error::Damaged { path: at_path, .. } = found else {
                    panic!("{found} for byte {at} of {}", path.display());
                };
                assert_eq!(at_path, path);
            }
        }
        fs::write(&path, bytes).unwrap();
    }
    read(whole.path()).unwrap();
}

#[test]
fn the_writer_refuses_a_damaged_segment_and_leaves_it() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 1 << 20, &some(4));
    let path = segments(folder.path()).pop().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = Writer::open(folder.path(), options(400)).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }));
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn a_missing_or_shortened_segment_is_found() {
    let whole = tempfile::tempdir().unwrap();
    write(whole.path(), 300, &some(10));
    let all = segments(whole.path());
    for path in &all[..all.len() - 1] {
        let bytes = fs::read(path).unwrap();
        fs::remove_file(path).unwrap();
        assert!(matches!(read(whole.path()), Err(Error::Missing { .. })));
        for end in 0..bytes.len() {
            fs::write(path, &bytes[..end]).unwrap();
            let error = read(whole.path()).unwrap_err();
            let named = matches!(&error, Error::Damaged { path: of, .. } if of == path);
            // A cut between two records leaves a valid segment, but the next segment does not
            // follow it.
            let gap = matches!(error, Error::Missing { .. });
            assert!(named || gap, "{error}");
        }
        fs::write(path, &bytes).unwrap();
    }
}

#[test]
fn a_reader_follows_the_writer_over_segments() {
    let folder = tempfile::tempdir().unwrap();
    let all = some(20);
    let mut writer = Writer::open(folder.path(), options(150)).unwrap();
    let mut reader = Reader::open(folder.path()).unwrap();
    let mut seen = Vec::new();
    for entry in &all {
        writer.append(5, entry.clone()).unwrap();
        writer.flush().unwrap();
        while let Some(located) = reader.read().unwrap() {
            seen.push(located.record.entry);
        }
        assert_eq!(seen.last(), Some(entry));
    }
    assert_eq!(seen, all);
    assert_eq!(reader.id().unwrap(), Some(writer.id()));
}

#[test]
fn a_log_has_one_writer() {
    let folder = tempfile::tempdir().unwrap();
    let writer = Writer::open(folder.path(), options(400)).unwrap();
    let second = Writer::open(folder.path(), options(400));
    assert!(matches!(second, Err(Error::Busy(_))));
    drop(writer);
    Writer::open(folder.path(), options(400)).unwrap();
}

#[test]
fn no_epoch_ends_in_doubt_even_after_the_writer_was_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let doubt = |offset, length| (file(10), Part::Range { offset, length });
    let (of, part) = doubt(10, 5);
    let mut all = some(1);
    all.push(Entry::Change(Change::Doubt { file: of, part }));
    all.extend((0..20).map(|_| data(10, 0, b"far from the doubt")));
    write(folder.path(), 100, &all);
    let mut writer = Writer::open(folder.path(), options(100)).unwrap();
    assert!(writer.doubtful());
    let refused = writer.append(5, epoch(99)).unwrap_err();
    let Error::Invalid { invalid, .. } = refused else {
        panic!("{refused}");
    };
    assert_eq!(invalid, Invalid::Doubt { file: of });
    let (file, wider) = doubt(0, u64::MAX);
    writer
        .append(5, Entry::Change(Change::Settled { file, part: wider }))
        .unwrap();
    writer.append(5, epoch(99)).unwrap();
    let refused = writer.append(5, epoch(99)).unwrap_err();
    assert!(matches!(refused, Error::Invalid { .. }));
    assert_eq!(writer.epoch(), 99);
}

#[test]
fn received_records_may_come_twice_but_not_with_a_gap() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(folder.path(), options(400)).unwrap();
    let records = [record(1, start()), record(2, epoch(1)), record(3, epoch(2))];
    assert!(writer.receive(&records[0]).unwrap());
    assert!(!writer.receive(&records[0]).unwrap());
    let gap = writer.receive(&records[2]).unwrap_err();
    assert!(matches!(
        gap,
        Error::Gap {
            expected: 2,
            found: 3
        }
    ));
    assert!(writer.receive(&records[1]).unwrap());
    assert!(writer.receive(&records[2]).unwrap());
    writer.sync().unwrap();
    assert_eq!(read(folder.path()).unwrap(), records);
}

#[test]
fn a_record_that_is_too_large_leaves_the_log_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(folder.path(), options(400)).unwrap();
    writer.append(5, start()).unwrap();
    let large = vec![7; replicate::log::MAX_RECORD + 1];
    let refused = writer.append(5, data(10, 0, &large));
    assert!(matches!(refused, Err(Error::TooLarge(_))));
    writer.append(5, epoch(1)).unwrap();
    writer.sync().unwrap();
    assert_eq!(entries(folder.path()), [start(), epoch(1)]);
}

#[test]
fn segments_of_two_logs_are_not_one() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(one.path(), 200, &some(10));
    write(other.path(), 200, &some(10));
    let path = segments(one.path()).remove(2);
    fs::copy(
        other.path().join(path.file_name().unwrap()),
        one.path().join(path.file_name().unwrap()),
    )
    .unwrap();
    assert!(matches!(read(one.path()), Err(Error::Mixed(_))));
    assert_eq!(ROOT, file(2));
}

fn copy(from: &Path, to: &Path) {
    for path in segments(from) {
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

fn tree_of(folder: &Path) -> Tree {
    let mut tree = Tree::default();
    for record in read(folder).unwrap() {
        tree.fold(&record).unwrap();
    }
    tree
}

#[test]
fn a_compacted_log_says_the_same_from_its_epoch_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut all = some(10);
    all.extend([unlink(2, "file 10"), gone(10), epoch(50)]);
    all.extend((0..10).map(|_| data(11, 0, b"again and again")));
    all.extend([size(11, 4), size(11, 100_000), hole(12, 1, 3), epoch(51)]);
    write(folder.path(), 300, &all);
    let before = tree_of(folder.path());
    for keep in [14, 50, 51] {
        let last = tree_of(folder.path()).number();
        match compact(folder.path(), keep) {
            Err(Error::Written { epoch }) if epoch > 14 => {
                Writer::open(folder.path(), options(300))
                    .unwrap()
                    .seal()
                    .unwrap();
                compact(folder.path(), keep).unwrap();
            }
            other => drop(other.unwrap()),
        }
        assert_eq!(tree_of(folder.path()), before);
        assert_eq!(tree_of(folder.path()).number(), last);
    }
    assert!(matches!(
        compact(folder.path(), 50),
        Err(Error::NoEpoch { .. })
    ));
    write(folder.path(), 300, &[data(11, 1, b"x"), epoch(52)]);
    assert_eq!(tree_of(folder.path()).epoch(), 52);
}

#[test]
fn a_compaction_that_was_killed_anywhere_has_changed_nothing_or_everything() {
    let whole = tempfile::tempdir().unwrap();
    write(whole.path(), 300, &some(10));
    let tree = tree_of(whole.path());
    let done = tempfile::tempdir().unwrap();
    copy(whole.path(), done.path());
    compact(done.path(), 14).unwrap();
    let base = segments(done.path())
        .into_iter()
        .find(|path| path.extension().unwrap() == "base");
    let base = base.unwrap();
    let bytes = fs::read(&base).unwrap();
    let replaced: Vec<PathBuf> = segments(whole.path())
        .into_iter()
        .filter(|path| !done.path().join(path.file_name().unwrap()).exists())
        .collect();
    assert!(replaced.len() > 2);
    let check = |folder: &Path| {
        assert_eq!(tree_of(folder), tree);
        compact(folder, 14).unwrap();
        assert_eq!(tree_of(folder), tree);
        write(folder, 300, &[epoch(90)]);
        assert_eq!(tree_of(folder).epoch(), 90);
        assert_eq!(
            fs::read(folder.join(base.file_name().unwrap())).unwrap(),
            bytes
        );
    };
    for end in (0..bytes.len()).step_by(7) {
        let folder = tempfile::tempdir().unwrap();
        copy(whole.path(), folder.path());
        fs::write(folder.path().join("compact.tmp"), &bytes[..end]).unwrap();
        check(folder.path());
    }
    for removed in 0..=replaced.len() {
        let folder = tempfile::tempdir().unwrap();
        copy(whole.path(), folder.path());
        fs::copy(&base, folder.path().join(base.file_name().unwrap())).unwrap();
        for path in &replaced[..removed] {
            fs::remove_file(folder.path().join(path.file_name().unwrap())).unwrap();
        }
        check(folder.path());
    }
}

#[test]
fn a_changed_byte_is_found_in_a_compacted_segment() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 300, &some(6));
    compact(folder.path(), 12).unwrap();
    let base = segments(folder.path())
        .into_iter()
        .find(|path| path.extension().unwrap() == "base");
    let base = base.unwrap();
    let bytes = fs::read(&base).unwrap();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        fs::write(&base, changed).unwrap();
        assert!(matches!(read(folder.path()), Err(Error::Damaged { .. })));
        fs::write(&base, &bytes[..at]).unwrap();
        assert!(read(folder.path()).is_err());
    }
}

#[test]
fn readers_outlive_compaction_unless_they_are_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 300, &some(10));
    let mut behind = Reader::open(folder.path()).unwrap();
    let mut ahead = Reader::open(folder.path()).unwrap();
    let mut places = vec![behind.read().unwrap().unwrap()];
    let epoch_of = |located: &LocatedRecord| match located.record.entry {
        Entry::Epoch { number } => number,
        _ => 0,
    };
    loop {
        let located = ahead.read().unwrap().unwrap();
        places.push(located);
        if epoch_of(&places[places.len() - 1]) == 16 {
            break;
        }
    }
    compact(folder.path(), 14).unwrap();
    let mut seen = 0;
    while let Some(located) = ahead.read().unwrap() {
        seen = epoch_of(&located);
    }
    assert_eq!(seen, 19);
    for located in places {
        assert_eq!(located.place.read().unwrap(), located.record);
    }
    let lost = loop {
        match behind.read() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the end was reached"),
            Err(error) => break error,
        }
    };
    assert!(matches!(lost, Error::Compacted { .. }));
}

#[test]
fn a_log_can_be_read_from_any_record_on() {
    let folder = tempfile::tempdir().unwrap();
    let all = some(20);
    write(folder.path(), 200, &all[..60]);
    let after = |number| Reader::open_after(folder.path(), number).unwrap();
    let rest = |reader: &mut Reader| {
        let mut numbers = Vec::new();
        while let Some(located) = reader.read().unwrap() {
            numbers.push(located.record.number);
        }
        numbers
    };
    let mut ahead: Vec<Reader> = (60..=70).map(after).collect();
    for reader in &mut ahead {
        assert!(rest(reader).is_empty());
    }
    for number in 0..60 {
        let due: Vec<u64> = (number + 1..=60).collect();
        assert_eq!(rest(&mut after(number)), due);
    }
    write(folder.path(), 200, &all[60..]);
    for (reader, number) in ahead.iter_mut().zip(60..) {
        assert_eq!(rest(reader), (number + 1..=81).collect::<Vec<u64>>());
    }
    compact(folder.path(), 14).unwrap();
    let folded = rest(&mut Reader::open(folder.path()).unwrap());
    let epoch = 5 * 4 + 1;
    for number in 0..81 {
        let mut reader = after(number);
        if number < epoch {
            let lost = reader.read().unwrap_err();
            assert!(matches!(lost, Error::Compacted { .. }), "{number}: {lost}");
        } else {
            assert_eq!(rest(&mut reader), (number + 1..=81).collect::<Vec<u64>>());
        }
    }
    assert_eq!(folded.last(), Some(&81));
}

#[test]
fn a_reader_is_told_that_its_log_was_replaced() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 1 << 20, &some(3));
    let mut reader = Reader::open(folder.path()).unwrap();
    while reader.read().unwrap().is_some() {}
    let mut writer = Writer::open(folder.path(), options(1 << 20)).unwrap();
    writer.clear().unwrap();
    assert!(matches!(reader.read(), Err(Error::Replaced(_))));
    writer.append(5, start()).unwrap();
    writer.sync().unwrap();
    assert!(matches!(reader.read(), Err(Error::Replaced(_))));
}
