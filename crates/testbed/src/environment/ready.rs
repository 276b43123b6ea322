//! Hears from a program of this machine that it is ready, as a service manager does (sd_notify
//! protocol).

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::clean;

/// The variable that tells a program where to say so.
pub(crate) const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// Where one program says that it is ready.
#[derive(Debug)]
pub(super) struct Ready {
    socket: UnixDatagram,
    folder: TempDir,
}

impl Ready {
    /// For a program that tells, and none for others.
    pub(super) fn of(tells: bool) -> io::Result<Option<Self>> {
        if !tells {
            return Ok(None);
        }
        let folder = clean::folder()?;
        let socket = UnixDatagram::bind(folder.path().join("ready"))?;
        socket.set_nonblocking(true)?;
        Ok(Some(Self { socket, folder }))
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("ready")
    }

    /// Whether it has said so since this was asked last.
    pub(super) fn heard(&self) -> bool {
        self.socket.recv(&mut [0; 256]).is_ok()
    }
}
