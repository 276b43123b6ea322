//! The messages of both ends, each with its length. The bytes are untrusted: memory is allocated
//! only for bytes that have arrived, not for lengths that they claim.

use crate::codec;
use crate::log::{Beginning, MAX_RECORD};
use crate::record::Record;
use crate::ship::CopyState;

/// The version of the protocol. Both ends must use the same one.
pub const VERSION: u16 = 2;

/// The largest message of a replica, in bytes.
pub const MAX_REQUEST: usize = 256;
/// The largest message of a server, in bytes.
pub const MAX_RESPONSE: usize = MAX_RECORD + 1;
/// The approximate size of a record without a file's bytes.
pub(super) const BESIDES: usize = 64;
/// The largest text of a refusal, in bytes.
const MAX_TEXT: usize = 1024;

const HEAD: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The server's first message, sent only after it has accepted the certificate.
    Welcome {
        version: u16,
    },
    /// The replica's answer: the state of its copy on the disk.
    Hello {
        version: u16,
        held: Option<CopyState>,
    },
    /// The term of the server's log, sent before the records.
    Term(u64),
    /// The replica has records after this one that the promoted source does not have.
    Rewind(Fork),
    /// The beginning of the log of the records that follow, which continue the replica's copy.
    Begin(Beginning),
    Record(Record),
    /// The last record and epoch of the source. Also serves as a keepalive.
    Tip(Tip),
    /// The last record and epoch on the replica's disk. Also serves as a keepalive.
    Received {
        number: u64,
        epoch: u64,
    },
    /// The server refuses; no more messages follow.
    Refused {
        reason: Reason,
        text: String,
    },
}

/// The point at which a promoted tree has continued a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fork {
    pub term: u64,
    /// The last epoch before it, its record, and when that was written, in nanoseconds since 1970.
    pub epoch: u64,
    pub number: u64,
    pub at_ns: u64,
}

/// The head of the source's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tip {
    pub number: u64,
    /// Zero before the first, or while it is unknown.
    pub epoch: u64,
}

/// Why a server ships nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The replica uses another version of the protocol.
    Version,
    /// The next records have been compacted away.
    Compacted,
    /// The copy is of another log.
    OtherLog,
    /// The copy has another record under the same number, or more records than the source.
    Diverged,
    /// The server has reached its limit of replicas.
    Full,
    /// The server cannot read its log.
    Source,
    /// The copy has a later term.
    Term,
}

/// Bytes that are not a valid message.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMessage {
    #[error("a message of {0} bytes, which is too long")]
    Long(usize),
    #[error("a message that ends too early")]
    Short,
    #[error("a message with more than it has to say")]
    Rest,
    #[error("no such message: {0}")]
    Unknown(u8),
    #[error("a message that is not due now")]
    NotDue,
    #[error("a message's record: {0}")]
    Record(#[from] codec::InvalidRecord),
}

mod tag {
    pub(super) const WELCOME: u8 = 1;
    pub(super) const HELLO: u8 = 2;
    pub(super) const BEGIN: u8 = 3;
    pub(super) const RECORD: u8 = 4;
    pub(super) const TIP: u8 = 5;
    pub(super) const TAG_RECEIVED: u8 = 6;
    pub(super) const TAG_REFUSED: u8 = 7;
    pub(super) const TERM: u8 = 8;
    pub(super) const REWIND: u8 = 9;
}

impl Message {
    /// Appends the length and the message.
    pub fn put(&self, to: &mut Vec<u8>) {
        let start = to.len();
        to.extend([0; HEAD]);
        self.put_body(to);
        // Records are limited by the log, so the length fits.
        let length = u32::try_from(to.len() - start - HEAD).unwrap_or(u32::MAX);
        if let Some(head) = to.get_mut(start..start + HEAD) {
            head.copy_from_slice(&length.to_le_bytes());
        }
    }

    fn put_body(&self, to: &mut Vec<u8>) {
        match self {
            Self::Welcome { version } => {
                to.push(tag::WELCOME);
                to.extend(version.to_le_bytes());
            }
            Self::Hello { version, held } => {
                to.push(tag::HELLO);
                to.extend(version.to_le_bytes());
                to.push(u8::from(held.is_some()));
                if let Some(held) = held {
                    put_beginning(to, &held.beginning);
                    for number in [held.number, held.at_ns, held.epoch, held.term] {
                        to.extend(number.to_le_bytes());
                    }
                }
            }
            Self::Term(term) => {
                to.push(tag::TERM);
                to.extend(term.to_le_bytes());
            }
            Self::Rewind(fork) => {
                to.push(tag::REWIND);
                for number in [fork.term, fork.epoch, fork.number, fork.at_ns] {
                    to.extend(number.to_le_bytes());
                }
            }
            Self::Begin(beginning) => {
                to.push(tag::BEGIN);
                put_beginning(to, beginning);
            }
            Self::Record(record) => {
                to.push(tag::RECORD);
                codec::encode(record, to);
            }
            Self::Tip(Tip { number, epoch }) => {
                to.push(tag::TIP);
                to.extend(number.to_le_bytes());
                to.extend(epoch.to_le_bytes());
            }
            Self::Received { number, epoch } => {
                to.push(tag::TAG_RECEIVED);
                to.extend(number.to_le_bytes());
                to.extend(epoch.to_le_bytes());
            }
            Self::Refused { reason, text } => {
                to.push(tag::TAG_REFUSED);
                to.push(reason.byte());
                to.extend(text.bytes().take(MAX_TEXT));
            }
        }
    }

