//! Connects to servers that receive rows.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(5);

/// Connects to `HOST:PORT`. Small messages are sent without delay.
pub(super) fn dial(to: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::other("has no address");
    for address in to.to_socket_addrs()? {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT);
        match stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream)) {
            // If the port has no listener, the kernel may choose it as our local port. TCP then connects the socket to
            // itself, and the server finds its port in use.
            Ok(stream) if stream.local_addr()? == stream.peer_addr()? => {
                last = io::ErrorKind::ConnectionRefused.into();
            }
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Appends the default port to `HOST[:PORT]` if it has none.
pub(super) fn with_port(server: &str, port: u16) -> String {
    let named = server.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']'))
    });
    if named {
        server.to_owned()
    } else {
        format!("{server}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_added_where_there_is_none() {
        assert_eq!(with_port("nats.example", 4222), "nats.example:4222");
        assert_eq!(with_port("127.0.0.1:99", 4222), "127.0.0.1:99");
        assert_eq!(with_port("[::1]", 4222), "[::1]:4222");
        assert_eq!(with_port("[::1]:99", 4222), "[::1]:99");
    }
}
