//! The server's part of transactions.

use std::io::{self, Read, Write};
use std::net::UdpSocket;
use std::time::Instant;

use super::stream::{is_loss, send};
use super::{Totals, payload};
use crate::message::{COOKIE, Cookie};
use crate::pace::Bucket;
use crate::socket::timed_out;
use crate::spec::Spec;

/// Answers each request, until the other end has closed.
pub(crate) fn tcp(
    stream: &mut (impl Read + Write),
    spec: &Spec,
    totals: &Totals,
) -> io::Result<()> {
    let mut room = payload::room(spec.request);
    loop {
        match once(stream, spec, &mut room, totals) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            answered => answered?,
        }
    }
}

/// One request; who reads the answer of the last one sees this end close first.
pub(crate) fn once(
    stream: &mut (impl Read + Write),
    spec: &Spec,
    room: &mut [u8],
    totals: &Totals,
) -> io::Result<()> {
    payload::read(stream, spec.request, room, totals)?;
    stream.write_all(payload::zeros(spec.response))?;
    totals.count(spec.request as usize);
    Ok(())
}

/// Answers each datagram, until it is stopped. The first byte says which request it is an answer to. What is more than
/// may be sent is not answered, and lost to who has asked: put off, it would look like a slow path.
pub(crate) fn udp(
    socket: &UdpSocket,
    spec: &Spec,
    cookie: &Cookie,
    mut bucket: Option<Bucket>,
    totals: &Totals,
) -> io::Result<()> {
    let mut room = vec![0; 1 << 16];
    let mut response = vec![0; spec.response as usize];
    while !totals.is_stopped() {
        let received = match socket.recv(&mut room) {
            // It was cut.
            Ok(0) => continue,
            Ok(received) => received,
            Err(error) if timed_out(&error) || is_loss(&error) => continue,
            Err(error) => return Err(error),
        };
        let again = received == COOKIE && room.starts_with(cookie);
        if again {
            send(socket, cookie)?;
            continue;
        }
        if let (Some(to), Some(from)) = (response.first_mut(), room.first()) {
            *to = *from;
        }
        if let Some(bucket) = &mut bucket
            && !bucket.take(response.len(), Instant::now())
        {
            continue;
        }
        send(socket, &response)?;
        totals.count(received);
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::spec::{LARGEST_MESSAGE, Test};

    const LARGE: usize = LARGEST_MESSAGE as usize;

    /// Has so many bytes to say, and remembers what it was asked for and told.
    struct Client {
        left: usize,
        reads: Vec<usize>,
        writes: Vec<usize>,
    }

    impl Client {
        fn new(says: usize) -> Self {
            Self {
                left: says,
                reads: Vec::new(),
                writes: Vec::new(),
            }
        }
    }

    impl Read for Client {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.reads.push(into.len());
            let read = into.len().min(self.left);
            self.left -= read;
            Ok(read)
        }
    }

    impl Write for Client {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.writes.push(bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn of(size: u32) -> Spec {
        Spec {
            request: size,
            response: size,
            ..Spec::new(Test::TcpRr, Duration::from_secs(1))
        }
    }

    #[test]
    fn a_large_request_is_read_in_pieces_and_answered_at_once() {
        let totals = Totals::default();
        let mut client = Client::new(2 * LARGE);
        tcp(&mut client, &of(LARGEST_MESSAGE), &totals).unwrap();
        assert!(client.reads.iter().all(|asked| *asked <= payload::READ));
        assert_eq!(client.writes, [LARGE; 2]);
        assert_eq!((totals.messages(), totals.bytes()), (2, 2 * LARGE as u64));
    }

    #[test]
    fn a_small_request_is_a_read_and_a_write() {
        let totals = Totals::default();
        for size in [1, 64 << 10] {
            let mut client = Client::new(size as usize);
            let mut room = payload::room(size);
            once(&mut client, &of(size), &mut room, &totals).unwrap();
            let whole = [size as usize];
            assert_eq!(
                (&client.reads[..], &client.writes[..]),
                (&whole[..], &whole[..])
            );
        }
    }
}
