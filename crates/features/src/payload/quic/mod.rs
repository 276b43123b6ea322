//! The ClientHello in a QUIC connection's first packets (RFC 9000, RFC 9001, RFC 9369), whatever the port.
//!
//! Initial packets are encrypted with keys that follow from the client's first Destination Connection
//! ID, so everybody can read them. Which versions are read, `version` says; a packet's extent is
//! `header`'s, its protection `initial`'s, its frames `frame`'s; `crypto` puts the message together.
//!
//! The cost falls on QUIC alone: a direction whose first datagram has no long header of a known
//! version is over after six bytes. Of the others, a direction derives keys and decrypts only until
//! the ClientHello is complete, in at most [`MAX_DATAGRAMS`] datagrams, [`MAX_PACKETS`] Initial
//! packets, since a datagram can have hundreds, and [`MAX_FAILURES`] decryptions that fail, as those
//! of the server's packets do. That is half a millisecond for a direction that is made to cost most.

mod crypto;
mod frame;
mod header;
mod initial;
mod version;

use super::tls::{ClientHello, Reason};
use crypto::CryptoStream;
use frame::CryptoFrames;
use header::{Kind, LongHeader};
use initial::Keys;
use version::Protection;

/// Datagrams of a direction that are looked at. A ClientHello of 16 KiB takes 14 of them.
pub const MAX_DATAGRAMS: u8 = 64;
/// Initial packets of a direction that are decrypted.
pub const MAX_PACKETS: u8 = 64;
/// Decryptions that may fail in a direction.
pub const MAX_FAILURES: u8 = 16;

/// The findings and the search state of a flow's QUIC connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    version: u32,
    hello: Option<ClientHello>,
    searches: [Search; 2],
    has_gap: bool,
}

/// The search in one direction. Decryption shows which direction is the client's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Search {
    #[default]
    Ahead,
    Gathering(Box<Handshake>),
    Over,
}

impl Connection {
    /// A connection whose first datagram that was seen is this one, if it is QUIC's. It is still to
    /// be fed.
    pub fn new(datagram: &[u8]) -> Option<Self> {
        let version = version::of(datagram)?;
        Some(Self {
            version,
            hello: None,
            searches: [Search::Ahead, Search::Ahead],
            has_gap: false,
        })
    }

    /// The version of the packet that completed the ClientHello; without one, that of the last long
    /// header so far.
    pub fn version(&self) -> u32 {
        self.version
    }

    pub fn hello(&self) -> Option<&ClientHello> {
        self.hello.as_ref()
    }

    /// Whether the ClientHello may be missing because a part of it is missing, late or cut off.
    pub fn has_gap(&self) -> bool {
        self.has_gap
    }

    /// Whether a direction's datagrams have nothing more to tell.
    pub fn is_over(&self, direction: usize) -> bool {
        self.searches[direction] == Search::Over
    }

    /// Bytes of memory that the searches own.
    pub fn held(&self) -> usize {
        let held = |search: &Search| match search {
            Search::Gathering(handshake) => size_of::<Handshake>() + handshake.stream.capacity(),
            Search::Ahead | Search::Over => 0,
        };
        self.searches.iter().map(held).sum()
    }

    /// The next datagram of a direction, 0 or 1.
    pub fn feed(&mut self, direction: usize, datagram: &[u8]) {
        if self.is_over(direction) {
            return;
        }
        let version = version::of(datagram);
        // The side that answers a client's packets is the server.
        let is_server = self.searches[1 - direction].is_client();
        if is_server || (self.searches[direction] == Search::Ahead && version.is_none()) {
            self.end(direction);
            return;
        }
        let search = &mut self.searches[direction];
        if *search == Search::Ahead {
            *search = Search::Gathering(Box::default());
        }
        let Search::Gathering(handshake) = search else {
            return;
        };
        self.version = version.unwrap_or(self.version);
        match handshake.datagram(datagram) {
            Ok(None) => {}
            Ok(Some(hello)) => {
                self.hello = Some(hello);
                self.searches = [Search::Over, Search::Over];
            }
            Err(_) => self.end(direction),
        }
    }

