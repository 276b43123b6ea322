//! The protocol of the control connection.
//!
//! Each end begins with [`GREETING`] and its version. Messages follow: four bytes of length, little endian, and as much
//! JSON. Where the ends share a token, each proves in its first message that it knows it, and all later messages are
//! followed by a code that depends on the token, on both ends' challenges and on the messages before: an attacker in
//! between cannot alter, add, repeat or drop one.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::outcome::End;
use crate::spec::Spec;
use crate::token::{Role, SessionKey};

/// The version of this protocol. Ends of different versions do not measure together.
pub const VERSION: u16 = 8;
/// Distinguishes this protocol from others.
pub(crate) const GREETING: [u8; 6] = *b"lrnb\r\n";
/// The largest message, in bytes.
const MAX_SIZE: u32 = 64 << 10;
/// The largest first message of a client, which has not authenticated yet, in bytes.
pub(crate) const MAX_HELLO: u32 = 512;
/// The size of the code that authenticates a message, in bytes.
const CODE: usize = 16;

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

/// The cookie of one flow: that of the test, whose last bytes are the flow's number.
pub(crate) fn flow_cookie(cookie: &Cookie, flow: u16) -> Cookie {
    let mut shown = *cookie;
    let [.., high, low] = &mut shown;
    [*high, *low] = flow.to_be_bytes();
    shown
}

/// The number of the flow that shows this cookie; none if it is not of this test.
pub(crate) fn flow_of(shown: &Cookie, cookie: &Cookie) -> Option<u16> {
    let [.., high, low] = *shown;
    let flow = u16::from_be_bytes([high, low]);
    (flow_cookie(cookie, flow) == *shown).then_some(flow)
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToServer {
    /// With the answer to the server's challenge, if the client has a token, and a challenge of its own.
    Hello {
        answer: Option<[u8; 32]>,
        challenge: [u8; 32],
    },
    /// Get ready for a test.
    Begin(Spec),
    /// The window opens now. The answer is [`ToClient::Marked`] where [`Spec::confirms_window`]. Other tests have none,
    /// because under a flood it would arrive after the test.
    Mark,
    /// The window closes now. With the bytes that the client's flows have sent or received since they began.
    End { bytes: u64 },
}

#[derive(Debug, Serialize, Deserialize)]
#[expect(
    clippy::large_enum_variant,
    reason = "one exists at a time, and the large one is the result of a test"
)]
pub(crate) enum ToClient {
    Challenge {
        bytes: [u8; 32],
        token: bool,
    },
    /// With the answer to the client's challenge, if the server has a token, the MTU of its path to the client, and the
    /// longest test that it runs.
    Admitted {
        answer: Option<[u8; 32]>,
        path_mtu: Option<u32>,
        max_duration_us: u64,
    },
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
    /// The window is open.
    Marked,
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
    #[error("malformed message: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("a message that was not due")]
    Unexpected,
    #[error("a message with a wrong authentication code")]
    Forged,
}

/// Authenticates the messages of one connection, in both directions.
#[derive(Debug, Default)]
pub(crate) struct Authenticator {
    key: Option<SessionKey>,
    sent: u64,
    received: u64,
}

impl Authenticator {
    /// With the key of both ends; none where they have no token.
    pub(crate) fn new(key: Option<SessionKey>) -> Self {
        Self {
            key,
            ..Self::default()
        }
    }

    /// Sends a message and its code.
    pub(crate) fn send(
        &mut self,
        from: Role,
        stream: &mut impl Write,
        message: &impl Serialize,
    ) -> Result<(), Fault> {
        let mut bytes = frame(message)?;
        if let Some(key) = &self.key {
            let body = bytes.get(4..).unwrap_or_default();
            let code = key.code::<CODE>(from, self.sent, body);
            bytes.extend(code);
        }
        self.sent += 1;
        Ok(stream.write_all(&bytes)?)
    }

    /// Receives a message and checks its code.
    pub(crate) fn receive<T: DeserializeOwned>(
        &mut self,
        from: Role,
        stream: &mut impl Read,
    ) -> Result<T, Fault> {
        let body = body(MAX_SIZE, stream)?;
        if let Some(key) = &self.key {
            let mut code = [0; CODE];
            stream.read_exact(&mut code)?;
            if !key.is_code(from, self.received, &body, &code) {
                return Err(Fault::Forged);
            }
        }
        self.received += 1;
        Ok(serde_json::from_slice(&body)?)
    }
}

