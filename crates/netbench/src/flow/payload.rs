//! The payload of connections. Nobody looks at it: what is written are zeros that all flows share, and what is read
//! goes into a room that is no larger than a read takes.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::LazyLock;
use std::time::Duration;

use super::Totals;
use crate::spec::LARGEST_MESSAGE;

/// What a read takes at most, in bytes: more is no faster.
pub(super) const READ: usize = 256 << 10;
/// What a write has got rid of after so long, it tells.
pub(super) const WRITE: Duration = Duration::from_secs(1);

/// So many bytes, to be written at once: in pieces a large message would cost other calls than a program makes that
/// has one to send. Another end may ask for the largest there are in hundreds of flows, so they share one that is never
/// written to, and for which the kernel needs hardly more than a page.
pub(super) fn zeros(bytes: u32) -> &'static [u8] {
    static ZEROS: LazyLock<Vec<u8>> = LazyLock::new(|| vec![0; LARGEST_MESSAGE as usize]);
    ZEROS.get(..bytes as usize).unwrap_or(&ZEROS)
}

/// To read messages of so many bytes into, all at once or in pieces.
pub(crate) fn room(bytes: u32) -> Vec<u8> {
    vec![0; READ.min(bytes as usize)]
}

/// Reads a message of so many bytes. Each piece that has not completed it is counted as one.
pub(super) fn read(
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

/// Writes a message. Where the time-out of [`WRITE`] ends a write before all of it has gone, that is counted as a piece,
/// and the rest follows for as long as anybody waits for it.
pub(super) fn write(stream: &mut impl Write, message: &[u8], totals: &Totals) -> io::Result<()> {
    let mut left = message;
    while !left.is_empty() {
        match stream.write(left) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => left = left.get(written..).unwrap_or_default(),
            Err(error) => match error.kind() {
                // A connection that is dead has timed out otherwise.
                ErrorKind::WouldBlock | ErrorKind::Interrupted if !totals.has_given_up() => {
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
    fn pieces_of_a_message_are_counted_before_it_is_there() {
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
    fn a_write_that_nobody_waits_for_ends() {
        let totals = Totals::default();
        totals.cut();
        let error = write(&mut Slow::new(30), zeros(100), &totals).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn flows_share_what_they_write_and_read_into_little() {
        assert_eq!(zeros(1).as_ptr(), zeros(LARGEST_MESSAGE).as_ptr());
        assert_eq!(zeros(LARGEST_MESSAGE).len(), LARGEST_MESSAGE as usize);
        assert_eq!([room(1).len(), room(LARGEST_MESSAGE).len()], [1, READ],);
    }
}
