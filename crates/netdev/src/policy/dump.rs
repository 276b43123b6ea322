//! Dumps of the kernel's tables over netlink protocols that the routing crates do not know.

use std::io;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST};
use netlink_sys::{Socket, SocketAddr};

use crate::socket::split;

const HEADER: usize = 16;
/// What one dump may take before the policy counts as unreadable.
const MAX_BYTES: usize = 64 << 20;

/// A socket of one netlink protocol.
pub(crate) struct Client {
    socket: Socket,
    sequence: u32,
}

/// Whether the kernel lacks what was asked for.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::EOPNOTSUPP | libc::EPROTONOSUPPORT)
    )
}

impl Client {
    pub(crate) fn new(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// The body of the answer to one request.
    pub(crate) fn get(&mut self, kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
        self.send(kind, 0, body)?;
        let (mut objects, _) = self.receive()?;
        let first = objects.drain(..).next();
        first.ok_or_else(|| io::Error::other("the kernel does not answer"))
    }

    /// The body of every object of a kind. A table that changes meanwhile is [`io::ErrorKind::Interrupted`].
    pub(crate) fn dump(&mut self, kind: u16, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        self.send(kind, NLM_F_DUMP, body)?;
        let mut objects = Vec::new();
        let mut bytes = 0;
        loop {
            let (more, is_done) = self.receive()?;
            bytes += more.iter().map(Vec::len).sum::<usize>();
            if bytes > MAX_BYTES {
                let limit = MAX_BYTES >> 20;
                return Err(io::Error::other(format!("it is larger than {limit} MiB")));
            }
            objects.extend(more);
            if is_done {
                return Ok(objects);
            }
        }
    }

    /// The bodies in one datagram, and whether it ends a dump.
    fn receive(&mut self) -> io::Result<(Vec<Vec<u8>>, bool)> {
        const DONE: u16 = 3;
        const ERROR: u16 = 2;
        let (datagram, _) = self.socket.recv_from_full()?;
        let mut objects = Vec::new();
        for message in split(&datagram) {
            let Some((header, body)) = message.split_at_checked(HEADER) else {
                return Err(io::Error::other("a message is cut off"));
            };
            let field = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
            if header[8..12] != self.sequence.to_ne_bytes() {
                continue;
            }
            if field(6) & NLM_F_DUMP_INTR != 0 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            match field(4) {
                DONE => return Ok((objects, true)),
                ERROR => {
                    let code = body
                        .first_chunk()
                        .map_or(0, |code| i32::from_ne_bytes(*code));
                    return Err(io::Error::from_raw_os_error(-code));
                }
                _ => objects.push(body.to_vec()),
            }
        }
        Ok((objects, false))
    }

    fn send(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let length = u32::try_from(HEADER + body.len()).map_err(io::Error::other)?;
        let mut request = Vec::with_capacity(HEADER + body.len());
        request.extend(length.to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        request.extend(self.sequence.to_ne_bytes());
        request.extend([0; 4]);
        request.extend(body);
        self.socket.send(&request, 0).map(drop)
    }
}
