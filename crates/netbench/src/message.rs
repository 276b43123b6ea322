//! The protocol of the control connection.
//!
//! Each end begins with [`GREETING`] and its version. Messages follow: four bytes of length, little
//! endian, and as much JSON.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::outcome::End;
use crate::spec::Spec;

/// The version of this protocol. Ends of different versions do not measure together.
pub const VERSION: u16 = 6;
/// Distinguishes this protocol from others.
pub(crate) const GREETING: [u8; 6] = *b"lrnb\r\n";
/// The largest message, in bytes.
const MAX_SIZE: u32 = 64 << 10;
/// The largest first message of a client, which has not authenticated yet, in bytes.
pub(crate) const MAX_HELLO: u32 = 256;

/// The size of a cookie, in bytes.
pub(crate) const COOKIE: usize = 16;
/// The first bytes of each connection or flow of datagrams, by which it belongs to a test. Its first byte is 0.
pub(crate) type Cookie = [u8; COOKIE];

/// The last datagram of a flow: its cookie with another first byte.
pub(crate) fn last_of(cookie: &Cookie) -> Cookie {
    let mut last = *cookie;
    last[0] = 1;
    last
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToServer {
    /// With the answer to the challenge, if the client has a token.
    Hello { answer: Option<[u8; 32]> },
    /// Get ready for a test.
    Begin(Spec),
    /// The window opens now. There is no answer, because under a flood it would arrive after the test.
    Mark,
    /// The window closes now. With the bytes that the client's flows have sent or received since they began.
    End { bytes: u64 },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToClient {
    Challenge {
        bytes: [u8; 32],
        token: bool,
    },
    Admitted,
    /// The connection ends. If `later`, another try may be admitted.
    Refused {
        why: String,
        later: bool,
    },
    /// The server does not run this test. If `later`, another try may succeed.
    Declined {
        why: String,
        later: bool,
    },
    /// The ports of the test's flows: one for all, or one for each.
    Ready {
        ports: Vec<u16>,
        cookie: Cookie,
    },
    /// With the error that ended a flow at the server early.
    Ended {
        end: End,
        fault: Option<String>,
    },
}

/// A control connection with a deadline for all that is received and sent, in however small pieces.
pub(crate) struct TimedStream<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl<'a> TimedStream<'a> {
    pub(crate) fn new(timeout: Duration, stream: &'a TcpStream) -> Self {
        Self {
            stream,
            until: Instant::now() + timeout,
        }
    }

    fn remaining(&self) -> io::Result<Duration> {
        let remaining = self.until.saturating_duration_since(Instant::now());
        match remaining.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(remaining),
        }
    }
}

impl Read for TimedStream<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.remaining()?))?;
        self.stream.read(into).map_err(timeout)
    }
}

impl Write for TimedStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.remaining()?))?;
        self.stream.write(bytes).map_err(timeout)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The kernel reports a timeout as EAGAIN.
fn timeout(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

/// An error of the control connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it does not speak this protocol")]
    Stranger,
    #[error("it speaks version {0}, this is version {VERSION}")]
    Version(u16),
    #[error("a message of {0} bytes")]
    Large(u32),
    #[error("a message that is none: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("a message that was not due")]
    Unexpected,
}

/// Sends the greeting and the version, and checks those of the other end.
pub(crate) fn greet(stream: &mut (impl Read + Write)) -> Result<(), Fault> {
    let mut sent = [0; 8];
    let (greeting, version) = sent.split_at_mut(GREETING.len());
    greeting.copy_from_slice(&GREETING);
    version.copy_from_slice(&VERSION.to_le_bytes());
    stream.write_all(&sent)?;
    let mut received = [0; 8];
    match stream.read_exact(&mut received) {
        // The other end sent less, and closed the connection.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(Fault::Stranger),
        other => other?,
    }
    let [greeting @ .., low, high] = received;
    match u16::from_le_bytes([low, high]) {
        _ if greeting != GREETING => Err(Fault::Stranger),
        VERSION => Ok(()),
        other => Err(Fault::Version(other)),
    }
}

pub(crate) fn send(stream: &mut impl Write, message: &impl Serialize) -> Result<(), Fault> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
    if length > MAX_SIZE {
        return Err(Fault::Large(length));
    }
    for (to, from) in bytes.iter_mut().zip(length.to_le_bytes()) {
        *to = from;
    }
    Ok(stream.write_all(&bytes)?)
}

pub(crate) fn receive<T: DeserializeOwned>(stream: &mut impl Read) -> Result<T, Fault> {
    receive_at_most(MAX_SIZE, stream)
}