    /// Ends the search in a direction.
    pub fn end(&mut self, direction: usize) {
        if let Search::Gathering(handshake) = &self.searches[direction] {
            self.has_gap |= handshake.is_incomplete();
        }
        self.searches[direction] = Search::Over;
    }
}

impl Search {
    fn is_client(&self) -> bool {
        matches!(self, Self::Gathering(handshake) if handshake.origin.is_some())
    }
}

/// A client's Initial packets on their way to a ClientHello.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Handshake {
    datagrams: u8,
    packets: u8,
    failures: u8,
    /// The capture truncated a packet.
    is_cut: bool,
    /// What the keys of the last packet that was decrypted follow from.
    origin: Option<Origin>,
    stream: CryptoStream,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin {
    protection: &'static Protection,
    connection_id: Vec<u8>,
}

impl Handshake {
    fn datagram(&mut self, datagram: &[u8]) -> Result<Option<ClientHello>, Reason> {
        self.datagrams += 1;
        let mut rest = datagram;
        let mut connection_id = None;
        while let Some(packet) = LongHeader::read(rest) {
            // Packets that share a datagram share its destination (RFC 9000, 12.2).
            if *connection_id.get_or_insert(packet.destination) != packet.destination {
                break;
            }
            rest = packet.rest;
            if packet.kind == Kind::Initial
                && let Some(hello) = self.initial(&packet)?
            {
                return Ok(Some(hello));
            }
        }
        if self.datagrams >= MAX_DATAGRAMS || self.failures >= MAX_FAILURES {
            return Err(Reason::Gap);
        }
        Ok(None)
    }

    fn initial(&mut self, packet: &LongHeader<'_>) -> Result<Option<ClientHello>, Reason> {
        let Some(bytes) = packet.bytes else {
            self.is_cut = true;
            return Ok(None);
        };
        if self.packets >= MAX_PACKETS {
            return Err(Reason::Gap);
        }
        self.packets += 1;
        let mut buffer = Vec::with_capacity(bytes.len());
        for origin in self.origins(packet) {
            if self.failures >= MAX_FAILURES {
                break;
            }
            buffer.clear();
            buffer.extend_from_slice(bytes);
            let keys = Keys::of_client(origin.protection, &origin.connection_id);
            let plain = keys.and_then(|keys| keys.open(&mut buffer, packet.number_at));
            if let Some(plain) = plain {
                self.follow(origin);
                return self.frames(plain);
            }
            self.failures += 1;
        }
        Ok(None)
    }

    /// What a packet's keys may follow from. They stay those of the client's first packet when it
    /// takes up the connection ID that the server has chosen, also in a compatible version (RFC 9369,
    /// 4.1). They are new after a Retry and after a version negotiation.
    fn origins(&self, packet: &LongHeader<'_>) -> Vec<Origin> {
        let held = self.origin.as_ref().map(|held| &held.connection_id[..]);
        let own = Some(packet.destination).filter(|own| Some(*own) != held);
        let both = held.into_iter().chain(own);
        let origin = |connection_id: &[u8], protection| Origin {
            protection,
            connection_id: connection_id.to_vec(),
        };
        both.flat_map(|id| {
            let protections = version::protections(packet.version).iter();
            protections.map(move |protection| origin(id, protection))
        })
        .collect()
    }

    /// A packet of this origin was decrypted: another connection ID starts the message again.
    fn follow(&mut self, origin: Origin) {
        let held = self.origin.as_ref();
        if held.is_none_or(|held| held.connection_id != origin.connection_id) {
            self.stream = CryptoStream::default();
        }
        self.origin = Some(origin);
    }

    fn frames(&mut self, plain: &[u8]) -> Result<Option<ClientHello>, Reason> {
        for (offset, data) in CryptoFrames::new(plain) {
            self.stream.insert(offset, data)?;
        }
        self.stream.hello()
    }

    fn is_incomplete(&self) -> bool {
        self.is_cut || self.stream.capacity() > 0
    }
}
