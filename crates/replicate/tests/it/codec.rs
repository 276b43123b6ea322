//! Records survive encoding and decoding, and no invalid bytes are decoded.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use replicate::codec::{InvalidRecord, decode, encode};
use replicate::patterns::Patterns;
use replicate::record::{
    Attributes, Change, Entry, File, Kind, Name, Origin, Part, Record, Source, Term,
};

fn file() -> impl Strategy<Value = File> {
    (any::<u64>(), any::<u32>()).prop_map(|(inode, generation)| File { inode, generation })
}

fn name() -> impl Strategy<Value = Name> {
    vec(any::<u8>(), 1..=255).prop_filter_map("no name", |bytes| Name::new(&bytes).ok())
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        (any::<u64>(), any::<u64>()).prop_map(|(offset, length)| Part::Range { offset, length }),
        Just(Part::Attributes),
        Just(Part::Names),
    ]
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Regular),
        Just(Kind::Directory),
        vec(any::<u8>(), 0..300).prop_map(Kind::Symlink),
        Just(Kind::Fifo),
        Just(Kind::Socket),
        any::<u64>().prop_map(Kind::CharacterDevice),
        any::<u64>().prop_map(Kind::BlockDevice),
    ]
}

fn attributes() -> impl Strategy<Value = Attributes> {
    (0..=0o7777_u16, any::<u32>(), any::<u32>(), any::<i64>()).prop_map(
        |(mode, uid, gid, modified_ns)| Attributes {
            mode,
            uid,
            gid,
            modified_ns,
        },
    )
}

fn change() -> impl Strategy<Value = Change> {
    let bytes = || vec(any::<u8>(), 0..100);
    let origin = prop_oneof![Just(Origin::Exact), Just(Origin::ReadBack)];
    prop_oneof![
        (file(), kind()).prop_map(|(file, kind)| Change::New { file, kind }),
        file().prop_map(|file| Change::Gone { file }),
        (file(), attributes())
            .prop_map(|(file, attributes)| Change::Attributes { file, attributes }),
        (file(), vec((bytes(), bytes()), 0..5))
            .prop_map(|(file, all)| Change::Extended { file, all }),
        (file(), name(), file()).prop_map(|(directory, name, file)| Change::Link {
            directory,
            name,
            file
        }),
        (file(), name()).prop_map(|(directory, name)| Change::Unlink { directory, name }),
        (file(), any::<u64>(), bytes(), origin).prop_map(|(file, offset, bytes, origin)| {
            Change::Data {
                file,
                offset,
                bytes,
                origin,
            }
        }),
        (file(), any::<u64>()).prop_map(|(file, size)| Change::Size { file, size }),
        (file(), any::<u64>(), any::<u64>()).prop_map(|(file, offset, length)| Change::Hole {
            file,
            offset,
            length
        }),
        (file(), part()).prop_map(|(file, part)| Change::Doubt { file, part }),
        (file(), part()).prop_map(|(file, part)| Change::Settled { file, part }),
    ]
}

/// The offset of a record's tag, after its number and time.
const TAG: usize = 16;

fn tags() -> impl Strategy<Value = u8> {
    select([&[1, 2, 14], Change::TAGS].concat())
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    vec(vec(any::<char>(), 0..20).prop_map(String::from_iter), 0..4)
}

fn record() -> impl Strategy<Value = Record> {
    let entry = prop_oneof![
        1 => file().prop_map(|root| Entry::Start { root }),
        1 => any::<u64>().prop_map(|number| Entry::Epoch { number }),
        1 => (texts(), texts()).prop_map(|(include, exclude)| {
            Entry::Patterns(Patterns { include, exclude })
        }),
        1 => Just(Entry::Barrier),
        1 => file().prop_map(|file| Entry::Stale { file }),
        1 => (vec(any::<u8>(), 0..40), "[a-z0-9]{0,8}", vec(any::<u8>(), 0..40)).prop_map(|(path, file_system, volume)| {
            Entry::Source(Source { path, file_system, volume })
        }),
        1 => ([any::<u64>(), any::<u64>(), any::<u64>()], file()).prop_map(|([number, epoch, epoch_ns], root)| {
            Entry::Term(Term { number, epoch, epoch_ns, root, source: Source::default() })
        }),
        1 => (vec((file(), file()), 0..8), any::<bool>()).prop_map(|(pairs, last)| {
            Entry::Renumber { pairs, last }
        }),
        9 => change().prop_map(Entry::Change),
    ];
    (any::<u64>(), any::<u64>(), entry).prop_map(|(number, at_ns, entry)| Record {
        number,
        at_ns,
        entry,
    })
}

proptest! {
    #[test]
    fn a_record_is_read_as_it_was_written(record in record()) {
        let mut bytes = Vec::new();
        encode(&record, &mut bytes);
        prop_assert_eq!(decode(&bytes).unwrap(), record);
        for end in 0..bytes.len() {
            prop_assert!(decode(&bytes[..end]).is_err());
        }
        bytes.push(0);
        prop_assert_eq!(decode(&bytes), Err(InvalidRecord::Long(1)));
    }

    #[test]
    fn what_is_read_from_any_bytes_is_what_they_say(bytes in vec(any::<u8>(), 0..200), tag in tags()) {
        let mut bytes = bytes;
        if let Some(byte) = bytes.get_mut(TAG) {
            *byte = tag;
        }
        if let Ok(record) = decode(&bytes) {
            let mut again = Vec::new();
            encode(&record, &mut again);
            prop_assert_eq!(again, bytes);
        }
    }
}

#[test]
fn every_change_is_generated() {
    let mut runner = TestRunner::deterministic();
    let mut generated = BTreeSet::new();
    for _ in 0..1000 {
        let record = Record {
            number: 1,
            at_ns: 2,
            entry: Entry::Change(change().new_tree(&mut runner).unwrap().current()),
        };
        let mut bytes = Vec::new();
        encode(&record, &mut bytes);
        generated.insert(bytes[TAG]);
    }
    assert_eq!(generated, Change::TAGS.iter().copied().collect());
}

#[test]
fn a_claimed_length_is_no_allocation() {
    let record = Record {
        number: 1,
        at_ns: 2,
        entry: Entry::Change(Change::Extended {
            file: File {
                inode: 3,
                generation: 4,
            },
            all: Vec::new(),
        }),
    };
    let mut bytes = Vec::new();
    encode(&record, &mut bytes);
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(decode(&bytes), Err(InvalidRecord::Short));
}

#[test]
fn no_record_names_what_is_outside() {
    for bytes in [&b".."[..], b".", b"a/b", b"", b"a\0"] {
        let mut body = [0; 16].to_vec();
        body.push(8);
        body.extend([0; 12]);
        body.extend(u32::try_from(bytes.len()).unwrap().to_le_bytes());
        body.extend(bytes);
        assert!(matches!(decode(&body), Err(InvalidRecord::Name(_))));
    }
}
