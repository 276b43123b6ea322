//! Where a program says that it is ready, as a service does to its manager.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::thread;

pub(crate) struct Notified {
    name: Vec<u8>,
    socket: UnixDatagram,
}

/// Whoever ends it hears nothing more.
pub(crate) struct Ending(Vec<u8>);

impl Notified {
    /// At a name of the network namespace, which is in the variable `NOTIFY_SOCKET` of who says so.
    pub(crate) fn bind(name: &[u8]) -> io::Result<Self> {
        let address = SocketAddr::from_abstract_name(name)?;
        let socket = UnixDatagram::bind_addr(&address)?;
        let name = name.to_vec();
        Ok(Self { name, socket })
    }

    /// Tells of each time, on a thread of its own, until telling fails or this is ended.
    pub(crate) fn pass_on(self, tell: impl Fn() -> io::Result<()> + Send + 'static) -> Ending {
        let ending = Ending(self.name);
        thread::spawn(move || {
            let mut said = [0; 256];
            while let Ok(length @ 1..) = self.socket.recv(&mut said) {
                if said[..length].starts_with(b"READY=1") && tell().is_err() {
                    break;
                }
            }
        });
        ending
    }
}

impl Ending {
    pub(crate) fn end(&self) -> io::Result<()> {
        say_to(&self.0, b"")
    }
}

pub(crate) fn say_to(name: &[u8], what: &[u8]) -> io::Result<()> {
    let address = SocketAddr::from_abstract_name(name)?;
    UnixDatagram::unbound()?
        .send_to_addr(what, &address)
        .map(drop)
}
