//! SQLite in its ways of keeping a journal: each epoch is a state that it recovers from.

use std::path::Path;
use std::process::Command;

use sys::require::{Class, skip};

use super::mirror::{MirrorBed, output_of};
use crate::bed::file_system::within;

const CALLS: usize = 5;
const AT_ONCE: usize = 5;
/// In each: two rows whose sum is zero, and some that come and go.
const TRANSACTION: &str = "begin immediate;
    insert into moved values (abs(random() % 1000));
    insert into moved select -amount from moved order by rowid desc limit 1;
    insert into padding select randomblob(abs(random() % 5000)) from moved limit 20;
    delete from padding where rowid % 3 = 1;
    commit;";

#[test]
fn every_epoch_of_sqlite_is_sound() {
    within(|bed| {
        if Command::new("sqlite3").arg("-version").output().is_err() {
            skip(Class::Core, "needs SQLite: apt-get install sqlite3");
            return;
        }
        for mode in ["delete", "truncate", "persist", "wal"] {
            let Some(mirrored) = MirrorBed::start(bed, mode) else {
                return;
            };
            every_epoch_is_sound(mirrored, mode);
        }
    });
}

fn every_epoch_is_sound(mut mirrored: MirrorBed, mode: &str) {
    let database = mirrored.tree.join("database");
    let pragmas = format!("pragma journal_mode = {mode}; pragma synchronous = full;");
    let tables = "create table moved (amount); create table padding (bytes);";
    mirrored.during(|| sqlite(&database, &format!("{pragmas} {tables}")));
    let begun = mirrored.epoch();
    let load = format!("{pragmas} {}", TRANSACTION.repeat(AT_ONCE));
    for _ in 0..CALLS {
        mirrored.during(|| sqlite(&database, &load));
        mirrored.epoch();
    }
    let (ended, copies) = mirrored.end();
    for copy in copies {
        assert_eq!(rows(&copy), 2 * CALLS * AT_ONCE, "{mode}");
    }
    // Each transaction is synced. Shared memory is read back at intervals.
    let least = if mode == "wal" {
        CALLS
    } else {
        CALLS * AT_ONCE
    };
    assert!(
        ended >= begun + least as u64,
        "{mode}: epochs {begun} to {ended}"
    );
    let mut last = 0;
    for epoch in begun..=ended {
        let rows = rows(&mirrored.restored(epoch));
        assert!(
            rows.is_multiple_of(2) && rows >= last,
            "{mode}, epoch {epoch}: {rows} rows after {last}"
        );
        last = rows;
    }
}

/// How many rows a database has that is sound.
fn rows(tree: &Path) -> usize {
    let ask = "pragma integrity_check; select count(*), coalesce(sum(amount), 0) from moved";
    let answer = sqlite(&tree.join("database"), ask);
    let (sound, sums) = answer.split_once('\n').unwrap();
    let (rows, sum) = sums.split_once('|').unwrap();
    assert_eq!((sound, sum), ("ok", "0"), "{}: {answer}", tree.display());
    rows.parse().unwrap()
}

fn sqlite(database: &Path, words: &str) -> String {
    output_of(Command::new("sqlite3").arg(database).arg(words))
}
