//! How tests are measured: the functions of both ends.

use std::io;
use std::net::SocketAddr;

use crate::client::{Error, Session, Watch};
use crate::flow::{ClientFlow, Clock, ConnectionFlow, Counter, DatagramFlow, PolledStream};
use crate::outcome::Outcome;
use crate::socket::Source;
use crate::spec::Spec;

/// How a test is measured.
#[derive(Clone, Copy)]
pub(crate) enum Method {
    /// By flows between the two ends.
    Flows {
        client: RunClient,
        server: ServerPart,
    },
    /// By several measurements of another test.
    Search(fn(&mut Session, &Spec, Watch<'_>) -> Result<Outcome, Error>),
    /// By the client, at the first of these addresses that it reaches.
    Client(fn(&[SocketAddr], &Spec, &Source, Watch<'_>) -> Result<Outcome, Error>),
}

/// Runs one flow at the client until the test stops. The clock times transactions.
pub(crate) type RunClient = fn(&ClientFlow<'_>, &mut Clock<'_>) -> io::Result<()>;

/// The server's part, by the sockets that it needs.
#[derive(Clone, Copy)]
pub(crate) enum ServerPart {
    /// A connection for each flow.
    Connection(ServeConnection),
    /// A connection for each request.
    Request(ServeRequest),
    /// A socket for each flow.
    Datagrams(ServeDatagrams),
}

/// Serves a connection until the client closes it or the test stops.
pub(crate) type ServeConnection = fn(&mut ConnectionFlow<'_>) -> io::Result<()>;
/// Answers the request of a connection, which it reads into the buffer.
pub(crate) type ServeRequest =
    fn(&mut PolledStream<'_>, &Spec, &mut [u8], Counter<'_>) -> io::Result<()>;
/// Serves a flow of datagrams until the test stops.
pub(crate) type ServeDatagrams = fn(&DatagramFlow<'_>) -> io::Result<()>;
