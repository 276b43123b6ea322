//! A connection to one server: lines and bodies in, bytes out.

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
/// Longer messages or lines do not come from a NATS server with our messages.
const MAX_MESSAGE: usize = 96 << 20;
const MAX_LINE: usize = 1 << 20;
const READ_SIZE: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Link {
    stream: Stream,
    /// Whether TLS may hold bytes that the socket does not report as readable.
    has_buffered_tls: bool,
    input: Vec<u8>,
    /// How many bytes of the input were returned already.
    consumed: usize,
    pub(crate) output: Vec<u8>,
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
                // The kernel may choose the port that it connects to as our own local port: TCP then connects the
                // socket to itself.
                Ok(stream) if stream.local_addr()? == stream.peer_addr()? => {
                    last = io::ErrorKind::ConnectionRefused.into();
                }
                Ok(stream) => {
                    stream.set_write_timeout(Some(TIMEOUT))?;
                    stream.set_read_timeout(Some(TIMEOUT))?;
                    return Ok(Self {
                        stream: Stream::Plain(stream),
                        has_buffered_tls: false,
                        input: Vec::new(),
                        consumed: 0,
                        output: Vec::new(),
                    });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Starts TLS with the server of this name.
    pub(crate) fn start_tls(self, server: &str, tls: &Tls) -> io::Result<Self> {
        let Stream::Plain(mut stream) = self.stream else {
            return Ok(self);
        };
        if self.consumed < self.input.len() {
            return Err(io::Error::other("speaks before it is asked to"));
        }
        let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
        let host = host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let mut connection =
            ClientConnection::new(Arc::clone(&tls.0), name).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection
                .complete_io(&mut stream)
                .map_err(explain_handshake)?;
        }
        let stream = Stream::Tls(Box::new(StreamOwned::new(connection, stream)));
        Ok(Self {
            stream,
            has_buffered_tls: false,
            ..self
        })
    }

    /// Sends the output.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        let sent = match &mut self.stream {
            Stream::Plain(stream) => stream.write_all(&self.output),
            Stream::Tls(stream) => {
                let sent = stream.write_all(&self.output);
                sent.and_then(|()| stream.flush())
            }
        };
        self.output.clear();
        sent
    }

    /// Reads a line, without its end; none if it does not arrive in time.
    pub(crate) fn read_line(&mut self, wait: Duration) -> io::Result<Option<String>> {
        let deadline = Instant::now() + wait;
        let mut searched = 0;
        loop {
            let input = &self.input[self.consumed..];
            let from = searched.min(input.len());
            if let Some(end) = input[from..].windows(2).position(|two| two == b"\r\n") {
                let end = from + end;
                let line = String::from_utf8_lossy(&input[..end]).into_owned();
                self.consumed += end + 2;
                return Ok(Some(line));
            }
            if input.len() > MAX_LINE {
                return Err(io::Error::other("not a NATS server: a line is too long"));
            }
            searched = input.len().saturating_sub(1);
            if !self.fill(deadline)? {
                return Ok(None);
            }
        }
    }

    /// Reads `length` bytes, and the line end that follows them.
    pub(crate) fn read_body(&mut self, length: usize) -> io::Result<Vec<u8>> {
        if length > MAX_MESSAGE {
            return Err(io::Error::other(
                "sends a message longer than any server takes",
            ));
        }
        let deadline = Instant::now() + 2 * TIMEOUT;
        while self.input.len() - self.consumed < length + 2 {
            if !self.fill(deadline)? {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        let body = self.input[self.consumed..self.consumed + length].to_vec();
        self.consumed += length + 2;
        Ok(body)
    }

    /// Reads what has arrived; false if nothing does before the deadline.
    fn fill(&mut self, deadline: Instant) -> io::Result<bool> {
        if self.consumed > 0 {
            self.input.drain(..self.consumed);
            self.consumed = 0;
        }
        if !self.has_buffered_tls && !self.is_readable(deadline)? {
            return Ok(false);
        }
        let length = self.input.len();
        self.input.resize(length + READ_SIZE, 0);
        let read = loop {
            let buffer = &mut self.input[length..];
            let read = match &mut self.stream {
                Stream::Plain(stream) => stream.read(buffer),
                Stream::Tls(stream) => stream.read(buffer),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        let is_full = read.as_ref().is_ok_and(|read| *read == READ_SIZE);
        self.has_buffered_tls = is_full && matches!(self.stream, Stream::Tls(_));
        self.input
            .truncate(length + read.as_ref().map_or(0, |read| *read));
        match read? {
            0 => Err(io::ErrorKind::ConnectionReset.into()),
            _ => Ok(true),
        }
    }

    fn is_readable(&self, deadline: Instant) -> io::Result<bool> {
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            // Rounded up: rounded down, the last millisecond would be a busy loop.
            let timeout = u16::try_from(rest.as_micros().div_ceil(1000)).unwrap_or(u16::MAX);
            let mut descriptors = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
            match poll(&mut descriptors, PollTimeout::from(timeout)) {
                Ok(0) if Instant::now() >= deadline => return Ok(false),
                Ok(0) | Err(nix::errno::Errno::EINTR) => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A server with too many connections sends its error in the clear, which TLS cannot read.
fn explain_handshake(error: io::Error) -> io::Error {
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
