//! The ClientHello at the start of a TCP stream's direction: which bytes are one, whatever the port.
//! That of QUIC, which comes without records, is read here too.
//!
//! It gathers the message from records and segments in bounded memory; what the message says is
//! `hello`'s, its fingerprint `ja4`'s. A hello that follows other bytes (STARTTLS, a proxy's CONNECT)
//! is not looked for, nor the SSL 2 form.

mod hello;
mod ja4;

/// Of a ClientHello with its header; a longer one is given up. Post-quantum ones have some 2 KiB.
pub const MAX_HELLO: usize = 16 * 1024;

/// Bytes of a record's header: type, version, length.
const RECORD: usize = 5;
/// The longest fragment of a record (RFC 8446, 5.1).
const FRAGMENT: usize = 1 << 14;
/// Bytes of a handshake message's header: type, length.
const MESSAGE: usize = 4;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;

/// The fields of a ClientHello that identify the client and the requested server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHello {
    /// The server's name (RFC 6066), in lower case, bytes that do not print as `\DDD`.
    pub sni: Option<String>,
    /// The application protocols that are offered (RFC 7301), in their order with commas between;
    /// commas and bytes that do not print as `\DDD`.
    pub alpn: Option<String>,
    /// JA4: 36 characters.
    pub ja4: String,
}

/// The transport that carries the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp,
    Quic,
}

/// The state of the search after a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// So far it can be a ClientHello.
    More,
    Found(ClientHello),
    GivenUp(Reason),
}

/// Why a stream's start gave no ClientHello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("does not begin with a ClientHello")]
    Other,
    #[error("a segment is missing or late")]
    Gap,
    #[error("longer than 16 KiB")]
    TooLong,
    #[error("its lengths contradict each other")]
    Malformed,
    #[error("in more than 64 pieces")]
    Scattered,
}

/// The search in one direction of a flow. Only while what came can be a ClientHello, and is not all
/// of it, does it own memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Search {
    /// No payload was seen.
    #[default]
    Ahead,
    Gathering(Box<Accumulator>),
    Over,
}

impl Search {
    /// The next payload with the sequence number of its first byte; `first` is the stream's where it is
    /// known (its SYN's, plus one). It answers once, with the payload that ends the search.
    pub fn feed(
        &mut self,
        first: Option<u32>,
        sequence: u32,
        payload: &[u8],
    ) -> Option<Result<ClientHello, Reason>> {
        let state = match self {
            Self::Over => return None,
            Self::Ahead if payload.is_empty() => return None,
            Self::Ahead => {
                let mut fresh = Accumulator::new(first.unwrap_or(sequence));
                let state = fresh.feed(sequence, payload);
                if state == State::More {
                    *self = Self::Gathering(Box::new(fresh));
                }
                state
            }
            Self::Gathering(accumulator) => accumulator.feed(sequence, payload),
        };
        let answer = match state {
            State::More => return None,
            State::Found(hello) => Ok(hello),
            State::GivenUp(reason) => Err(reason),
        };
        *self = Self::Over;
        Some(answer)
    }
}

/// A ClientHello on its way. After `Found` or `GivenUp` it is of no further use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accumulator {
    /// The next byte's sequence number.
    next: u32,
    /// The header of the record under way: the first `header_bytes` are there.
    header: [u8; RECORD],
    header_bytes: usize,
    /// Bytes of the record's fragment that have not come.
    fragment: usize,
    /// The handshake message, headers of records left out.
    message: Vec<u8>,
}

impl Accumulator {
    /// For a stream whose first byte has a sequence number. It allocates with a hello's first byte.
    pub fn new(first: u32) -> Self {
        Self {
            next: first,
            header: [0; RECORD],
            header_bytes: 0,
            fragment: 0,
            message: Vec::new(),
        }
    }

    /// The next payload and the sequence number of its first byte. What came before is passed over;
    /// nothing is kept for later, so that one reordered segment ends the search.
    pub fn feed(&mut self, sequence: u32, payload: &[u8]) -> State {
        let known = self.next.wrapping_sub(sequence);
        if known > u32::MAX / 2 {
            return State::GivenUp(Reason::Gap);
        }
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        let Some(news) = payload.get(known..) else {
            return State::More;
        };
        self.next = self
            .next
            .wrapping_add(u32::try_from(news.len()).unwrap_or(0));
        match self.consume(news) {
            Ok(None) => State::More,
            Ok(Some(hello)) => State::Found(hello),
            Err(reason) => State::GivenUp(reason),
        }
    }

