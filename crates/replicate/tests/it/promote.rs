//! Promotions as seen by readers, replicas and copies, without a capture.

use std::fs;
use std::path::Path;

use replicate::apply::{Error as ApplyError, Options, Replica};
use replicate::diff::{What, diff};
use replicate::log::{Error, Reader, Writer, compact, terms};
use replicate::record::{Entry, File, Kind, Source, Term};
use replicate::ship::tcp::{Error as TcpError, Limits, Reason};

use crate::applying::{check, differ, folder};
use crate::common::{ROOT, data, epoch, file, gone, link, mode, new, start, unlink};
use crate::shipping::{Bed, append, fails, follow, read, writer};

fn term(number: u64, epoch: u64, epoch_ns: u64) -> Entry {
    Entry::Term(Term {
        number,
        epoch,
        epoch_ns,
        root: file(1002),
        source: Source::default(),
    })
}

/// Raises every inode number by a thousand, in two records.
fn renumber(inodes: &[u64]) -> Vec<Entry> {
    let pairs: Vec<(File, File)> = [ROOT.inode]
        .iter()
        .chain(inodes)
        .map(|inode| (file(*inode), file(inode + 1000)))
        .collect();
    let (one, other) = pairs.split_at(1);
    vec![
        Entry::Renumber {
            pairs: one.to_vec(),
            last: false,
        },
        Entry::Renumber {
            pairs: other.to_vec(),
            last: true,
        },
    ]
}

fn tree() -> Vec<Entry> {
    vec![
        start(),
        new(10, Kind::Regular),
        link(2, "one", 10),
        data(10, 0, b"one"),
        new(11, Kind::Directory),
        link(2, "folder", 11),
        new(12, Kind::Regular),
        link(11, "two", 12),
        data(12, 0, &[7; 9000]),
        new(13, Kind::Regular),
        link(2, "three", 13),
        mode(2, 0o755),
        mode(10, 0o644),
        mode(11, 0o755),
        mode(12, 0o644),
        mode(13, 0o644),
        epoch(1),
    ]
}

fn promoted(writer: &mut Writer, number: u64) {
    let last = writer.epoch_record();
    writer.rewind(last.number).unwrap();
    append(writer, &[term(number, writer.epoch(), last.at_ns)]);
}

/// The changes of the promoted tree.
fn later() -> Vec<Entry> {
    vec![
        data(1012, 3, b"changed"),
        unlink(1002, "three"),
        gone(1013),
        // An inode number that another file had before.
        new(10, Kind::Regular),
        link(1002, "new", 10),
        data(10, 0, b"new"),
        mode(10, 0o644),
        mode(1012, 0o640),
        epoch(2),
    ]
}

fn log(folder: &Path) -> Writer {
    let mut writer = writer(folder);
    append(&mut writer, &tree());
    promoted(&mut writer, 2);
    append(&mut writer, &renumber(&[10, 11, 12, 13]));
    append(&mut writer, &later());
    writer
}

fn content(tree: &Path) -> Vec<(String, Vec<u8>)> {
    ["one", "folder/two", "new"]
        .map(|name| (name.to_owned(), fs::read(tree.join(name)).unwrap()))
        .to_vec()
}

