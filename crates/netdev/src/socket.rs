//! Requests to the kernel's routing netlink, many in one message where they belong together.
//!
//! The socket is plain and synchronous: a request costs one system call to send and one to read
//! its answer. `Netlink` decides which requests there are.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
    NlasIterator,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::Error;

/// Longer than any answer: the kernel fills at most 32 KiB at a time.
const ANSWER_BYTES: usize = 64 << 10;
/// `NLMSGERR_ATTR_MSG`
const EXPLANATION: u16 = 1;
/// Bytes of the refused request that come before the explanation.
const HEADER_BYTES: usize = 16;

/// A socket to the routing tables of the namespace in which the creating thread was.
///
/// It keeps talking to that namespace whichever thread uses it.
pub(crate) struct RouteSocket {
    carrier: Box<dyn Carrier>,
    sequence: u32,
    answer: Vec<u8>,
}

/// Carries requests to the kernel whose tables they concern, and its answers back: a socket, or a
/// channel to the kernel of another machine.
pub trait Carrier: Send + Sync {
    /// Takes one datagram there.
    fn send(&mut self, request: &[u8]) -> io::Result<()>;

    /// Waits for a datagram from there, and returns its length.
    fn receive(&mut self, answer: &mut [u8]) -> io::Result<usize>;
}

impl Carrier for Socket {
    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        Self::send(self, request, 0).map(drop)
    }

    fn receive(&mut self, mut answer: &mut [u8]) -> io::Result<usize> {
        self.recv(&mut answer, 0)
    }
}

/// A message that changes something, and the flags it is sent with.
pub(crate) struct Change {
    pub(crate) message: RouteNetlinkMessage,
    pub(crate) flags: u16,
    /// For the error, should it be refused: `adding address 10.0.0.1`.
    pub(crate) action: String,
}

impl RouteSocket {
    /// Opens a socket in the calling thread's namespace.
    pub(crate) fn open() -> Result<Self, Error> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            socket.set_cap_ack(true)?;
            socket.set_ext_ack(true)?;
            // Filters in dump requests are honoured, and not by chance.
            socket.set_netlink_get_strict_chk(true)?;
            Ok(socket)
        };
        let socket = open().map_err(Error::Socket)?;
        Ok(Self::over(Box::new(socket)))
    }

    /// Talks to the kernel at the other end of `carrier`.
    pub(crate) fn over(carrier: Box<dyn Carrier>) -> Self {
        Self {
            carrier,
            sequence: 0,
            answer: vec![0; ANSWER_BYTES],
        }
    }

    /// Carries out every change, in order, and returns the first refusal after all were tried.
    pub(crate) fn apply(&mut self, changes: Vec<Change>) -> Result<(), Error> {
        let mut actions = Vec::with_capacity(changes.len());
        let mut bytes = Vec::new();
        let first = self.sequence.wrapping_add(1);
        for change in changes {
            self.append(&mut bytes, change.message, change.flags | NLM_F_ACK);
            actions.push(change.action);
        }
        if actions.is_empty() {
            return Ok(());
        }
        self.send(&bytes, &actions[0])?;
        let mut outstanding = actions.len();
        let mut refused = None;
        while outstanding > 0 {
            for message in self.receive(&actions[0])? {
                let number = message.header.sequence_number.wrapping_sub(first);
                let Some(action) = actions.get(number as usize) else {
                    continue;
                };
                if let NetlinkPayload::Error(answer) = message.payload {
                    outstanding -= 1;
                    if let (Some(code), None) = (answer.code, &refused) {
                        refused = Some(refusal(action, code.get(), &answer.header));
                    }
                }
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// One object; the kernel's refusal is the error.
    pub(crate) fn get(
        &mut self,
        message: RouteNetlinkMessage,
        action: &str,
    ) -> Result<RouteNetlinkMessage, Error> {
        let mut bytes = Vec::new();
        self.append(&mut bytes, message, 0);
        self.send(&bytes, action)?;
        loop {
            for message in self.receive(action)? {
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                match message.payload {
                    NetlinkPayload::InnerMessage(inner) => return Ok(inner),
                    NetlinkPayload::Error(answer) => {
                        let code = answer.code.map_or(0, std::num::NonZero::get);
                        return Err(refusal(action, code, &answer.header));
                    }
                    _ => {}
                }
            }
        }
    }

    /// Every object of a kind, as one consistent snapshot.
    pub(crate) fn dump(
        &mut self,
        message: &RouteNetlinkMessage,
        action: &str,
    ) -> Result<Vec<RouteNetlinkMessage>, Error> {
        loop {
            let mut bytes = Vec::new();
            self.append(&mut bytes, message.clone(), NLM_F_DUMP);
            self.send(&bytes, action)?;
            if let Some(objects) = self.read_dump(action)? {
                return Ok(objects);
            }
        }
    }

    /// `None` when the tables changed while they were being read.
    fn read_dump(&mut self, action: &str) -> Result<Option<Vec<RouteNetlinkMessage>>, Error> {
        let mut objects = Vec::new();
        let mut consistent = true;
        loop {
            for message in self.receive(action)? {
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                consistent &= message.header.flags & NLM_F_DUMP_INTR == 0;
                match message.payload {
                    NetlinkPayload::InnerMessage(inner) => objects.push(inner),
                    NetlinkPayload::Done(_) => return Ok(consistent.then_some(objects)),
                    NetlinkPayload::Error(answer) => {
                        let code = answer.code.map_or(0, std::num::NonZero::get);
                        return Err(refusal(action, code, &answer.header));
                    }
                    _ => {}
                }
            }
        }
    }

    fn append(&mut self, bytes: &mut Vec<u8>, message: RouteNetlinkMessage, flags: u16) {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = NetlinkMessage::from(message);
        message.header.flags = NLM_F_REQUEST | flags;
        message.header.sequence_number = self.sequence;
        message.finalize();
        let start = bytes.len();
        // The next message starts on a boundary of four.
        bytes.resize(start + message.buffer_len().next_multiple_of(4), 0);
        message.serialize(&mut bytes[start..]);
    }

    fn send(&mut self, bytes: &[u8], action: &str) -> Result<(), Error> {
        self.carrier
            .send(bytes)
            .map_err(|source| Error::refused(action, source))
    }

    fn receive(&mut self, action: &str) -> Result<Vec<NetlinkMessage<RouteNetlinkMessage>>, Error> {
        let read = loop {
            match self.carrier.receive(&mut self.answer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let length = read.map_err(|source| Error::refused(action, source))?;
        split(&self.answer[..length])
            .map(|bytes| {
                NetlinkMessage::deserialize(bytes).map_err(|error| Error::Answer {
                    action: action.to_owned(),
                    detail: error.to_string(),
                })
            })
            .collect()
    }
}

/// The netlink messages in one datagram.
pub(crate) fn split(datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(rest.get(..4)?.try_into().ok()?) as usize;
        let message = rest.get(..length).filter(|message| !message.is_empty())?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// `code` is a negative errno; `header` starts with the refused request's header.
fn refusal(action: &str, code: i32, header: &[u8]) -> Error {
    let attributes = header.get(HEADER_BYTES..).unwrap_or_default();
    let said = NlasIterator::new(attributes)
        .filter_map(Result::ok)
        .find(|attribute| attribute.kind() == EXPLANATION)
        .map(|attribute| {
            String::from_utf8_lossy(attribute.value())
                .trim_end_matches('\0')
                .to_owned()
        });
    Error::Refused {
        action: action.to_owned(),
        cause: io::Error::from_raw_os_error(-code),
        said,
    }
}
