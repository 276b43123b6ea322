//! The client's handshake stream from CRYPTO frames in any order, in bounded memory.

use super::super::tls::{self, ClientHello, MAX_HELLO, Reason, Transport};

/// Pieces of a message that do not touch each other. Browsers send some ten, out of order.
const MAX_PIECES: usize = 64;

/// The bytes of a ClientHello that have come, up to `MAX_HELLO`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CryptoStream {
    /// Up to the end of the last piece; what has not come is zero.
    bytes: Vec<u8>,
    /// Start and end of each piece, in order; no two touch.
    pieces: Vec<(usize, usize)>,
}

impl CryptoStream {
    /// Bytes of memory it owns.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity() + self.pieces.capacity() * size_of::<(usize, usize)>()
    }

    /// Takes the data of a frame.
    pub(super) fn insert(&mut self, offset: u64, data: &[u8]) -> Result<(), Reason> {
        if data.is_empty() {
            return Ok(());
        }
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(data.len());
        if end > MAX_HELLO {
            return Err(Reason::TooLong);
        }
        self.grow(end);
        self.bytes[start..end].copy_from_slice(data);
        self.add_piece(start, end);
        if self.pieces.len() > MAX_PIECES {
            return Err(Reason::Scattered);
        }
        Ok(())
    }

    /// The ClientHello, once it is whole.
    pub(super) fn hello(&self) -> Result<Option<ClientHello>, Reason> {
        let Some((0, end)) = self.pieces.first() else {
            return Ok(None);
        };
        let start = &self.bytes[..*end];
        if !tls::can_be_hello(start) {
            return Err(Reason::Other);
        }
        let message = tls::message_length(start)?.and_then(|length| start.get(..length));
        let read = |message| tls::read_hello(message, Transport::Quic);
        message.map(read).transpose()
    }

    /// Grows by doubling, as a vector does, but never beyond the longest message.
    fn grow(&mut self, end: usize) {
        if end > self.bytes.capacity() {
            let capacity = end.max(2 * self.bytes.capacity()).min(MAX_HELLO);
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        if end > self.bytes.len() {
            self.bytes.resize(end, 0);
        }
    }

    fn add_piece(&mut self, start: usize, end: usize) {
        // Those that it touches become one with it.
        let first = self.pieces.partition_point(|piece| piece.1 < start);
        let behind = self.pieces.partition_point(|piece| piece.0 <= end);
        let touched = &self.pieces[first..behind];
        let start = touched.first().map_or(start, |piece| piece.0.min(start));
        let end = touched.last().map_or(end, |piece| piece.1.max(end));
        self.pieces.splice(first..behind, [(start, end)]);
    }
}
