//! The control connection: what both ends say beside what is measured.
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

/// Of what is said here. Ends of different versions do not measure together.
pub const VERSION: u16 = 6;
/// Tells this protocol from others.
pub(crate) const GREETING: [u8; 6] = *b"lrnb\r\n";
/// Of a message, in bytes.
const LARGEST: u32 = 64 << 10;
/// Of the first one that a client says, before anybody knows who it is.
pub(crate) const LARGEST_HELLO: u32 = 256;

/// What begins each connection or flow of a test: it belongs to this one.
pub(crate) const COOKIE: usize = 16;
pub(crate) type Cookie = [u8; COOKIE];

/// What ends a flow of datagrams: its cookie, whose first byte is 0 where it begins one.
pub(crate) fn last_of(cookie: &Cookie) -> Cookie {
    let mut last = *cookie;
    last[0] = 1;
    last
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToServer {
    /// With the answer to the challenge, from who knows the token.
    Hello { answer: Option<[u8; 32]> },
    /// Get ready for a test.
    Begin(Spec),
    /// The window that is measured begins now. There is no answer: where a flood is in its way, it would come
    /// when all is over.
    Mark,
    /// It ends now. So many bytes the client's flows have sent, or got, from the first one on.
    End { bytes: u64 },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToClient {
    Challenge {
        bytes: [u8; 32],
        token: bool,
    },
    Admitted,
    /// Nothing follows. Later the same client may be admitted, or never.
    Refused {
        why: String,
        later: bool,
    },
    /// The test cannot be; another one may. Later the same one may be, or never.
    Declined {
        why: String,
        later: bool,
    },
    /// Where the test's flows go: one port for all, or one for each.
    Ready {
        ports: Vec<u16>,
        cookie: Cookie,
    },
    /// With what ended a flow at the server before its time, if anything did.
    Ended {
        end: End,
        fault: Option<String>,
    },
}

/// A control connection for a while: all that is heard and said over it comes before that has passed, in however small
/// pieces.
pub(crate) struct Within<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl<'a> Within<'a> {
    pub(crate) fn new(patience: Duration, stream: &'a TcpStream) -> Self {
        Self {
            stream,
            until: Instant::now() + patience,
        }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(left),
        }
    }
}

impl Read for Within<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(into).map_err(late)
    }
}

impl Write for Within<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes).map_err(late)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The kernel says of a time-out that one might try again.
fn late(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

/// What is wrong with what the other end says.
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
    NotDue,
}

/// Says which protocol this is, and checks that the other end speaks it.
pub(crate) fn greet(stream: &mut (impl Read + Write)) -> Result<(), Fault> {
    let mut said = [0; 8];
    let (greeting, version) = said.split_at_mut(GREETING.len());
    greeting.copy_from_slice(&GREETING);
    version.copy_from_slice(&VERSION.to_le_bytes());
    stream.write_all(&said)?;
    let mut heard = [0; 8];
    match stream.read_exact(&mut heard) {
        // It has said less, and gone.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(Fault::Stranger),
        other => other?,
    }
    let [greeting @ .., low, high] = heard;
    match u16::from_le_bytes([low, high]) {
        _ if greeting != GREETING => Err(Fault::Stranger),
        VERSION => Ok(()),
        other => Err(Fault::Version(other)),
    }
}

pub(crate) fn say(stream: &mut impl Write, message: &impl Serialize) -> Result<(), Fault> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
    if length > LARGEST {
        return Err(Fault::Large(length));
    }
    for (to, from) in bytes.iter_mut().zip(length.to_le_bytes()) {
        *to = from;
    }
    Ok(stream.write_all(&bytes)?)
}

pub(crate) fn hear<T: DeserializeOwned>(stream: &mut impl Read) -> Result<T, Fault> {
    hear_at_most(LARGEST, stream)
}