    /// # Errors
    /// [`InvalidMessage`] unless the bytes are exactly one message.
    pub fn get(bytes: &[u8]) -> Result<Self, InvalidMessage> {
        let mut from = Cursor(bytes);
        let message = match from.u8()? {
            tag::WELCOME => Self::Welcome {
                version: from.u16()?,
            },
            tag::HELLO => Self::Hello {
                version: from.u16()?,
                held: from.held()?,
            },
            tag::TERM => Self::Term(from.u64()?),
            tag::REWIND => Self::Rewind(Fork {
                term: from.u64()?,
                epoch: from.u64()?,
                number: from.u64()?,
                at_ns: from.u64()?,
            }),
            tag::BEGIN => Self::Begin(from.beginning()?),
            tag::RECORD => Self::Record(codec::decode(from.rest())?),
            tag::TIP => Self::Tip(Tip {
                number: from.u64()?,
                epoch: from.u64()?,
            }),
            tag::TAG_RECEIVED => Self::Received {
                number: from.u64()?,
                epoch: from.u64()?,
            },
            tag::TAG_REFUSED => Self::Refused {
                reason: Reason::of(from.u8()?)?,
                text: from.text()?,
            },
            other => return Err(InvalidMessage::Unknown(other)),
        };
        if from.0.is_empty() {
            Ok(message)
        } else {
            Err(InvalidMessage::Rest)
        }
    }
}

impl Reason {
    const ALL: [Self; 7] = [
        Self::Version,
        Self::Compacted,
        Self::OtherLog,
        Self::Diverged,
        Self::Full,
        Self::Source,
        Self::Term,
    ];

    /// The text for the user.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Version => "the server speaks another version of the protocol",
            Self::Compacted => {
                "what this copy lacks was compacted away at the source; `--fresh` replaces the copy"
            }
            Self::OtherLog => "this is a copy of another log; `--fresh` replaces it",
            Self::Diverged => {
                "this copy has what the source lost, with its power most likely, or other records; `--fresh` replaces it"
            }
            Self::Full => "the server has as many replicas as it takes",
            Self::Source => "the server cannot read its log",
            Self::Term => {
                "the server's source was replaced by a promotion that this copy has; receive from the promoted source"
            }
        }
    }

    fn byte(self) -> u8 {
        match self {
            Self::Version => 1,
            Self::Compacted => 2,
            Self::OtherLog => 3,
            Self::Diverged => 4,
            Self::Full => 5,
            Self::Source => 6,
            Self::Term => 7,
        }
    }

    fn of(byte: u8) -> Result<Self, InvalidMessage> {
        let found = Self::ALL.into_iter().find(|reason| reason.byte() == byte);
        found.ok_or(InvalidMessage::Unknown(byte))
    }
}

/// Received bytes, and the messages in them.
#[derive(Debug)]
pub struct Inbox {
    bytes: Vec<u8>,
    used: usize,
    largest: usize,
}

impl Inbox {
    /// Creates an inbox for messages of at most this many bytes.
    pub fn new(largest: usize) -> Self {
        Self {
            bytes: Vec::new(),
            used: 0,
            largest,
        }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.used);
        self.used = 0;
        self.bytes.extend(bytes);
    }

    /// The next complete message.
    ///
    /// # Errors
    /// [`InvalidMessage`]. Nothing after it can be decoded.
    pub fn take(&mut self) -> Result<Option<Message>, InvalidMessage> {
        let rest = self.bytes.get(self.used..).unwrap_or_default();
        let Some((head, rest)) = rest.split_first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*head) as usize;
        if length > self.largest {
            return Err(InvalidMessage::Long(length));
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let message = Message::get(body)?;
        self.used += HEAD + length;
        if self.used == self.bytes.len() {
            self.used = 0;
            self.bytes.clear();
            // The memory of a large record is not kept for the small ones that follow.
            self.bytes.shrink_to(256 << 10);
        }
        Ok(Some(message))
    }
}

fn put_beginning(to: &mut Vec<u8>, beginning: &Beginning) {
    to.extend(beginning.id);
    to.extend(beginning.first.to_le_bytes());
    to.extend(beginning.folded.to_le_bytes());
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], InvalidMessage> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(InvalidMessage::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn u8(&mut self) -> Result<u8, InvalidMessage> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    fn u16(&mut self) -> Result<u16, InvalidMessage> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, InvalidMessage> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn beginning(&mut self) -> Result<Beginning, InvalidMessage> {
        Ok(Beginning {
            id: self.array()?,
            first: self.u64()?,
            folded: self.u64()?,
        })
    }

    fn held(&mut self) -> Result<Option<CopyState>, InvalidMessage> {
        match self.u8()? {
            0 => Ok(None),
            1 => Ok(Some(CopyState {
                beginning: self.beginning()?,
                number: self.u64()?,
                at_ns: self.u64()?,
                epoch: self.u64()?,
                term: self.u64()?,
            })),
            other => Err(InvalidMessage::Unknown(other)),
        }
    }

    /// Only printable characters, because the text comes from another machine.
    fn text(&mut self) -> Result<String, InvalidMessage> {
        let bytes = self.rest();
        if bytes.len() > MAX_TEXT {
            return Err(InvalidMessage::Long(bytes.len()));
        }
        let text = String::from_utf8_lossy(bytes);
        Ok(text.chars().filter(|it| !it.is_control()).collect())
    }
}
