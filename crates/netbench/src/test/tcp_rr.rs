//! `tcp_rr`: a request and a response, over and over, on one connection.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd as _, BorrowedFd};

use super::method::{Method, ServerPart};
use super::{Facts, Quantity, Rate, Sizes, Transport};
use crate::flow::requests::{self, Exchange};
use crate::flow::{ClientFlow, Clock, ConnectionFlow, Counter, payload};
use crate::spec::Spec;

/// The buffer of an open loop, in bytes: several answers may arrive at once.
const BUFFER: usize = 64 << 10;

pub(super) static FACTS: Facts = Facts {
    quantity: Quantity::Latency,
    transport: Transport::Connections,
    sizes: Sizes::Transaction,
    rate: Rate::Optional,
    single_flow: false,
    busy_poll: true,
};

pub(super) static METHOD: Method = Method::Flows {
    client: request,
    server: ServerPart::Connection(serve),
};

fn request(flow: &ClientFlow<'_>, clock: &mut Clock<'_>) -> io::Result<()> {
    let mut stream = flow.connect()?;
    let (spec, counter) = (flow.spec, flow.counter);
    clock.start(spec, flow.number);
    let request = payload::pattern(spec.request);
    if spec.rate.is_some() {
        let mut pipeline = Pipeline::new(&stream, request, spec.response, counter)?;
        return requests::run_open(&mut pipeline, clock, counter);
    }
    let mut room = payload::room(spec.response);
    stream.set_write_timeout(Some(payload::WRITE_TIMEOUT))?;
    while let Some(transaction) = clock.begin() {
        payload::write(&mut stream, request, counter)?;
        payload::read(&mut stream, spec.response, &mut room, counter)?;
        clock.complete(transaction, spec.response as usize);
    }
    Ok(())
}

/// Requests of which several are under way on one connection. Answers arrive in their order.
struct Pipeline<'a> {
    stream: &'a TcpStream,
    request: &'static [u8],
    /// The part of the last request that is still to be written, in bytes.
    left: usize,
    /// The size of an answer, and the bytes that have been read of the next one and of those behind it.
    answer: usize,
    arrived: usize,
    room: Vec<u8>,
    /// The number of the next answer.
    next: u64,
    counter: Counter<'a>,
}

impl<'a> Pipeline<'a> {
    fn new(
        stream: &'a TcpStream,
        request: &'static [u8],
        answer: u32,
        counter: Counter<'a>,
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            request,
            left: 0,
            answer: answer as usize,
            arrived: 0,
            room: vec![0; BUFFER],
            next: 0,
            counter,
        })
    }
}

impl Exchange for Pipeline<'_> {
    fn socket(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn send(&mut self, _number: u64) -> io::Result<bool> {
        self.left = self.request.len();
        Ok(true)
    }

    fn flush(&mut self) -> io::Result<bool> {
        while self.left > 0 {
            let begin = self.request.len() - self.left;
            match self
                .stream
                .write(self.request.get(begin..).unwrap_or_default())
            {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.left -= written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.left > 0 {
                self.counter.count_piece();
            }
        }
        Ok(false)
    }

    fn receive(&mut self) -> io::Result<Option<(u64, usize)>> {
        while self.arrived < self.answer {
            match self.stream.read(&mut self.room) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.arrived += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            if self.arrived < self.answer {
                self.counter.count_piece();
            }
        }
        self.arrived -= self.answer;
        self.next += 1;
        Ok(Some((self.next - 1, self.answer)))
    }

    fn is_lossy(&self) -> bool {
        false
    }
}

fn serve(flow: &mut ConnectionFlow<'_>) -> io::Result<()> {
    respond(&mut flow.stream, flow.spec, flow.counter)
}

/// Answers each request until the client closes the connection.
fn respond(stream: &mut (impl Read + Write), spec: &Spec, counter: Counter<'_>) -> io::Result<()> {
    let mut room = payload::room(spec.request);
    loop {
        match payload::respond(stream, spec, &mut room, counter) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            answered => answered?,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::flow::Totals;
    use crate::test::{MAX_MESSAGE, Test};

    const LARGE: usize = MAX_MESSAGE as usize;

    /// A client that sends `left` bytes, and records the sizes of reads and writes.
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
    fn large_request_is_read_in_pieces() {
        let totals = Totals::new(&of(1));
        let mut client = Client::new(2 * LARGE);
        respond(&mut client, &of(MAX_MESSAGE), totals.counter(0)).unwrap();
        assert!(client.reads.iter().all(|asked| *asked <= payload::MAX_READ));
        assert_eq!(client.writes, [LARGE; 2]);
        assert_eq!((totals.messages(), totals.bytes()), (2, 2 * LARGE as u64));
    }

    #[test]
    fn small_request_takes_one_read_and_write() {
        let totals = Totals::new(&of(1));
        for size in [1, 64 << 10] {
            let mut client = Client::new(size as usize);
            let mut room = payload::room(size);
            payload::respond(&mut client, &of(size), &mut room, totals.counter(0)).unwrap();
            let whole = [size as usize];
            assert_eq!(
                (&client.reads[..], &client.writes[..]),
                (&whole[..], &whole[..])
            );
        }
    }
}