fn wanted() -> Vec<(String, Vec<u8>)> {
    let mut two = vec![7; 9000];
    two[3..10].copy_from_slice(b"changed");
    [
        ("one", b"one".to_vec()),
        ("folder/two", two),
        ("new", b"new".to_vec()),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .to_vec()
}

#[test]
fn replicas_cross_a_promotion() {
    let place = folder();
    let (at, log_at) = (place.path(), place.path().join("log"));
    let mut writer = writer(&log_at);
    append(&mut writer, &tree());
    check(&log_at, &at.join("early"), Options::default());
    let mut follows = Replica::open(&log_at, &at.join("follows"), Options::default()).unwrap();
    follows.apply(None).unwrap();
    promoted(&mut writer, 2);
    append(&mut writer, &renumber(&[10, 11, 12, 13]));
    append(&mut writer, &later());
    let applied = follows.apply(None).unwrap().unwrap();
    assert_eq!(applied.epoch, 2);
    // Neither of the unchanged files was written again.
    assert!(applied.bytes < 9100, "{applied:?}");
    follows.end().unwrap();
    for replica in ["early", "late", "follows"] {
        check(&log_at, &at.join(replica), Options::default());
        let tree = at.join(replica).join("tree");
        assert_eq!(content(&tree), wanted(), "{replica}");
        assert!(!tree.join("three").exists());
    }
    // A step across a promotion ends before it, and another one follows.
    append(
        &mut writer,
        &[data(10, 3, b"er"), mode(10, 0o600), epoch(3)],
    );
    promoted(&mut writer, 3);
    let pairs: Vec<_> = [(1002, 2), (1010, 1010), (1011, 11), (1012, 12), (10, 13)]
        .map(|(before, after)| (file(before), file(after)))
        .to_vec();
    append(&mut writer, &[Entry::Renumber { pairs, last: true }]);
    append(&mut writer, &[data(13, 5, b"!"), mode(13, 0o640)]);
    append(&mut writer, &[unlink(2, "one"), gone(1010), epoch(4)]);
    for replica in ["early", "later"] {
        check(&log_at, &at.join(replica), Options::default());
        let tree = at.join(replica).join("tree");
        assert_eq!(fs::read(tree.join("new")).unwrap(), b"newer!");
        assert!(!tree.join("one").exists());
    }
}

#[test]
fn compaction_keeps_the_term() {
    let place = folder();
    let log_at = place.path().join("log");
    let mut writer = log(&log_at);
    writer.seal().unwrap();
    drop(writer);
    compact(&log_at, 2).unwrap();
    let known = terms(&log_at).unwrap();
    assert_eq!(known.len(), 1);
    assert_eq!((known[0].record, known[0].term.number), (None, 2));
    let to = place.path().join("replica");
    check(&log_at, &to, Options::default());
    assert_eq!(content(&to.join("tree")), wanted());
    let mut writer = self::writer(&log_at);
    assert_eq!(writer.term(), 2);
    let last = writer.epoch_record().at_ns;
    let refused = writer.append(9, term(2, 2, last)).unwrap_err();
    assert!(matches!(refused, Error::Invalid { .. }), "{refused}");
    writer.append(9, term(3, 2, last)).unwrap();
}

#[test]
fn diff_compares_files_across_a_promotion() {
    let place = folder();
    drop(log(place.path()));
    let all = diff(place.path(), 1, None).unwrap().all;
    let all: Vec<_> = all
        .into_iter()
        .map(|one| (String::from_utf8(one.path).unwrap(), one.what))
        .collect();
    let expected = [
        ("folder/two", What::Content),
        ("folder/two", What::Metadata),
        ("new", What::Created),
        ("three", What::Removed),
    ];
    assert_eq!(all, expected.map(|(path, what)| (path.to_owned(), what)));
}

#[test]
fn renumbering_needs_a_promotion_and_all_files() {
    let one = |inode, after| (file(inode), file(after));
    let all = vec![one(2, 2), one(10, 1), one(11, 3), one(12, 4), one(13, 5)];
    let mut twice = all.clone();
    twice[1] = one(10, 2);
    let last = true;
    let refused = [
        (
            false,
            vec![Entry::Renumber {
                pairs: all.clone(),
                last,
            }],
        ),
        (true, vec![Entry::Renumber { pairs: twice, last }]),
        (
            true,
            vec![Entry::Renumber {
                pairs: all[1..].to_vec(),
                last,
            }],
        ),
        (
            true,
            vec![Entry::Renumber {
                pairs: Vec::new(),
                last: false,
            }],
        ),
        (
            true,
            vec![
                Entry::Renumber {
                    pairs: all.clone(),
                    last: false,
                },
                epoch(2),
            ],
        ),
        (
            true,
            vec![data(10, 0, b"x"), Entry::Renumber { pairs: all, last }],
        ),
    ];
    for (promotes, entries) in refused {
        let place = folder();
        let log_at = place.path().join("log");
        let mut writer = writer(&log_at);
        append(&mut writer, &tree());
        if promotes {
            promoted(&mut writer, 2);
        }
        append(&mut writer, &entries);
        if !matches!(entries.last(), Some(Entry::Epoch { .. })) {
            append(&mut writer, &[epoch(2)]);
        }
        let opened = Replica::open(&log_at, &place.path().join("to"), Options::default());
        let error = opened
            .and_then(|mut replica| replica.apply(None))
            .unwrap_err();
        assert!(
            matches!(error, ApplyError::Log(Error::Invalid { .. })),
            "{entries:?}: {error}"
        );
    }
}

#[test]
fn rewinding_removes_what_follows() {
    let place = folder();
    let log_at = place.path().join("log");
    let mut writer = writer(&log_at);
    append(&mut writer, &tree());
    let mut all = read(&log_at);
    for number in 2..60 {
        append(&mut writer, &[data(12, number, &[1; 3000]), epoch(number)]);
    }
    // It follows the log to its end, and cannot continue.
    let mut reader = Reader::open(&log_at).unwrap();
    while reader.read().unwrap().is_some() {}
    let mut last = writer.number();
    // In another segment, in the same one, and in the first.
    for number in [last, 100, 60, 19, 17] {
        writer.rewind(number).unwrap();
        assert_eq!(writer.number(), number.min(last));
        assert_eq!(read(&log_at).len() as u64, number);
        last = number;
    }
    assert_eq!(writer.epoch(), 1);
    append(&mut writer, &[data(12, 0, b"other"), epoch(2)]);
    let ended = reader.read().unwrap_err();
    assert!(matches!(ended, Error::Replaced(_)), "{ended}");
    drop(writer);
    all.extend(read(&log_at).split_off(17));
    assert_eq!(read(&log_at), all);
    assert_eq!(self::writer(&log_at).epoch(), 2);
}

#[test]
fn copies_follow_a_promoted_source() {
    let bed = Bed::new();
    let at = |number| bed.copy(number);
    let mut source = writer(&bed.log());
    append(&mut source, &tree());
    // One has an epoch, one has the beginning of another epoch, and two have further epochs.
    let server = bed.server(Limits::default());
    drop(follow(
        &mut bed.client(server.address(), 0, false),
        source.number(),
    ));
    append(&mut source, &[data(12, 0, b"unfinished")]);
    drop(follow(
        &mut bed.client(server.address(), 1, false),
        source.number(),
    ));
    append(&mut source, &[epoch(2), data(12, 0, b"ahead"), epoch(3)]);
    for number in 2..5 {
        drop(follow(
            &mut bed.client(server.address(), number, false),
            source.number(),
        ));
    }
    drop(server);
    let ahead = read(&at(2));
    // The first copy is promoted, on another machine.
    drop(source);
    fs::rename(bed.log(), bed.folder.path().join("old")).unwrap();
    fs::rename(at(0), bed.log()).unwrap();
    let mut source = writer(&bed.log());
    promoted(&mut source, 2);
    append(&mut source, &renumber(&[10, 11, 12, 13]));
    append(&mut source, &later());
    let server = bed.server(Limits::default());
    let to = server.address();
    let progress = follow(&mut bed.client(to, 1, false), source.number());
    assert_eq!((progress.epoch, progress.replaced), (2, 0));
    let error = fails(&mut bed.client(to, 2, false));
    assert!(matches!(error, TcpError::Ahead { epoch: 3, .. }), "{error}");
    let said = error.to_string();
    assert!(
        said.contains("epochs 2 to 3") && said.contains("--rollback"),
        "{said}"
    );
    assert_eq!(read(&at(2)), ahead);
    let mut rolls = bed.client(to, 3, false).with_rollback(true);
    let progress = follow(&mut rolls, source.number());
    assert_eq!(progress.replaced, 0);
    // All but what both had came.
    assert_eq!(progress.records, source.number() - 17);
    let mut replaced = bed.client(to, 4, true);
    while replaced
        .poll(std::time::Duration::from_millis(20))
        .unwrap()
        .replaced
        == 0
    {}
    follow(&mut replaced, source.number());
    drop((rolls, replaced));
    for number in [1, 3, 4] {
        assert_eq!(read(&at(number)), read(&bed.log()), "copy {number}");
    }
}

#[test]
fn a_source_that_returns_is_refused() {
    let bed = Bed::new();
    let mut source = writer(&bed.log());
    append(&mut source, &tree());
    let server = bed.server(Limits::default());
    drop(follow(
        &mut bed.client(server.address(), 0, false),
        source.number(),
    ));
    // It is promoted, and the source does not know.
    let mut copy = writer(&bed.copy(0));
    promoted(&mut copy, 2);
    append(&mut copy, &renumber(&[10, 11, 12, 13]));
    append(&mut copy, &later());
    drop(copy);
    let before = read(&bed.copy(0));
    append(
        &mut source,
        &[
            data(12, 0, b"later"),
            epoch(2),
            data(12, 0, b"more"),
            epoch(3),
        ],
    );
    for fresh in [false, true] {
        let mut client = bed.client(server.address(), 0, fresh).with_rollback(true);
        let error = fails(&mut client);
        let refused = matches!(
            error,
            TcpError::Refused {
                reason: Reason::Term,
                ..
            }
        );
        assert!(refused, "{error}");
        assert!(!error.heals());
    }
    assert_eq!(read(&bed.copy(0)), before);
}

#[test]
fn resync_makes_only_what_differs() {
    let place = folder();
    let at = |name: &str| place.path().join(name);
    let mut old = writer(&at("old"));
    append(&mut old, &tree());
    append(
        &mut old,
        &[data(10, 0, b"ahead"), mode(10, 0o600), epoch(2)],
    );
    append(&mut old, &[unlink(2, "three"), epoch(3)]);
    check(&at("old"), &at("replica"), Options::default());
    drop(log(&at("log")));
    let opened = Replica::open(&at("log"), &at("replica"), Options::default());
    assert!(matches!(opened.unwrap_err(), ApplyError::OtherLog { .. }));
    // The size and the time are the same, and the bytes are not.
    let tree = at("replica").join("tree");
    let two = tree.join("folder/two");
    fs::write(tree.join("foreign"), "").unwrap();
    let time = fs::metadata(&two).unwrap().modified().unwrap();
    fs::write(&two, [8; 9000]).unwrap();
    fs::File::options()
        .write(true)
        .open(&two)
        .unwrap()
        .set_modified(time)
        .unwrap();
    let resync = Options {
        resync: true,
        ..Options::default()
    };
    let mut replica = Replica::open(&at("log"), &at("replica"), resync.clone()).unwrap();
    let applied = replica.apply(None).unwrap().unwrap();
    assert_eq!(applied.epoch, 2);
    let all = differ(&at("log"), 2, &tree);
    assert!(all.is_empty(), "{all:#?}");
    replica.end().unwrap();
    // A tree that was a source, and is as the log has it.
    fs::create_dir(at("source")).unwrap();
    fs::rename(&tree, at("source").join("tree")).unwrap();
    let mut replica = Replica::open(&at("log"), &at("source"), resync.clone()).unwrap();
    let applied = replica.apply(None).unwrap().unwrap();
    assert_eq!((applied.epoch, applied.bytes), (2, 0));
    replica.end().unwrap();
    check(&at("log"), &at("source"), Options::default());
    // A replica whose creation was interrupted is not valid.
    for calls in 0..12 {
        fs::write(at("source").join("tree/one"), "two").unwrap();
        let cut = Options {
            gate: replicate::apply::Gate::closing_after(calls),
            ..resync.clone()
        };
        let opened = Replica::open(&at("log"), &at("source"), cut);
        if opened.and_then(|mut replica| replica.apply(None)).is_ok() {
            break;
        }
        let opened = Replica::open(&at("log"), &at("source"), Options::default());
        let made = opened.and_then(|mut replica| replica.apply(None));
        // Either nothing was begun and the change is found, or everything is written again.
        if made.is_ok() {
            let all = differ(&at("log"), 2, &at("source").join("tree"));
            assert!(all.is_empty(), "{calls}: {all:#?}");
        }
    }
}