/// Sends the greeting and the version, and checks those of the other end.
pub(crate) fn greet(stream: &mut (impl Read + Write)) -> Result<(), Fault> {
    send_greeting(stream)?;
    receive_greeting(stream)
}

pub(crate) fn send_greeting(stream: &mut impl Write) -> Result<(), Fault> {
    let mut sent = [0; 8];
    let (greeting, version) = sent.split_at_mut(GREETING.len());
    greeting.copy_from_slice(&GREETING);
    version.copy_from_slice(&VERSION.to_le_bytes());
    Ok(stream.write_all(&sent)?)
}

/// Receives the greeting of the other end, and checks its version.
pub(crate) fn receive_greeting(stream: &mut impl Read) -> Result<(), Fault> {
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

/// Sends a message before the ends have authenticated.
pub(crate) fn send(stream: &mut impl Write, message: &impl Serialize) -> Result<(), Fault> {
    Ok(stream.write_all(&frame(message)?)?)
}

/// A message with its length.
fn frame(message: &impl Serialize) -> Result<Vec<u8>, Fault> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
    if length > MAX_SIZE {
        return Err(Fault::Large(length));
    }
    for (to, from) in bytes.iter_mut().zip(length.to_le_bytes()) {
        *to = from;
    }
    Ok(bytes)
}

/// Receives a message before the ends have authenticated.
pub(crate) fn receive<T: DeserializeOwned>(stream: &mut impl Read) -> Result<T, Fault> {
    receive_at_most(MAX_SIZE, stream)
}

/// Receives a message of no more bytes than this.
pub(crate) fn receive_at_most<T: DeserializeOwned>(
    max: u32,
    stream: &mut impl Read,
) -> Result<T, Fault> {
    Ok(serde_json::from_slice(&body(max, stream)?)?)
}

/// The JSON of a message.
fn body(max: u32, stream: &mut impl Read) -> Result<Vec<u8>, Fault> {
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
    Ok(body)
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
                challenge: [8; 32],
            },
        )
        .unwrap();
        let mut read = Cursor::new(&line);
        assert!(matches!(receive(&mut read), Ok(ToServer::Mark)));
        let hello = receive(&mut read);
        assert!(
            matches!(hello, Ok(ToServer::Hello { answer: Some(answer), .. }) if answer == [7; 32])
        );
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
        let challenge = [255; 32];
        send(&mut longest, &ToServer::Hello { answer, challenge }).unwrap();
        let mut read = Cursor::new(&longest);
        assert!(receive_at_most::<ToServer>(MAX_HELLO, &mut read).is_ok());
        let more = [&(MAX_HELLO + 1).to_le_bytes()[..], &[b' '; 300]].concat();
        let received = receive_at_most::<ToServer>(MAX_HELLO, &mut Cursor::new(more));
        assert!(matches!(received, Err(Fault::Large(_))));
    }

    #[test]
    fn altered_repeated_or_reflected_message_is_refused() {
        let key = || Some(SessionKey::of([5; 32]));
        let (mut client, mut server) = (Authenticator::new(key()), Authenticator::new(key()));
        let mut line = Vec::new();
        client
            .send(Role::Client, &mut line, &ToServer::Mark)
            .unwrap();
        let end = ToServer::End { bytes: 100 };
        client.send(Role::Client, &mut line, &end).unwrap();
        let mut read = Cursor::new(line.clone());
        let mark = server.receive(Role::Client, &mut read);
        assert!(matches!(mark, Ok(ToServer::Mark)));
        let end = server.receive(Role::Client, &mut read);
        assert!(matches!(end, Ok(ToServer::End { bytes: 100 })));
        // The same bytes again, as those of the other end, and with another number in them.
        let refused = |server: &mut Authenticator, from, line: &[u8]| {
            let received = server.receive::<ToServer>(from, &mut Cursor::new(line.to_vec()));
            matches!(received, Err(Fault::Forged))
        };
        assert!(refused(&mut server, Role::Client, &line));
        assert!(refused(&mut Authenticator::new(key()), Role::Server, &line));
        let mut altered = line;
        altered[5] ^= 1;
        assert!(refused(
            &mut Authenticator::new(key()),
            Role::Client,
            &altered
        ));
        // Without a token there is nothing to check.
        let mut plain = Vec::new();
        Authenticator::default()
            .send(Role::Client, &mut plain, &ToServer::Mark)
            .unwrap();
        let mark = receive(&mut Cursor::new(plain));
        assert!(matches!(mark, Ok(ToServer::Mark)));
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
