//! Publishers and receivers that run until they are told to stop.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use replicate::log::{Durability, Error as LogError, Options as LogOptions, Reader, Writer};
use replicate::record::{Entry, Record};
use replicate::ship::nats::{Error, Options, Published, Publisher, Received, Receiver, Settings};
use replicate::ship::{Key, Sink};

use test_support::nats_server::wait_until;

pub(crate) const STEP: Duration = Duration::from_millis(50);

pub(crate) fn options(url: &str, key: Option<Key>) -> Options {
    let mut options = Options::new(url).unwrap();
    options.key = key;
    options
}

pub(crate) fn single() -> Settings {
    Settings {
        replicas: 1,
        ..Settings::default()
    }
}

/// Appends to a log, which may be new.
pub(crate) fn write(folder: &Path, entries: impl IntoIterator<Item = Entry>) {
    let options = LogOptions {
        durability: Durability::OnRequest,
        ..LogOptions::default()
    };
    let mut writer = open(folder, options);
    for (at, entry) in entries.into_iter().enumerate() {
        writer.append(1000 + at as u64, entry).unwrap();
    }
    writer.sync().unwrap();
}

/// Opens a log. A program that another test starts at this moment also holds the lock until it has
/// called `exec`.
fn open(folder: &Path, options: LogOptions) -> Writer {
    let mut opened = None;
    wait_until("the log is free", || {
        opened = match Writer::open(folder, options) {
            Err(LogError::Busy(_)) => None,
            opened => Some(opened.unwrap()),
        };
        opened.is_some()
    });
    opened.unwrap()
}

pub(crate) fn records(folder: &Path) -> Vec<Record> {
    let mut reader = Reader::open(folder).unwrap();
    let mut all = Vec::new();
    while let Some(located) = reader.read().unwrap() {
        all.push(located.record);
    }
    all
}

pub(crate) fn last(folder: &Path) -> u64 {
    records(folder).last().map_or(0, |record| record.number)
}

pub(crate) fn assert_equal(copy: &Path, log: &Path) {
    let (copy, log) = (records(copy), records(log));
    assert_eq!(copy.len(), log.len());
    for (copy, log) in copy.iter().zip(&log) {
        assert_eq!(copy, log);
    }
}

pub(crate) fn publisher(log: &Path, url: &str, settings: Settings) -> Publisher {
    Publisher::new(log, options(url, None), settings).unwrap()
}

pub(crate) fn receiver(copy: &Path, url: &str) -> Receiver {
    Receiver::new(Sink::open(copy).unwrap(), options(url, None))
}

/// Publishes all that the log has now.
pub(crate) fn publish(publisher: &mut Publisher, until: u64) -> Result<Published, Error> {
    let mut last = Published::default();
    let mut failed = None;
    wait_until("all is published", || match publisher.step(STEP) {
        Ok(progress) => {
            last = progress;
            last.number >= until
        }
        Err(error) => {
            failed = Some(error);
            true
        }
    });
    failed.map_or(Ok(last), Err)
}

/// Receives up to this record.
pub(crate) fn receive(receiver: &mut Receiver, until: u64) -> Result<Received, Error> {
    let mut last = Received::default();
    let mut failed = None;
    wait_until("all is received", || match receiver.step(STEP) {
        Ok(progress) => {
            last = progress;
            last.number >= until
        }
        Err(error) => {
            failed = Some(error);
            true
        }
    });
    failed.map_or(Ok(last), Err)
}

/// A publisher at work in a thread of its own.
pub(crate) struct Working<'scope> {
    handle: ScopedJoinHandle<'scope, Published>,
}

/// Tells threads to stop, also when the test fails.
#[derive(Default)]
pub(crate) struct Stop(AtomicBool);

impl Stop {
    pub(crate) fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

pub(crate) struct OnDrop<'a>(pub(crate) &'a Stop);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl<'scope> Working<'scope> {
    pub(crate) fn publishing<'env>(
        scope: &'scope thread::Scope<'scope, 'env>,
        mut publisher: Publisher,
        seen: &'env Mutex<Published>,
        stop: &'env Stop,
    ) -> Self {
        let handle = scope.spawn(move || {
            while !stop.requested() {
                *seen.lock().unwrap() = publisher.step(STEP).unwrap();
            }
            seen.lock().unwrap().clone()
        });
        Self { handle }
    }

    pub(crate) fn done(self) -> Published {
        self.handle.join().unwrap()
    }
}
