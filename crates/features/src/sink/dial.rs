//! Connections to those who take rows.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(5);

/// Connects to `HOST:PORT`, for messages that are sent at once.
pub(super) fn dial(to: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::other("has no address");
    for address in to.to_socket_addrs()? {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT);
        match stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream)) {
            // A local port that nobody serves may be the one that we were given: TCP then connects us
            // to ourselves, and whoever wants to serve it finds it taken.
            Ok(stream) if stream.local_addr()? == stream.peer_addr()? => {
                last = io::ErrorKind::ConnectionRefused.into();
            }
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
