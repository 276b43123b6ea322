//! Frames of Initial packets (RFC 9000, 17.2.2 and 19).

use super::super::cursor::Cursor;

const PADDING: u8 = 0x00;
const PING: u8 = 0x01;
const ACK: u8 = 0x02;
const ACK_WITH_ECN: u8 = 0x03;
const CRYPTO: u8 = 0x06;
const CONNECTION_CLOSE: u8 = 0x1c;

/// The CRYPTO frames of a packet, each with its offset. They end before the first frame that has no
/// place in an Initial packet, or that is not whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct CryptoFrames<'a>(Cursor<'a>);

impl<'a> CryptoFrames<'a> {
    pub(super) fn new(plain: &'a [u8]) -> Self {
        Self(Cursor(plain))
    }

    fn varints(&mut self, count: usize) -> Option<()> {
        for _ in 0..count {
            self.0.varint()?;
        }
        Some(())
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.0.varint()?).ok()?;
        self.0.take(length)
    }

    fn acknowledgement(&mut self, counts: usize) -> Option<()> {
        self.varints(2)?;
        // Each range has at least two bytes, so what the packet lacks ends the loop.
        let ranges = self.0.varint()?;
        self.varints(1)?;
        for _ in 0..ranges {
            self.varints(2)?;
        }
        self.varints(counts)
    }
}

impl<'a> Iterator for CryptoFrames<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.0.u8()? {
                PADDING | PING => {}
                ACK => self.acknowledgement(0)?,
                ACK_WITH_ECN => self.acknowledgement(3)?,
                CRYPTO => {
                    let offset = self.0.varint()?;
                    return Some((offset, self.bytes()?));
                }
                CONNECTION_CLOSE => {
                    self.varints(2)?;
                    self.bytes()?;
                }
                _ => return None,
            }
        }
    }
}
