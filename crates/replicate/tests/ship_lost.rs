//! A source that loses its power: what its replicas have then.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

mod bed;
mod common;
mod shipping;

use std::process::Command;

use bed::file_system::{Format, within};
use replicate::ship::tcp::{Limits, Server};
use shipping::{append, follow, read, some, writer};

fn run(program: &str, words: &str) {
    let done = Command::new(program).args(words.split(' ')).status();
    assert!(done.unwrap().success(), "{program} {words}");
}

#[test]
fn no_replica_is_ahead_of_what_is_sent_once_it_is_synced() {
    for synced in [true, false] {
        within(|bed| {
            let Some(disk) = bed.mount(Format::Xfs, "disk") else {
                return;
            };
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
            assert_eq!(left >= arrived, synced, "{left} of {arrived}");
        });
    }
}
