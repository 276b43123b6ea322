//! Listens for a program of this machine to say that it is ready, as a service manager does (sd_notify protocol).

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::names;

/// The environment variable with the socket's path.
pub(crate) const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// A socket at which one program says that it is ready.
#[derive(Debug)]
pub(crate) struct NotifySocket {
    socket: UnixDatagram,
    folder: TempDir,
}

impl NotifySocket {
    /// A socket for a program that notifies when it is ready; none for others.
    pub(crate) fn bind(notifies: bool) -> io::Result<Option<Self>> {
        if !notifies {
            return Ok(None);
        }
        let folder = names::folder()?;
        let socket = UnixDatagram::bind(folder.path().join("ready"))?;
        socket.set_nonblocking(true)?;
        Ok(Some(Self { socket, folder }))
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("ready")
    }

    /// Whether the program has said so since the last call.
    pub(crate) fn is_notified(&self) -> bool {
        self.socket.recv(&mut [0; 256]).is_ok()
    }
}
