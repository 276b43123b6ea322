//! Replicas over TCP each get the exact log, whatever happens on the way, and no other client gets
//! it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use replicate::log;
use replicate::ship::tcp::{Error, Limits, Message, Peer, Reason, VERSION};

use crate::common::{data, epoch};
use crate::shipping::{
    self, Bed, append, fails, fold, follow, hear, put, read, some, until, write, writer,
};

/// All of them have the log, record by record, while it is written.
fn replicas(count: usize) {
    let bed = Bed::new();
    let server = bed.server(Limits::default());
    let to = server.address();
    let all = some(200);
    let last = all.len() as u64;
    thread::scope(|scope| {
        for number in 0..count {
            let mut client = bed.client(to, number, false);
            scope.spawn(move || {
                let progress = follow(&mut client, last);
                assert_eq!((progress.records, progress.repeated), (last, 0));
                assert_eq!(progress.connects, 1, "{:?}", progress.trouble);
            });
        }
        let mut writer = writer(&bed.log());
        for some in all.chunks(50) {
            append(&mut writer, some);
        }
    });
    let source = read(&bed.log());
    assert_eq!(source.len(), all.len());
    for number in 0..count {
        assert!(read(&bed.copy(number)) == source);
    }
    // Replicas read the log themselves: they can have all of it before the server has looked at its end.
    let status = until(&server, |status| {
        status.replicas.is_empty() && status.tip.number == last
    });
    assert_eq!(status.counts.welcomed, count as u64);
    assert_eq!(status.counts.ended, count as u64);
}

#[test]
fn one_replica_has_the_log() {
    replicas(1);
}

#[test]
fn five_replicas_have_the_log() {
    replicas(5);
}

#[test]
fn twenty_replicas_have_the_log() {
    replicas(20);
}

#[test]
fn a_replica_that_comes_late_or_again_goes_on() {
    let bed = Bed::new();
    let all = some(40);
    write(&bed.log(), &all[..80]);
    let server = bed.server(Limits::default());
    let mut client = bed.client(server.address(), 1, false);
    follow(&mut client, 80);
    let status = until(&server, |status| {
        status.replicas.iter().any(|it| it.number == 80)
    });
    let replica = &status.replicas[0];
    assert_eq!((replica.name.as_str(), replica.lag_records), ("edge-1", 0));
    assert_eq!((replica.epoch, replica.lag_ms), (28, 0));
    drop(client);
    write(&bed.log(), &all[80..]);
    let mut client = bed.client(server.address(), 1, false);
    let progress = follow(&mut client, 161);
    assert_eq!(progress.records, 81, "only what it lacked was sent");
    drop((server, client));
    let server = bed.server(Limits::default());
    let mut client = bed.client(server.address(), 1, false);
    write(&bed.log(), &[epoch(1000)]);
    follow(&mut client, 162);
    assert!(read(&bed.copy(1)) == read(&bed.log()));
}

#[test]
fn a_compacted_log_arrives_and_a_copy_behind_it_is_refused_or_replaced() {
    let bed = Bed::new();
    write(&bed.log(), &some(20));
    let server = bed.server(Limits::default());
    let mut behind = bed.client(server.address(), 1, false);
    follow(&mut behind, 81);
    drop(behind);
    for _ in 0..50 {
        write(&bed.log(), &[data(10, 0, b"again and again")]);
    }
    write(&bed.log(), &[epoch(100)]);
    write(&bed.log(), &[epoch(101)]);
    fold(&bed.log(), 100);
    let source = read(&bed.log());
    let last = source.last().unwrap().number;
    assert!(source[0].number > 1);
    let mut late = bed.client(server.address(), 2, false);
    follow(&mut late, last);
    assert!(read(&bed.copy(2)) == source);
    let mut behind = bed.client(server.address(), 1, false);
    let error = fails(&mut behind);
    let compacted = matches!(
        &error,
        Error::Refused {
            reason: Reason::Compacted,
            ..
        }
    );
    assert!(compacted && !error.heals(), "{error}");
    assert!(error.to_string().contains("--fresh"), "{error}");
    drop(behind);
    assert_eq!(read(&bed.copy(1)).len(), 81, "refused, it is what it was");
    let mut fresh = bed.client(server.address(), 1, true);
    assert_eq!(follow(&mut fresh, last).replaced, 1);
    assert!(read(&bed.copy(1)) == source);
    // Both continue with the records after the base.
    write(&bed.log(), &[data(11, 0, b"later"), epoch(102)]);
    follow(&mut fresh, last + 2);
    follow(&mut late, last + 2);
    assert!(read(&bed.copy(1)) == read(&bed.log()));
    assert!(read(&bed.copy(2)) == read(&bed.log()));
}

