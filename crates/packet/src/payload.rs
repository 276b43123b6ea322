//! The header at the start of every generated datagram's payload; twin of lowroad/payload.h.
//!
//! It is a valid RTP header (RFC 3550 section 5.1: version 2, payload type 0, our magic as the
//! timestamp, the run as SSRC), because media relays drop what is not RTP.

/// Bytes the header takes: the smallest payload that can carry it.
pub const LEN: usize = 40;
/// Marks a payload of ours; it stands where RTP has its timestamp.
pub const MAGIC: u32 = 0x314f_574c;

/// 0x80, 0x00, RTP sequence be16, magic u32, run u32, flow u32, sequence u64, intended_ns u64,
/// sent_ns u64; little-endian but for the RTP sequence, which is the low 16 bits of the sequence.
/// Times are CLOCK_MONOTONIC nanoseconds, which is also what `bpf_ktime_get_ns` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub run: u32,
    pub flow: u32,
    /// Counts from 0 in each flow.
    pub sequence: u64,
    /// When the schedule said to send.
    pub intended_ns: u64,
    /// When it was sent.
    pub sent_ns: u64,
}

impl Header {
    /// Writes the header into the first [`LEN`] bytes of `payload`.
    ///
    /// # Panics
    /// When `payload` is shorter than [`LEN`].
    pub fn write(&self, payload: &mut [u8]) {
        let sequence = self.sequence.to_be_bytes();
        payload[0..4].copy_from_slice(&[0x80, 0, sequence[6], sequence[7]]);
        payload[4..8].copy_from_slice(&MAGIC.to_le_bytes());
        payload[8..12].copy_from_slice(&self.run.to_le_bytes());
        payload[12..16].copy_from_slice(&self.flow.to_le_bytes());
        payload[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        payload[24..32].copy_from_slice(&self.intended_ns.to_le_bytes());
        payload[32..40].copy_from_slice(&self.sent_ns.to_le_bytes());
    }

    /// Reads a header, or `None` when the payload is too short or not ours.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let word = |at: usize| {
            Some(u32::from_le_bytes(
                payload.get(at..at + 4)?.try_into().ok()?,
            ))
        };
        let long = |at: usize| {
            Some(u64::from_le_bytes(
                payload.get(at..at + 8)?.try_into().ok()?,
            ))
        };
        (word(4)? == MAGIC).then_some(())?;
        Some(Self {
            run: word(8)?,
            flow: word(12)?,
            sequence: long(16)?,
            intended_ns: long(24)?,
            sent_ns: long(32)?,
        })
    }
}