/// A message of no more bytes than this.
pub(crate) fn hear_at_most<T: DeserializeOwned>(
    most: u32,
    stream: &mut impl Read,
) -> Result<T, Fault> {
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let length = u32::from_le_bytes(head);
    if length > most {
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

    /// Hears what is given, and forgets what it is told.
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
    fn others_and_other_versions_are_told_apart() {
        let own = [&b"lrnb\r\n"[..], &VERSION.to_le_bytes()].concat();
        assert!(greeted(&own).is_ok());
        assert!(matches!(greeted(b"lrnb\r\n\x01\0"), Err(Fault::Version(1))));
        assert!(matches!(greeted(b"SSH-2.0-OpenSSH"), Err(Fault::Stranger)));
        assert!(matches!(greeted(b"lrnb"), Err(Fault::Stranger)));
    }

    #[test]
    fn messages_are_heard_as_they_were_said_and_no_longer_than_they_may_be() {
        let mut line = Vec::new();
        say(&mut line, &ToServer::Mark).unwrap();
        say(
            &mut line,
            &ToServer::Hello {
                answer: Some([7; 32]),
            },
        )
        .unwrap();
        let mut read = Cursor::new(&line);
        assert!(matches!(hear(&mut read), Ok(ToServer::Mark)));
        let hello = hear(&mut read);
        assert!(matches!(hello, Ok(ToServer::Hello { answer: Some(answer) }) if answer == [7; 32]));
        for cut in 0..line.len() - 1 {
            let mut read = Cursor::new(&line[..cut]);
            let faults = (0..2).any(|_| hear::<ToServer>(&mut read).is_err());
            assert!(faults, "{cut}");
        }
        let large = [&u32::MAX.to_le_bytes()[..], b"{}"].concat();
        let heard = hear::<ToServer>(&mut Cursor::new(large));
        assert!(matches!(heard, Err(Fault::Large(u32::MAX))));
        let nonsense = [&2_u32.to_le_bytes()[..], b"{}"].concat();
        let heard = hear::<ToServer>(&mut Cursor::new(nonsense));
        assert!(matches!(heard, Err(Fault::Malformed(_))));
        let why = "x".repeat(100_000);
        let later = false;
        let said = say(&mut Vec::new(), &ToClient::Refused { why, later });
        assert!(matches!(said, Err(Fault::Large(_))));
        let mut longest = Vec::new();
        let answer = Some([255; 32]);
        say(&mut longest, &ToServer::Hello { answer }).unwrap();
        let mut read = Cursor::new(&longest);
        assert!(hear_at_most::<ToServer>(LARGEST_HELLO, &mut read).is_ok());
        let more = [&(LARGEST_HELLO + 1).to_le_bytes()[..], &[b' '; 300]].concat();
        let heard = hear_at_most::<ToServer>(LARGEST_HELLO, &mut Cursor::new(more));
        assert!(matches!(heard, Err(Fault::Large(_))));
    }

    #[test]
    fn a_message_is_heard_within_its_time_in_all() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (here, _) = listener.accept().unwrap();
        let long = Duration::from_hours(1);
        say(&mut Within::new(long, &there), &ToServer::Mark).unwrap();
        let heard = hear(&mut Within::new(long, &here));
        assert!(matches!(heard, Ok(ToServer::Mark)));
        let late = |patience| {
            let heard = hear::<ToServer>(&mut Within::new(patience, &here));
            matches!(heard, Err(Fault::Io(error)) if error.kind() == io::ErrorKind::TimedOut)
        };
        // Two bytes of a length have come, and no more do.
        (&there).write_all(&[9, 0]).unwrap();
        assert!(late(Duration::from_millis(20)));
        // Once its time has passed, what is there comes too late as well.
        say(&mut &there, &ToServer::Mark).unwrap();
        assert!(late(Duration::ZERO));
        let said = say(&mut Within::new(Duration::ZERO, &there), &ToServer::Mark);
        assert!(said.is_err());
    }
}
