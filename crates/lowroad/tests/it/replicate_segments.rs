//! A log of many segments, by the real binary.

use std::process::Command;

use replicate::log::{Durability, Options, Writer};
use replicate::record::{Change, Entry, File, Kind, Name, Origin};

#[test]
fn a_log_of_more_segments_than_files_may_be_open_is_applied() {
    const SEGMENTS: u64 = 300;
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        durability: Durability::OnRequest,
        segment: 100,
    };
    let mut writer = Writer::open(&folder.path().join("log"), options).unwrap();
    let numbered = |inode| File {
        inode,
        generation: 1,
    };
    let mut append = |entry| {
        writer.append(1, entry).unwrap();
    };
    append(Entry::Start { root: numbered(2) });
    for inode in 3..3 + SEGMENTS {
        let (file, kind) = (numbered(inode), Kind::Regular);
        append(Entry::Change(Change::New { file, kind }));
        append(Entry::Change(Change::Data {
            file,
            offset: 0,
            bytes: inode.to_string().into_bytes(),
            origin: Origin::Exact,
        }));
        append(Entry::Change(Change::Link {
            directory: numbered(2),
            name: Name::new(inode.to_string().as_bytes()).unwrap(),
            file,
        }));
        append(Entry::Epoch { number: inode - 2 });
    }
    let done = Command::new("bash")
        .args([
            "-euc",
            "ulimit -Sn 100; ls log >segments; \"$1\" replicate apply log --to replica",
            "bash",
        ])
        .arg(env!("CARGO_BIN_EXE_lowroad"))
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    let segments = std::fs::read_to_string(folder.path().join("segments")).unwrap();
    assert!(segments.lines().count() > 300, "{segments}");
    let last = std::fs::read_to_string(folder.path().join("replica/tree/302")).unwrap();
    assert_eq!(last, "302");
}
