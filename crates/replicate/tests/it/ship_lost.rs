//! The state of the replicas after a power failure of the source.

use std::process::Command;

use replicate::ship::tcp::{Limits, Server};

use crate::bed::file_system::{Bed, Format, within};
use crate::shipping::{self, append, follow, read, some, writer};

fn run(program: &str, words: &str) {
    let done = Command::new(program).args(words.split(' ')).status();
    assert!(done.unwrap().success(), "{program} {words}");
}

/// How many records are left of a source that has lost its power, and how many its replica has.
fn left_and_arrived(bed: &Bed, synced: bool) -> Option<(u64, u64)> {
    let disk = bed.mount(Format::Xfs, "disk")?;
    let (log, ends) = (disk.join("log"), shipping::Bed::new());
    let mut source = writer(&log);
    let limits = Limits {
        synced,
        ..Limits::default()
    };
    let tls = ends.files("server").server().unwrap();
    let server = Server::start(&log, "127.0.0.1:0".parse().unwrap(), tls, limits).unwrap();
    let mut replica = ends.client(server.address(), 1, false);
    append(&mut source, &some(100));
    let arrived = follow(&mut replica, source.number()).number;
    let at = disk.parent().unwrap().display();
    // Without anything that is not on the disk.
    run("xfs_io", &format!("-x -c shutdown {at}"));
    drop((source, server, replica));
    run("umount", &at.to_string());
    run("mount", &format!("-o loop {at}.image {at}"));
    let left = match log.exists() {
        true => read(&log).last().map_or(0, |record| record.number),
        false => 0,
    };
    Some((left, arrived))
}

#[test]
fn no_replica_is_ahead_of_what_is_sent_once_it_is_synced() {
    within(|bed| {
        if let Some((left, arrived)) = left_and_arrived(bed, true) {
            assert!(left >= arrived, "{left} of {arrived}");
        }
    });
}

/// What the test above would see of a server that does not wait.
#[test]
fn a_replica_is_ahead_of_what_is_sent_at_once() {
    let mut seen = Vec::new();
    // Any program may sync all disks meanwhile.
    for _ in 0..5 {
        within(|bed| seen.extend(left_and_arrived(bed, false)));
        if seen.last().is_none_or(|(left, arrived)| left < arrived) {
            return;
        }
    }
    panic!("left of what arrived: {seen:?}");
}
