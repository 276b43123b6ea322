//! The open connections: strangers until they authenticate, then clients. A stranger costs no more than a thread, keeps
//! no client out, and is shut down when too many others come: first those of the address that has most.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};
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
    from: IpAddr,
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
    /// Adds a stranger. If there are too many, the oldest of the network with most of them is shut down.
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
            all.shut_down_stranger();
        }
        let from = network(stream.peer_addr()?.ip());
        let number = all.next;
        all.next += 1;
        let connection = Connection {
            stream,
            from,
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

    fn shut_down_stranger(&mut self) {
        let is_stranger = |it: &&Connection| it.state == State::Stranger;
        let mut crowds: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for stranger in self.connections.values().filter(is_stranger) {
            *crowds.entry(stranger.from).or_default() += 1;
        }
        let crowd = crowds.into_iter().max_by_key(|(_, count)| *count);
        let Some((from, _)) = crowd else { return };
        let mut all = self.connections.values_mut();
        let oldest = all.find(|it| it.state == State::Stranger && it.from == from);
        if let Some(oldest) = oldest {
            oldest.state = State::Closing;
            shut_down(&oldest.stream);
        }
    }
}

/// What one host may have many addresses of: of IPv6 the network of 64 bits, of IPv4 the address.
fn network(of: IpAddr) -> IpAddr {
    match of.to_canonical() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io::Read as _;
    use std::net::{Ipv4Addr, SocketAddr, TcpListener};

    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn crowd_of_one_address_keeps_no_other_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let connect = |from: Ipv4Addr| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
            socket.connect(&at.into()).unwrap();
            (TcpStream::from(socket), listener.accept().unwrap().0)
        };
        let all = Connections::default();
        // The only stranger of its address waits longest.
        let (mut single, accepted) = connect(Ipv4Addr::new(127, 0, 0, 2));
        let _entry = all.enter(&accepted).unwrap();
        let mut crowd: Vec<_> = (0..=MAX_STRANGERS)
            .map(|_| connect(Ipv4Addr::LOCALHOST))
            .collect();
        let entries: Vec<_> = crowd.iter().map(|(_, it)| all.enter(it).unwrap()).collect();
        // Two more than there is room for: only the two oldest of the crowd are gone.
        for (stream, _) in &mut crowd[..2] {
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        }
        for stream in [&mut single, &mut crowd[2].0] {
            stream.set_nonblocking(true).unwrap();
            let error = stream.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
        drop(entries);
    }
}
