//! A socket at which a program reports that it is ready, by the protocol of `sd_notify`.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::thread;

pub(crate) struct NotifySocket {
    name: Vec<u8>,
    socket: UnixDatagram,
}

/// Stops the forwarding of notifications.
pub(crate) struct StopHandle(Vec<u8>);

impl NotifySocket {
    /// Binds to an abstract name of the network namespace. The program finds it in the variable `NOTIFY_SOCKET`.
    pub(crate) fn bind(name: &[u8]) -> io::Result<Self> {
        let address = SocketAddr::from_abstract_name(name)?;
        let socket = UnixDatagram::bind_addr(&address)?;
        let name = name.to_vec();
        Ok(Self { name, socket })
    }

    /// Calls `tell` for each `READY=1`, in a new thread, until `tell` fails or the handle stops it.
    pub(crate) fn forward(self, tell: impl Fn() -> io::Result<()> + Send + 'static) -> StopHandle {
        let stop_handle = StopHandle(self.name);
        thread::spawn(move || {
            let mut said = [0; 256];
            while let Ok(length @ 1..) = self.socket.recv(&mut said) {
                if said[..length].starts_with(b"READY=1") && tell().is_err() {
                    break;
                }
            }
        });
        stop_handle
    }
}

impl StopHandle {
    pub(crate) fn stop(&self) -> io::Result<()> {
        send_to(&self.0, b"")
    }
}

pub(crate) fn send_to(name: &[u8], what: &[u8]) -> io::Result<()> {
    let address = SocketAddr::from_abstract_name(name)?;
    UnixDatagram::unbound()?
        .send_to_addr(what, &address)
        .map(drop)
}