/// Receives a message of no more bytes than this.
pub(crate) fn receive_at_most<T: DeserializeOwned>(
    max: u32,
    stream: &mut impl Read,
) -> Result<T, Fault> {
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let length = u32::from_le_bytes(head);
    if length > max {
        return Err(Fault::Large(length));
    }
    let mut body = Vec::new();
    stream.take(length.into()).read_to_end(&mut body)?;
    if body.len() < length as usize {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(serde_json::from_slice(&body)?)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::net::TcpListener;

    use super::*;

    /// Reads prepared bytes, and discards what is written.
    struct Line(Cursor<Vec<u8>>);

    impl Read for Line {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.0.read(into)
        }
    }

    impl Write for Line {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn greeted(by: &[u8]) -> Result<(), Fault> {
        greet(&mut Line(Cursor::new(by.to_vec())))
    }

    #[test]
    fn greeting_distinguishes_strangers_and_versions() {
        let own = [&b"lrnb\r\n"[..], &VERSION.to_le_bytes()].concat();
        assert!(greeted(&own).is_ok());
        assert!(matches!(greeted(b"lrnb\r\n\x01\0"), Err(Fault::Version(1))));
        assert!(matches!(greeted(b"SSH-2.0-OpenSSH"), Err(Fault::Stranger)));
        assert!(matches!(greeted(b"lrnb"), Err(Fault::Stranger)));
    }

    #[test]
    fn messages_arrive_unchanged_up_to_their_limit() {
        let mut line = Vec::new();
        send(&mut line, &ToServer::Mark).unwrap();
        send(
            &mut line,
            &ToServer::Hello {
                answer: Some([7; 32]),
            },
        )
        .unwrap();
        let mut read = Cursor::new(&line);
        assert!(matches!(receive(&mut read), Ok(ToServer::Mark)));
        let hello = receive(&mut read);
        assert!(matches!(hello, Ok(ToServer::Hello { answer: Some(answer) }) if answer == [7; 32]));
        for cut in 0..line.len() - 1 {
            let mut read = Cursor::new(&line[..cut]);
            let faults = (0..2).any(|_| receive::<ToServer>(&mut read).is_err());
            assert!(faults, "{cut}");
        }
        let large = [&u32::MAX.to_le_bytes()[..], b"{}"].concat();
        let received = receive::<ToServer>(&mut Cursor::new(large));
        assert!(matches!(received, Err(Fault::Large(u32::MAX))));
        let nonsense = [&2_u32.to_le_bytes()[..], b"{}"].concat();
        let received = receive::<ToServer>(&mut Cursor::new(nonsense));
        assert!(matches!(received, Err(Fault::Malformed(_))));
        let why = "x".repeat(100_000);
        let later = false;
        let sent = send(&mut Vec::new(), &ToClient::Refused { why, later });
        assert!(matches!(sent, Err(Fault::Large(_))));
        let mut longest = Vec::new();
        let answer = Some([255; 32]);
        send(&mut longest, &ToServer::Hello { answer }).unwrap();
        let mut read = Cursor::new(&longest);
        assert!(receive_at_most::<ToServer>(MAX_HELLO, &mut read).is_ok());
        let more = [&(MAX_HELLO + 1).to_le_bytes()[..], &[b' '; 300]].concat();
        let received = receive_at_most::<ToServer>(MAX_HELLO, &mut Cursor::new(more));
        assert!(matches!(received, Err(Fault::Large(_))));
    }

    #[test]
    fn timeout_covers_whole_message() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (here, _) = listener.accept().unwrap();
        let long = Duration::from_hours(1);
        send(&mut TimedStream::new(long, &there), &ToServer::Mark).unwrap();
        let received = receive(&mut TimedStream::new(long, &here));
        assert!(matches!(received, Ok(ToServer::Mark)));
        let late = |timeout| {
            let received = receive::<ToServer>(&mut TimedStream::new(timeout, &here));
            matches!(received, Err(Fault::Io(error)) if error.kind() == io::ErrorKind::TimedOut)
        };
        // Two bytes of a length have come, and no more do.
        (&there).write_all(&[9, 0]).unwrap();
        assert!(late(Duration::from_millis(20)));
        // Once its time has passed, what is there comes too late as well.
        send(&mut &there, &ToServer::Mark).unwrap();
        assert!(late(Duration::ZERO));
        let sent = send(
            &mut TimedStream::new(Duration::ZERO, &there),
            &ToServer::Mark,
        );
        assert!(sent.is_err());
    }
}