#[test]
fn another_log_or_another_history_is_refused() {
    let [bed, other] = [Bed::new(), Bed::new()];
    write(&bed.log(), &some(5));
    write(&other.log(), &some(9));
    let server = bed.server(Limits::default());
    let mut client = bed.client(server.address(), 1, false);
    follow(&mut client, 21);
    drop(client);
    // The log loses its end, and continues with other records.
    let segment = bed.log().join(format!("{:020}.log", 1));
    let whole = fs::read(&segment).unwrap();
    let mut cut = whole.clone();
    cut.truncate(whole.len() - 60);
    fs::write(&segment, &cut).unwrap();
    drop(server);
    let server = bed.server(Limits::default());
    let refused = |number, reason: Reason| {
        let mut client = bed.client(server.address(), number, false);
        let error = fails(&mut client);
        let found = matches!(&error, Error::Refused { reason: found, .. } if *found == reason);
        assert!(found, "{error}");
        assert_eq!(error.to_string().lines().count(), 1);
    };
    refused(1, Reason::Diverged);
    let mut again = writer(&bed.log());
    while again.number() < 30 {
        again.append(77, data(10, 0, b"otherwise")).unwrap();
    }
    again.flush().unwrap();
    drop(again);
    refused(1, Reason::Diverged);
    let mut client = bed.client(server.address(), 1, true);
    follow(&mut client, 30);
    assert!(read(&bed.copy(1)) == read(&bed.log()));
    fs::create_dir(bed.copy(2)).unwrap();
    for entry in fs::read_dir(other.log()).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, bed.copy(2).join(path.file_name().unwrap())).unwrap();
    }
    refused(2, Reason::OtherLog);
    assert!(read(&bed.copy(2)) == read(&other.log()));
    let mut client = bed.client(server.address(), 2, true);
    while follow(&mut client, 0).replaced == 0 {}
    follow(&mut client, 30);
    assert!(read(&bed.copy(2)) == read(&bed.log()));
}

#[test]
fn a_replica_that_does_not_read_holds_up_nobody() {
    let bed = Bed::new();
    let limits = Limits {
        silence: Duration::from_millis(1500),
        beat: Duration::from_millis(100),
        ..Limits::default()
    };
    let server = bed.server(limits);
    let mut stuck = bed.raw(server.address());
    assert!(matches!(hear(&mut stuck).unwrap(), Message::Welcome { .. }));
    let hello = Message::Hello {
        version: VERSION,
        held: None,
    };
    stuck.write_all(&put(&hello)).unwrap();
    let mut all = some(1);
    // More than sockets take.
    all.extend((0..40).map(|_| data(10, 0, &vec![5; 1 << 20])));
    all.push(epoch(50));
    write(&bed.log(), &all);
    let mut client = bed.client(server.address(), 1, false);
    let last = all.len() as u64;
    follow(&mut client, last);
    assert!(read(&bed.copy(1)) == read(&bed.log()));
    let status = until(&server, |status| status.counts.stalled >= 1);
    assert!(status.replicas.iter().all(|it| it.name != "edge-2"));
    drop(stuck);
}

/// Passes bytes on in pieces, with pauses, and cuts now and then.
fn bad_line(to: std::net::SocketAddr, seed: u64, stop: &AtomicBool, listener: &TcpListener) {
    let mut random = fastrand::Rng::with_seed(seed);
    thread::scope(|scope| {
        while !stop.load(Ordering::Relaxed) {
            let Ok((client, _)) = listener.accept() else {
                thread::sleep(Duration::from_millis(5));
                continue;
            };
            client.set_nonblocking(false).unwrap();
            let Ok(server) = TcpStream::connect(to) else {
                continue;
            };
            for (from, to) in [(&client, &server), (&server, &client)] {
                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                let mut random = random.fork();
                scope.spawn(move || pass(from, to, &mut random));
            }
        }
    });
}

