//! Frames: the length of a message as a 32-bit little-endian number, then the message in JSON.

use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The greatest length of a message in bytes. The longest is a model's description.
pub const MAX_MESSAGE: usize = 1 << 20;

/// Why a frame was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The other side has closed the socket between two frames.
    #[error("the connection is closed")]
    Closed,
    #[error("a frame ends early")]
    Truncated,
    #[error("a frame of {0} bytes is longer than {MAX_MESSAGE}")]
    TooLong(usize),
    #[error("a frame has no message of this protocol: {0}")]
    Message(serde_json::Error),
    #[error(transparent)]
    Io(io::Error),
}

/// Reads one message. Memory is allocated only after the length has been checked.
pub fn read<M: DeserializeOwned>(from: &mut impl Read) -> Result<M, Error> {
    let mut length = [0; 4];
    let first = loop {
        match from.read(&mut length) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => break read.map_err(of_io)?,
        }
    };
    if first == 0 {
        return Err(Error::Closed);
    }
    fill(from, &mut length[first..])?;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > MAX_MESSAGE {
        return Err(Error::TooLong(length));
    }
    let mut message = vec![0; length];
    fill(from, &mut message)?;
    serde_json::from_slice(&message).map_err(Error::Message)
}

fn fill(from: &mut impl Read, bytes: &mut [u8]) -> Result<(), Error> {
    from.read_exact(bytes).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => Error::Truncated,
        _ => of_io(error),
    })
}

/// Writes one message. A closed socket is an error and never a `SIGPIPE`, whatever the process does with signals.
pub fn write(to: &UnixStream, message: &impl Serialize) -> Result<(), Error> {
    let message = serde_json::to_vec(message).map_err(Error::Message)?;
    let length = u32::try_from(message.len()).ok();
    let length = length.filter(|_| message.len() <= MAX_MESSAGE);
    let length = length.ok_or(Error::TooLong(message.len()))?;
    let frame = [&length.to_le_bytes()[..], &message].concat();
    let mut rest = &frame[..];
    while !rest.is_empty() {
        match send(to.as_raw_fd(), rest, MsgFlags::MSG_NOSIGNAL) {
            Ok(sent) => rest = &rest[sent..],
            Err(Errno::EINTR) => {}
            Err(error) => return Err(of_io(error.into())),
        }
    }
    Ok(())
}

/// A process that ends with requests unread resets the connection.
fn of_io(error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => Error::Closed,
        _ => Error::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::{Reply, Request};

    fn read_bytes(bytes: &[u8]) -> Result<Request, Error> {
        read(&mut &bytes[..])
    }

    #[test]
    fn messages_survive_the_socket() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        for rows in [0, 1, usize::MAX] {
            write(&ours, &Request::Score { rows }).unwrap();
            let request: Request = read(&mut theirs).unwrap();
            assert_eq!(request, Request::Score { rows });
        }
    }

    #[test]
    fn truncated_frames_are_errors() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        write(&ours, &Request::Score { rows: 7 }).unwrap();
        drop(ours);
        let mut whole = Vec::new();
        theirs.read_to_end(&mut whole).unwrap();
        assert!(matches!(read_bytes(&[]), Err(Error::Closed)));
        for length in 1..whole.len() {
            let read = read_bytes(&whole[..length]);
            assert!(matches!(read, Err(Error::Truncated)), "{length}: {read:?}");
        }
    }

    #[test]
    fn oversized_frames_are_refused_unread() {
        let length = u32::try_from(MAX_MESSAGE + 1).unwrap();
        let read = read_bytes(&length.to_le_bytes());
        assert!(matches!(read, Err(Error::TooLong(_))), "{read:?}");
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let reason = "x".repeat(MAX_MESSAGE);
        let written = write(&ours, &Reply::Invalid { reason });
        assert!(matches!(written, Err(Error::TooLong(_))), "{written:?}");
    }

    #[test]
    fn other_messages_are_refused() {
        for text in [&b"{}"[..], b"\xff", b"{\"score\":{\"rows\":-1}}", b""] {
            let length = u32::try_from(text.len()).unwrap().to_le_bytes();
            let read = read_bytes(&[&length[..], text].concat());
            assert!(matches!(read, Err(Error::Message(_))), "{text:?}: {read:?}");
        }
    }

    #[test]
    fn a_closed_socket_is_an_error() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&theirs).write_all(b"unread").unwrap();
        drop(theirs);
        let written = write(&ours, &Request::Bye);
        assert!(matches!(written, Err(Error::Closed)), "{written:?}");
    }
}
