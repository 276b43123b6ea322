//! Bytes to and from one server, in lines and in lengths.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::tls::Tls;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);
/// A server that sends longer lines or messages is none of ours.
const LONGEST: usize = 32 << 20;
const LONGEST_LINE: usize = 1 << 20;
const STEP: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Link {
    stream: Stream,
    /// Whether there may be more to read than the socket knows of.
    more: bool,
    unread: Vec<u8>,
    /// As many of them have been looked at.
    used: usize,
    pub(crate) unsent: Vec<u8>,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Link {
    pub(crate) fn dial(server: &str) -> io::Result<Self> {
        let mut last = io::Error::other("has no address");
        for address in server.to_socket_addrs()? {
            let stream = TcpStream::connect_timeout(&address, TIMEOUT);
            match stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream)) {
                // A local port that nobody serves may be the one that we were given: TCP then connects
                // us to ourselves.
                Ok(stream) if stream.local_addr()? == stream.peer_addr()? => {
                    last = io::ErrorKind::ConnectionRefused.into();
                }
                Ok(stream) => {
                    stream.set_write_timeout(Some(TIMEOUT))?;
                    stream.set_read_timeout(Some(TIMEOUT))?;
                    return Ok(Self {
                        stream: Stream::Plain(stream),
                        more: false,
                        unread: Vec::new(),
                        used: 0,
                        unsent: Vec::new(),
                    });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Goes on encrypted, with the server of this name.
    pub(crate) fn secure(self, server: &str, tls: &Tls) -> io::Result<Self> {
        let Stream::Plain(mut stream) = self.stream else {
            return Ok(self);
        };
        if self.used < self.unread.len() {
            return Err(io::Error::other("speaks before it is asked to"));
        }
        let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
        let host = host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let mut connection =
            ClientConnection::new(Arc::clone(&tls.0), name).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream).map_err(in_the_clear)?;
        }
        let stream = Stream::Tls(Box::new(StreamOwned::new(connection, stream)));
        Ok(Self {
            stream,
            more: false,
            ..self
        })
    }

    pub(crate) fn send(&mut self) -> io::Result<()> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        let sent = match &mut self.stream {
            Stream::Plain(stream) => stream.write_all(&self.unsent),
            Stream::Tls(stream) => {
                let sent = stream.write_all(&self.unsent);
                sent.and_then(|()| stream.flush())
            }
        };
        self.unsent.clear();
        sent
    }

    /// The next line without its end; none if it does not come in time.
    pub(crate) fn line(&mut self, wait: Duration) -> io::Result<Option<String>> {
        let until = Instant::now() + wait;
        let mut seen = 0;
        loop {
            let unread = &self.unread[self.used..];
            let from = seen.min(unread.len());
            if let Some(end) = unread[from..].windows(2).position(|two| two == b"\r\n") {
                let end = from + end;
                let line = String::from_utf8(unread[..end].to_vec()).map_err(io::Error::other)?;
                self.used += end + 2;
                return Ok(Some(line));
            }
            if unread.len() > LONGEST_LINE {
                return Err(io::Error::other("is no NATS server"));
            }
            seen = unread.len().saturating_sub(1);
            if !self.fill(until)? {
                return Ok(None);
            }
        }
    }

    /// As many bytes, and the end of a line behind them.
    pub(crate) fn body(&mut self, length: usize) -> io::Result<Vec<u8>> {
        if length > LONGEST {
            return Err(io::Error::other("sends a message longer than any of ours"));
        }
        let until = Instant::now() + 2 * TIMEOUT;
        while self.unread.len() - self.used < length + 2 {
            if !self.fill(until)? {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        let body = self.unread[self.used..self.used + length].to_vec();
        self.used += length + 2;
        Ok(body)
    }

    /// Takes what has arrived; whether something did in time.
    fn fill(&mut self, until: Instant) -> io::Result<bool> {
        if self.used > 0 {
            self.unread.drain(..self.used);
            self.used = 0;
        }
        if !self.more && !self.readable(until)? {
            return Ok(false);
        }
        let had = self.unread.len();
        self.unread.resize(had + STEP, 0);
        let read = loop {
            let room = &mut self.unread[had..];
            let read = match &mut self.stream {
                Stream::Plain(stream) => stream.read(room),
                Stream::Tls(stream) => stream.read(room),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        let full = read.as_ref().is_ok_and(|read| *read == STEP);
        self.more = full && matches!(self.stream, Stream::Tls(_));
        self.unread
            .truncate(had + read.as_ref().map_or(0, |read| *read));
        match read? {
            0 => Err(io::ErrorKind::ConnectionReset.into()),
            _ => Ok(true),
        }
    }

    fn readable(&self, until: Instant) -> io::Result<bool> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            // Rounded up: a wait for less than a millisecond would be none, many times over.
            let left = u16::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u16::MAX);
            let mut asked = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
            match poll(&mut asked, PollTimeout::from(left)) {
                Ok(0) if Instant::now() >= until => return Ok(false),
                Ok(0) | Err(nix::errno::Errno::EINTR) => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A server that has no room for another connection says so before it is encrypted.
fn in_the_clear(error: io::Error) -> io::Error {
    let cause = error
        .get_ref()
        .and_then(|cause| cause.downcast_ref::<rustls::Error>());
    if matches!(cause, Some(rustls::Error::InvalidMessage(_))) {
        let what = "breaks off before it is encrypted: it may have too many connections";
        return io::Error::new(io::ErrorKind::ConnectionAborted, what);
    }
    error
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Plain(stream) => stream.as_fd(),
            Stream::Tls(stream) => stream.sock.as_fd(),
        }
    }
}
