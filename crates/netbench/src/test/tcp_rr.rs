//! `tcp_rr`: a request and a response, over and over, on one connection.

use std::io::{self, Read, Write};

use super::method::{Method, ServerPart};
use super::{Facts, Quantity, Rate, Sizes, Transport};
use crate::flow::{ClientFlow, Clock, Totals, payload};
use crate::spec::Spec;

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
    server: ServerPart::Connection(respond),
};

fn request(flow: &ClientFlow<'_>, clock: &mut Clock<'_>) -> io::Result<()> {
    let mut stream = flow.connect()?;
    let (spec, totals) = (flow.spec, flow.totals);
    clock.start(spec, flow.number);
    let request = payload::zeros(spec.request);
    let mut room = payload::room(spec.response);
    stream.set_write_timeout(Some(payload::WRITE_TIMEOUT))?;
    while let Some(transaction) = clock.begin() {
        payload::write(&mut stream, request, totals)?;
        payload::read(&mut stream, spec.response, &mut room, totals)?;
        clock.complete(transaction, spec.response as usize);
    }
    Ok(())
}

/// Answers each request until the client closes the connection.
fn respond(stream: &mut (impl Read + Write), spec: &Spec, totals: &Totals) -> io::Result<()> {
    let mut room = payload::room(spec.request);
    loop {
        match payload::respond(stream, spec, &mut room, totals) {
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
    use crate::test::{MAX_MESSAGE, Test};

    const LARGE: usize = MAX_MESSAGE as usize;

    /// A client that sends so many bytes, and records the sizes of reads and writes.
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
        let totals = Totals::default();
        let mut client = Client::new(2 * LARGE);
        respond(&mut client, &of(MAX_MESSAGE), &totals).unwrap();
        assert!(client.reads.iter().all(|asked| *asked <= payload::MAX_READ));
        assert_eq!(client.writes, [LARGE; 2]);
        assert_eq!((totals.messages(), totals.bytes()), (2, 2 * LARGE as u64));
    }

    #[test]
    fn small_request_takes_one_read_and_write() {
        let totals = Totals::default();
        for size in [1, 64 << 10] {
            let mut client = Client::new(size as usize);
            let mut room = payload::room(size);
            payload::respond(&mut client, &of(size), &mut room, &totals).unwrap();
            let whole = [size as usize];
            assert_eq!(
                (&client.reads[..], &client.writes[..]),
                (&whole[..], &whole[..])
            );
        }
    }
}
