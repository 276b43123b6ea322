//! Dumps of the kernel's tables over netlink protocols that the routing crates do not know.

use std::{fmt, io};

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

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// What one datagram answers to the latest request.
struct Datagram {
    /// The body of each message.
    objects: Vec<Vec<u8>>,
    /// Whether the table was the same all the time.
    is_consistent: bool,
    /// Whether it ends a dump.
    is_last: bool,
}

/// The error in a message that ends an answer, negative; 0 where there is none.
fn code(body: &[u8]) -> i32 {
    body.first_chunk()
        .map_or(0, |code| i32::from_ne_bytes(*code))
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
        loop {
            // What comes before it answers an earlier request.
            if let Some(answer) = self.receive()?.objects.into_iter().next() {
                return Ok(answer);
            }
        }
    }

    /// The body of every object of a kind. A table that changes meanwhile is [`io::ErrorKind::Interrupted`].
    pub(crate) fn dump(&mut self, kind: u16, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let (mut objects, mut bytes) = (Vec::new(), 0);
        self.for_each(kind, body, |object| {
            bytes += object.len();
            if bytes <= MAX_BYTES {
                objects.push(object);
            }
        })?;
        if bytes > MAX_BYTES {
            let limit = MAX_BYTES >> 20;
            return Err(io::Error::other(format!("it is larger than {limit} MiB")));
        }
        Ok(objects)
    }

    /// Calls `each` with the body of every object of a kind. Where the table changes meanwhile, the end is
    /// [`io::ErrorKind::Interrupted`].
    pub(crate) fn for_each(
        &mut self,
        kind: u16,
        body: &[u8],
        each: impl FnMut(Vec<u8>),
    ) -> io::Result<()> {
        let mut each = each;
        self.send(kind, NLM_F_DUMP, body)?;
        let mut consistent = true;
        loop {
            // Read to its end in any case: the kernel refuses a dump while another is under way.
            let datagram = self.receive()?;
            consistent &= datagram.is_consistent;
            datagram.objects.into_iter().for_each(&mut each);
            match datagram.is_last {
                false => {}
                true if !consistent => return Err(io::ErrorKind::Interrupted.into()),
                true => return Ok(()),
            }
        }
    }

    fn receive(&mut self) -> io::Result<Datagram> {
        const DONE: u16 = 3;
        const ERROR: u16 = 2;
        let (datagram, _) = self.socket.recv_from_full()?;
        let mut read = Datagram {
            objects: Vec::new(),
            is_consistent: true,
            is_last: false,
        };
        for message in split(&datagram) {
            let Some((header, body)) = message.split_at_checked(HEADER) else {
                return Err(io::Error::other("a message is cut off"));
            };
            let field = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
            if header[8..12] != self.sequence.to_ne_bytes() {
                continue;
            }
            read.is_consistent &= field(6) & NLM_F_DUMP_INTR == 0;
            match field(4) {
                // The end of a dump that failed half way has the error.
                DONE if code(body) >= 0 => read.is_last = true,
                DONE | ERROR => return Err(io::Error::from_raw_os_error(-code(body))),
                _ => read.objects.push(body.to_vec()),
            }
        }
        Ok(read)
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
