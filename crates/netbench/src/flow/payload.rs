//! The payload of connections, which nobody evaluates. All flows write the same zeros, and each reads into a buffer no
//! larger than one read.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::LazyLock;
use std::time::Duration;

use super::Totals;
use crate::spec::Spec;
use crate::test::MAX_MESSAGE;

/// The largest read, in bytes: more is no faster.
pub(crate) const MAX_READ: usize = 256 << 10;
/// A write returns after this long with the part that it has written.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// A message of so many zeros, to be written at once: pieces would cost more calls than a program makes for a message.
/// Hundreds of flows may need the largest size. They share one buffer that is never written to, so the kernel needs
/// hardly more than a page for it.
pub(crate) fn zeros(bytes: u32) -> &'static [u8] {
    static ZEROS: LazyLock<Vec<u8>> = LazyLock::new(|| vec![0; MAX_MESSAGE as usize]);
    ZEROS.get(..bytes as usize).unwrap_or(&ZEROS)
}

/// A buffer for messages of so many bytes, which are read at once or in pieces.
pub(crate) fn room(bytes: u32) -> Vec<u8> {
    vec![0; MAX_READ.min(bytes as usize)]
}

/// Reads a message of so many bytes. Each read before the last is counted as a piece.
pub(crate) fn read(
    stream: &mut impl Read,
    bytes: u32,
    room: &mut [u8],
    totals: &Totals,
) -> io::Result<()> {
    let mut left = bytes as usize;
    while left > 0 {
        let (into, _) = room.split_at_mut(left.min(room.len()));
        match stream.read(into) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => left -= read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if left > 0 {
            totals.count_piece();
        }
    }
    Ok(())
}

/// Writes a message. A write that [`WRITE_TIMEOUT`] ends early is counted as a piece, and the rest follows until the test
/// is given up.
pub(crate) fn write(stream: &mut impl Write, message: &[u8], totals: &Totals) -> io::Result<()> {
    let mut left = message;
    while !left.is_empty() {
        match stream.write(left) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => left = left.get(written..).unwrap_or_default(),
            Err(error) => match error.kind() {
                // A connection that is dead has timed out otherwise.
                ErrorKind::WouldBlock | ErrorKind::Interrupted if !totals.is_aborted() => {
                    continue;
                }
                _ => return Err(error),
            },
        }
        if !left.is_empty() {
            totals.count_piece();
        }
    }
    Ok(())
}

/// Answers one request. A client that reads the answer to the last request sees this end close first.
pub(crate) fn respond(
    stream: &mut (impl Read + Write),
    spec: &Spec,
    room: &mut [u8],
    totals: &Totals,
) -> io::Result<()> {
    read(stream, spec.request, room, totals)?;
    stream.write_all(zeros(spec.response))?;
    totals.count(spec.request as usize);
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// Reads and writes so many bytes at once, and times out each other time.
    struct Slow {
        at_once: usize,
        late: bool,
        written: usize,
    }

    impl Slow {
        fn new(at_once: usize) -> Self {
            Self {
                at_once,
                late: false,
                written: 0,
            }
        }
    }

    impl Read for Slow {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            Ok(into.len().min(self.at_once))
        }
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.late = !self.late;
            if self.late {
                return Err(ErrorKind::WouldBlock.into());
            }
            let written = bytes.len().min(self.at_once);
            self.written += written;
            Ok(written)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn pieces_count_before_message_is_complete() {
        let totals = Totals::default();
        let mut stream = Slow::new(30);
        read(&mut stream, 100, &mut room(100), &totals).unwrap();
        assert_eq!(totals.activity(), 3);
        write(&mut stream, zeros(100), &totals).unwrap();
        assert_eq!((totals.activity(), stream.written), (6, 100));
        // What comes at once is no piece, and none is a message.
        read(&mut stream, 30, &mut room(30), &totals).unwrap();
        write(&mut stream, zeros(30), &totals).unwrap();
        assert_eq!((totals.activity(), totals.messages()), (6, 0));
        totals.count(100);
        assert_eq!(totals.activity(), 7);
    }

    #[test]
    fn aborted_write_ends() {
        let totals = Totals::default();
        totals.abort();
        let error = write(&mut Slow::new(30), zeros(100), &totals).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn flows_share_write_buffer_and_read_into_little() {
        assert_eq!(zeros(1).as_ptr(), zeros(MAX_MESSAGE).as_ptr());
        assert_eq!(zeros(MAX_MESSAGE).len(), MAX_MESSAGE as usize);
        assert_eq!([room(1).len(), room(MAX_MESSAGE).len()], [1, MAX_READ],);
    }
}
