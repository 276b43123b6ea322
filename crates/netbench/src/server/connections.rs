//! Who is connected: strangers until they are admitted, then clients. A stranger costs a thread and nothing else,
//! keeps no client out, and has to go when too many others come.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// At once. Whoever knows what to say needs a round trip or two to be none.
const MOST_STRANGERS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    /// In the order in which they came.
    connections: BTreeMap<u64, Connection>,
    next: u64,
    closed: bool,
}

#[derive(Debug)]
struct Connection {
    /// To cut what waits for it.
    stream: TcpStream,
    standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Stranger,
    /// It was cut, and its thread has not seen that yet.
    Leaving,
    Client,
}

/// One that is connected, until it is dropped.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    all: &'a Connections,
    number: u64,
}

impl Connections {
    /// Lets one in. Where too many strangers are, the one that is longest has to go.
    ///
    /// # Errors
    /// When all have to go, or there is no descriptor for it.
    pub(super) fn enter(&self, stream: &TcpStream) -> io::Result<Entry<'_>> {
        let stream = stream.try_clone()?;
        let mut all = self.all();
        if all.closed {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if all.count(Standing::Stranger) >= MOST_STRANGERS {
            all.cut_longest_stranger();
        }
        let number = all.next;
        all.next += 1;
        let connection = Connection {
            stream,
            standing: Standing::Stranger,
        };
        all.connections.insert(number, connection);
        Ok(Entry { all: self, number })
    }

    pub(super) fn clients(&self) -> usize {
        self.all().count(Standing::Client)
    }

    /// Nobody waits for any of them any more, and no other comes in.
    pub(super) fn close(&self) {
        let mut all = self.all();
        all.closed = true;
        for connection in all.connections.values() {
            cut(&connection.stream);
        }
    }

    fn all(&self) -> MutexGuard<'_, All> {
        // Whole between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl All {
    fn count(&self, standing: Standing) -> usize {
        let all = self.connections.values();
        all.filter(|it| it.standing == standing).count()
    }

    fn cut_longest_stranger(&mut self) {
        let mut all = self.connections.values_mut();
        if let Some(longest) = all.find(|it| it.standing == Standing::Stranger) {
            longest.standing = Standing::Leaving;
            cut(&longest.stream);
        }
    }
}

impl Entry<'_> {
    /// Makes it a client, unless there are `most` of them.
    pub(super) fn admit(&self, most: usize) -> bool {
        let mut all = self.all.all();
        let room = all.count(Standing::Client) < most;
        if room && let Some(own) = all.connections.get_mut(&self.number) {
            own.standing = Standing::Client;
        }
        room
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.all.all().connections.remove(&self.number);
    }
}

fn cut(stream: &TcpStream) {
    // One that is closed already is what was wanted.
    let _ = stream.shutdown(Shutdown::Both);
}