    /// Bytes of memory it owns: at most `MAX_HELLO`.
    pub fn capacity(&self) -> usize {
        self.message.capacity()
    }

    fn consume(&mut self, mut news: &[u8]) -> Result<Option<ClientHello>, Reason> {
        while !news.is_empty() {
            news = if self.fragment == 0 {
                self.take_header(news)?
            } else {
                self.take_fragment(news)?
            };
            if Some(self.message.len()) == self.wanted()? {
                return self.parse().map(Some);
            }
        }
        Ok(None)
    }

    fn take_header<'a>(&mut self, news: &'a [u8]) -> Result<&'a [u8], Reason> {
        let room = &mut self.header[self.header_bytes..];
        let (taken, rest) = news.split_at(news.len().min(room.len()));
        room[..taken.len()].copy_from_slice(taken);
        self.header_bytes += taken.len();
        if !can_be_record(&self.header[..self.header_bytes]) {
            return Err(self.refusal());
        }
        if self.header_bytes == RECORD {
            self.fragment = u16::from_be_bytes([self.header[3], self.header[4]]).into();
            self.header_bytes = 0;
        }
        Ok(rest)
    }

    fn take_fragment<'a>(&mut self, news: &'a [u8]) -> Result<&'a [u8], Reason> {
        let wanted = self.wanted()?.unwrap_or(MESSAGE) - self.message.len();
        let (taken, rest) = news.split_at(news.len().min(self.fragment).min(wanted));
        self.fragment -= taken.len();
        self.append(taken);
        if !can_be_hello(&self.message) {
            return Err(Reason::Other);
        }
        Ok(rest)
    }

    /// Grows by doubling, as a vector does, but never beyond the longest message.
    fn append(&mut self, bytes: &[u8]) {
        let needed = self.message.len() + bytes.len();
        if needed > self.message.capacity() {
            let capacity = needed.max(2 * self.message.capacity()).min(MAX_HELLO);
            self.message.reserve_exact(capacity - self.message.len());
        }
        self.message.extend_from_slice(bytes);
    }

    /// Bytes of the whole message, once its header is there.
    fn wanted(&self) -> Result<Option<usize>, Reason> {
        message_length(&self.message)
    }

    fn parse(&self) -> Result<ClientHello, Reason> {
        read_hello(&self.message, Transport::Tcp)
    }

    /// A record that cannot be: after some of the message, a contradiction.
    fn refusal(&self) -> Reason {
        if self.message.is_empty() {
            Reason::Other
        } else {
            Reason::Malformed
        }
    }
}

/// Whether these can be the first bytes of a record with handshake messages, of SSL 3 or any TLS.
fn can_be_record(header: &[u8]) -> bool {
    let fits = |(at, byte): (usize, &u8)| match at {
        0 => *byte == HANDSHAKE,
        1 => *byte == 3,
        2 => *byte <= 4,
        _ => true,
    };
    let length = |high, low| u16::from_be_bytes([high, low]).into();
    header.iter().enumerate().all(fits)
        && match header {
            [.., high, low] if header.len() == RECORD => {
                (1..=FRAGMENT).contains(&length(*high, *low))
            }
            _ => true,
        }
}

/// Bytes of a message with its header, once that is there.
pub(super) fn message_length(start: &[u8]) -> Result<Option<usize>, Reason> {
    let Some([_, high, middle, low]) = start.first_chunk() else {
        return Ok(None);
    };
    let body = u32::from_be_bytes([0, *high, *middle, *low]);
    match usize::try_from(body).map_or(MAX_HELLO, |body| body + MESSAGE) {
        whole if whole > MAX_HELLO => Err(Reason::TooLong),
        whole => Ok(Some(whole)),
    }
}

/// Reads a whole ClientHello with its header.
pub(super) fn read_hello(message: &[u8], transport: Transport) -> Result<ClientHello, Reason> {
    let body = message.get(MESSAGE..).unwrap_or(&[]);
    let hello = hello::Hello::parse(body).ok_or(Reason::Malformed)?;
    Ok(ClientHello {
        sni: hello.server_name(),
        alpn: hello.protocols(),
        ja4: ja4::of(&hello, transport),
    })
}

/// Whether these can be the first bytes of a ClientHello: its type, its version's high byte.
pub(super) fn can_be_hello(message: &[u8]) -> bool {
    message.first().is_none_or(|kind| *kind == CLIENT_HELLO)
        && message.get(MESSAGE).is_none_or(|version| *version == 3)
}
