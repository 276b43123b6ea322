//! The open connections: strangers until they authenticate, then clients. A stranger costs no more than a thread, keeps
//! no client out, and is shut down when too many others come.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Strangers at once. A client stays one for a round trip or two.
const MAX_STRANGERS: usize = 64;

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
    /// Shut down to end the threads that wait for it.
    stream: TcpStream,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Stranger,
    /// It was shut down, and its thread has not seen that yet.
    Closing,
    Client,
}

/// A connection, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    all: &'a Connections,
    number: u64,
}

impl Connections {
    /// Adds a stranger. If there are too many, the oldest is shut down.
    ///
    /// # Errors
    /// When the server is closing, or out of descriptors.
    pub(super) fn enter(&self, stream: &TcpStream) -> io::Result<Entry<'_>> {
        let stream = stream.try_clone()?;
        let mut all = self.all();
        if all.closed {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if all.count(State::Stranger) >= MAX_STRANGERS {
            all.shut_down_oldest_stranger();
        }
        let number = all.next;
        all.next += 1;
        let connection = Connection {
            stream,
            state: State::Stranger,
        };
        all.connections.insert(number, connection);
        Ok(Entry { all: self, number })
    }

    pub(super) fn clients(&self) -> usize {
        self.all().count(State::Client)
    }

    /// Shuts all down, and admits no other.
    pub(super) fn close(&self) {
        let mut all = self.all();
        all.closed = true;
        for connection in all.connections.values() {
            shut_down(&connection.stream);
        }
    }

    fn all(&self) -> MutexGuard<'_, All> {
        // Consistent between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl All {
    fn count(&self, state: State) -> usize {
        let all = self.connections.values();
        all.filter(|it| it.state == state).count()
    }

    fn shut_down_oldest_stranger(&mut self) {
        let mut all = self.connections.values_mut();
        if let Some(oldest) = all.find(|it| it.state == State::Stranger) {
            oldest.state = State::Closing;
            shut_down(&oldest.stream);
        }
    }
}

impl Entry<'_> {
    /// Makes it a client, unless there are `max` of them.
    pub(super) fn admit(&self, max: usize) -> bool {
        let mut all = self.all.all();
        let room = all.count(State::Client) < max;
        if room && let Some(own) = all.connections.get_mut(&self.number) {
            own.state = State::Client;
        }
        room
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.all.all().connections.remove(&self.number);
    }
}

fn shut_down(stream: &TcpStream) {
    // It may be closed already.
    let _ = stream.shutdown(Shutdown::Both);
}
