//! The protocol of guest and host: frames of a kind, a number and at most [`MAX_FRAME_LEN`] bytes.

use std::io::{self, Read, Write};

/// The version of the protocol, with which [`Kind::Hello`] starts. A host refuses any other.
pub const VERSION: u32 = 3;
/// Maximum number of bytes that a frame carries.
pub const MAX_FRAME_LEN: usize = 64 << 10;
/// Kind, number, length.
const HEADER_LEN: usize = 9;

/// Defines the kinds with the byte each has.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $byte:literal,)*) => {
        /// The kind of a frame. The host chooses the numbers of programs and files.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$doc])* $kind = $byte,)*
        }

        impl Kind {
            fn of(byte: u8) -> Option<Self> {
                match byte {
                    $($byte => Some(Self::$kind),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// To the host, once: [`VERSION`] as four bytes, little endian, then the kernel's release.
    Hello = 1,
    /// To the guest, which answers the same.
    Ping = 2,
    /// To the guest: a program's variables as `NAME=value`, an empty word, then the program and its
    /// arguments, each ended by a zero byte.
    Start = 3,
    /// To the host: the program runs, and the four bytes of its process id in the guest.
    Started = 4,
    /// To the host: why a program was not started, or a file not written.
    Failed = 5,
    /// To the guest: a program's standard input, or a part of a file; empty at its end.
    Input = 6,
    /// To the host: a program's standard output; empty at its end.
    Output = 7,
    /// To the host: a program's standard error; empty at its end.
    Errors = 8,
    /// To the guest, for the program's process group: the signal's number as four bytes.
    Signal = 9,
    /// To the host: the program's status as `wait` gives it, four bytes.
    Ended = 10,
    /// To the guest: a file to write, by the four bytes of its mode and its path; its parts follow.
    Put = 11,
    /// To the host: the whole file is written.
    Done = 12,
    /// A datagram of the guest's routing netlink, to it or from it.
    Netlink = 13,
    /// To the guest: the path of a file to read. Its parts come as output, then that it is done.
    Get = 14,
    /// To the guest: everything that runs there is to be killed, and these files and folders, each ended
    /// by a zero byte, removed.
    Clear = 15,
    /// To the host: the program says that it is ready.
    Ready = 16,
    /// To the guest: the abstract socket at which the program that is started next by this number will say
    /// so, as a service does to its manager. Answered as a file is.
    Listen = 17,
}

/// A message of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: Kind,
    /// The number of the program or file, or 0.
    pub number: u32,
    pub bytes: Vec<u8>,
}

impl Frame {
    pub fn new(kind: Kind, number: u32, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            kind,
            number,
            bytes: bytes.into(),
        }
    }

    /// The next frame; none at the end of the stream.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] for bytes that are not a frame, and any error of `from`.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut head = [0; HEADER_LEN];
        match from.read_exact(&mut head[..1]) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        from.read_exact(&mut head[1..])?;
        let number = |at: usize| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&head[at..at + 4]);
            u32::from_le_bytes(bytes)
        };
        let Some(kind) = Kind::of(head[0]) else {
            return Err(invalid(format!("no kind of frame is {}", head[0])));
        };
        let length = number(5) as usize;
        if length > MAX_FRAME_LEN {
            return Err(invalid(format!("a frame of {length} bytes")));
        }
        let mut bytes = vec![0; length];
        from.read_exact(&mut bytes)?;
        Ok(Some(Self {
            kind,
            number: number(1),
            bytes,
        }))
    }

    /// Writes it in one piece.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] when it carries too much, and whatever `to` has to say.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        if self.bytes.len() > MAX_FRAME_LEN {
            let what = format!("{} bytes are too many for a frame", self.bytes.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        let mut whole = Vec::with_capacity(HEADER_LEN + self.bytes.len());
        whole.push(self.kind as u8);
        whole.extend(self.number.to_le_bytes());
        whole.extend(length.to_le_bytes());
        whole.extend(&self.bytes);
        to.write_all(&whole)?;
        to.flush()
    }

    /// The first four bytes as a number, and the rest.
    pub fn value(&self) -> Option<(i32, &[u8])> {
        let (value, rest) = self.bytes.split_first_chunk()?;
        Some((i32::from_le_bytes(*value), rest))
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_round_trip() {
        let frames = [
            Frame::new(Kind::Start, 7, *b"ip\0link\0"),
            Frame::new(Kind::Input, 7, Vec::new()),
            Frame::new(Kind::Output, u32::MAX, vec![9; MAX_FRAME_LEN]),
        ];
        let mut stream = Vec::new();
        for frame in &frames {
            frame.write(&mut stream).unwrap();
        }
        let mut stream = stream.as_slice();
        for frame in &frames {
            assert_eq!(Frame::read(&mut stream).unwrap().as_ref(), Some(frame));
        }
        assert_eq!(Frame::read(&mut stream).unwrap(), None);
    }

    #[test]
    fn malformed_frame_is_refused() {
        let too_much = Frame::new(Kind::Output, 1, vec![0; MAX_FRAME_LEN + 1]);
        assert!(too_much.write(&mut Vec::new()).is_err());
        let mut large = vec![Kind::Output as u8, 0, 0, 0, 0];
        large.extend(u32::MAX.to_le_bytes());
        for (stream, kind) in [
            (large.as_slice(), io::ErrorKind::InvalidData),
            (&[200, 0, 0, 0, 0, 0, 0, 0, 0], io::ErrorKind::InvalidData),
            (&[1, 0, 0], io::ErrorKind::UnexpectedEof),
            (
                &[1, 0, 0, 0, 0, 2, 0, 0, 0, 5],
                io::ErrorKind::UnexpectedEof,
            ),
        ] {
            let error = Frame::read(&mut &*stream).unwrap_err();
            assert_eq!(error.kind(), kind, "{stream:?}");
        }
    }
}
