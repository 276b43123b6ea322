//! The payload of connections, which no end evaluates. All flows write the same random bytes, and each reads into a
//! buffer no larger than one read.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::LazyLock;
use std::time::Duration;

use splitmix::SplitMix64;

use super::Counter;
use crate::spec::Spec;
use crate::test::MAX_MESSAGE;

/// The largest read, in bytes: larger ones are not faster.
pub(crate) const MAX_READ: usize = 256 << 10;
/// The largest read of a test with more than [`SMALL_READ_FLOWS`]: a thousand buffers must not fill a small machine.
const SMALL_READ: usize = 64 << 10;
const SMALL_READ_FLOWS: usize = 64;
/// A write returns after this long with the part that it has written.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// The size of the pattern for most messages, in bytes.
const SMALL_PATTERN: usize = 256 << 10;

/// A message of this size, to be written at once: pieces would cost more calls than a program makes for a message.
/// Its bytes are random, so that a link that compresses has no advantage, and its pages are distinct, so that the
/// kernel reads as much memory as for a program's own data. All flows share it.
pub(crate) fn pattern(bytes: u32) -> &'static [u8] {
    static SMALL: LazyLock<Vec<u8>> = LazyLock::new(|| random(SMALL_PATTERN));
    static LARGE: LazyLock<Vec<u8>> = LazyLock::new(|| random(MAX_MESSAGE as usize));
    let bytes = bytes as usize;
    match SMALL.get(..bytes) {
        Some(message) => message,
        None => LARGE.get(..bytes).unwrap_or(&LARGE),
    }
}

fn random(bytes: usize) -> Vec<u8> {
    let mut source = SplitMix64::new(0);
    let words = (0..bytes.div_ceil(8)).map(|_| source.next_u64().to_le_bytes());
    let mut random: Vec<u8> = words.flatten().collect();
    random.truncate(bytes);
    random
}

/// A buffer for the bytes of a stream, in a test with this number of flows.
pub(crate) fn stream_room(flows: usize) -> Vec<u8> {
    match flows > SMALL_READ_FLOWS {
        true => vec![0; SMALL_READ],
        false => vec![0; MAX_READ],
    }
}

/// A buffer for messages of this size, which are read at once or in pieces.
pub(crate) fn room(bytes: u32) -> Vec<u8> {
    vec![0; MAX_READ.min(bytes as usize)]
}

/// Reads a message of this size. Each read before the last is counted as a piece.
pub(crate) fn read(
    stream: &mut impl Read,
    bytes: u32,
    room: &mut [u8],
    counter: Counter<'_>,
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
            counter.count_piece();
        }
    }
    Ok(())
}

/// Writes a message. A write that [`WRITE_TIMEOUT`] ends early is counted as a piece, and the rest follows until the test
/// is given up.
pub(crate) fn write(
    stream: &mut impl Write,
    message: &[u8],
    counter: Counter<'_>,
) -> io::Result<()> {
    let mut left = message;
    while !left.is_empty() {
        match stream.write(left) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => left = left.get(written..).unwrap_or_default(),
            Err(error) => match error.kind() {
                // A connection that is dead has timed out otherwise.
                ErrorKind::WouldBlock | ErrorKind::Interrupted if !counter.is_aborted() => {
                    continue;
                }
                _ => return Err(error),
            },
        }
        if !left.is_empty() {
            counter.count_piece();
        }
    }
    Ok(())
}

/// Answers one request. A client that reads the answer to the last request sees this end close first.
pub(crate) fn respond(
    stream: &mut (impl Read + Write),
    spec: &Spec,
    room: &mut [u8],
    counter: Counter<'_>,
) -> io::Result<()> {
    read(stream, spec.request, room, counter)?;
    stream.write_all(pattern(spec.response))?;
    counter.count(spec.request as usize);
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::flow::Totals;
    use crate::test::Test;

    fn totals() -> Totals {
        Totals::new(&Spec::new(Test::TcpRr, Duration::from_secs(1)))
    }

    /// Reads and writes `at_once` bytes at a time, and times out each other time.
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
        let totals = totals();
        let counter = totals.counter(0);
        let mut stream = Slow::new(30);
        read(&mut stream, 100, &mut room(100), counter).unwrap();
        assert_eq!(totals.activity(), 3);
        write(&mut stream, pattern(100), counter).unwrap();
        assert_eq!((totals.activity(), stream.written), (6, 100));
        // A message that comes at once has one part, which does not count as a piece.
        read(&mut stream, 30, &mut room(30), counter).unwrap();
        write(&mut stream, pattern(30), counter).unwrap();
        assert_eq!((totals.activity(), totals.messages()), (6, 0));
        counter.count(100);
        assert_eq!(totals.activity(), 7);
    }

    #[test]
    fn aborted_write_ends() {
        let totals = totals();
        totals.abort();
        let error = write(&mut Slow::new(30), pattern(100), totals.counter(0)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn flows_share_write_buffer_and_read_into_little() {
        assert_eq!(pattern(1).as_ptr(), pattern(1000).as_ptr());
        for size in [1, 300 << 10, MAX_MESSAGE] {
            assert_eq!(pattern(size).len(), size as usize);
        }
        let first = pattern(64)
            .chunks(8)
            .collect::<std::collections::BTreeSet<_>>();
        assert_eq!(first.len(), 8, "no byte repeats for long");
        assert!(stream_room(1024).len() < stream_room(1).len());
        assert_eq!([room(1).len(), room(MAX_MESSAGE).len()], [1, MAX_READ],);
    }
}