fn pass(mut from: TcpStream, mut to: TcpStream, random: &mut fastrand::Rng) {
    // Longer than a handshake, mostly.
    let mut left = random.usize(1_000..200_000);
    let mut room = vec![0; 5_000];
    while left > 0 {
        let most = random.usize(1..room.len());
        let Ok(count @ 1..) = from.read(&mut room[..most]) else {
            break;
        };
        if random.u8(..10) == 0 {
            thread::sleep(Duration::from_micros(random.u64(..3_000)));
        }
        let passed = count.min(left);
        left -= passed;
        if to.write_all(&room[..passed]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(std::net::Shutdown::Both);
    let _ = to.shutdown(std::net::Shutdown::Both);
}

#[test]
fn a_line_that_cuts_and_splits_at_random_loses_nothing() {
    for seed in 0..4 {
        let bed = Bed::new();
        let server = bed.server(Limits::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let at = listener.local_addr().unwrap();
        let stop = AtomicBool::new(false);
        let all = some(300);
        thread::scope(|scope| {
            scope.spawn(|| bad_line(server.address(), seed, &stop, &listener));
            let mut client = bed.client(at, 1, false);
            let mut writer = writer(&bed.log());
            for (index, some) in all.chunks(200).enumerate() {
                append(&mut writer, some);
                follow(&mut client, (index as u64 + 1) * 150);
            }
            let progress = follow(&mut client, all.len() as u64);
            stop.store(true, Ordering::Relaxed);
            assert_eq!(progress.records, all.len() as u64);
            assert!(progress.connects > 1, "the line was cut: {progress:?}");
        });
        assert!(read(&bed.copy(1)) == read(&bed.log()));
    }
}

#[test]
fn a_full_disk_is_said_once_and_the_copy_goes_on_when_there_is_room() {
    if !sys::require::root() {
        return;
    }
    let bed = Bed::new();
    let mut all = some(1);
    all.extend((0..30).map(|_| data(10, 0, &vec![5; 100_000])));
    all.push(epoch(50));
    write(&bed.log(), &all);
    let server = bed.server(Limits::default());
    fs::create_dir(bed.copy(1)).unwrap();
    let disk = Disk::new(&bed.copy(1));
    let copy = bed.copy(1).join("log");
    let peer = Peer::parse(&server.address().to_string()).unwrap();
    let tls = bed.files("edge-1").client().unwrap();
    let mut client =
        replicate::ship::tcp::Client::open(&copy, peer, tls, false, shipping::waits()).unwrap();
    let mut trouble = None;
    while trouble.is_none() {
        trouble.clone_from(&client.poll(Duration::from_millis(20)).unwrap().trouble);
    }
    let trouble = trouble.unwrap();
    assert!(trouble.contains("No space left"), "{trouble}");
    disk.grow();
    follow(&mut client, all.len() as u64);
    assert!(read(&copy) == read(&bed.log()));
    drop(client);
    let log::Error::Busy(_) = ({
        let _kept = writer(&copy);
        log::Writer::open(&copy, log::Options::default()).unwrap_err()
    }) else {
        panic!("a copy has one writer");
    };
}

/// A small file system in memory, unmounted at the end.
struct Disk(std::path::PathBuf);

impl Disk {
    fn new(at: &std::path::Path) -> Self {
        Self::mount(&["-t", "tmpfs", "-o", "size=1m", "tmpfs"], at);
        Self(at.to_owned())
    }

    fn grow(&self) {
        Self::mount(&["-o", "remount,size=64m"], &self.0);
    }

    fn mount(arguments: &[&str], at: &std::path::Path) {
        let mut mount = std::process::Command::new("mount");
        let done = mount.args(arguments).arg(at).status().unwrap();
        assert!(done.success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let unmount = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status();
        assert!(unmount.is_ok_and(|status| status.success()) || thread::panicking());
    }
}
