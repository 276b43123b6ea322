//! Tells a service manager that the program serves, or is stopping (sd_notify protocol).

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends `READY=1` to `NOTIFY_SOCKET`; does nothing when there is no service manager.
pub fn notify() -> io::Result<()> {
    send("READY=1\n")
}

/// Sends `STOPPING=1`, as [`notify`].
pub fn stopping() -> io::Result<()> {
    send("STOPPING=1\n")
}

fn send(state: &str) -> io::Result<()> {
    match env::var_os("NOTIFY_SOCKET") {
        Some(name) => send_to(&name, state),
        None => Ok(()),
    }
}

fn send_to(name: &OsStr, state: &str) -> io::Result<()> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manager_is_notified_by_path_and_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("lowroad-ready-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&name).unwrap();
        let mut heard = [0; 32];
        for (manager, address) in [
            (UnixDatagram::bind(&path).unwrap(), path.into_os_string()),
            (
                UnixDatagram::bind_addr(&abstract_address).unwrap(),
                format!("@{name}").into(),
            ),
        ] {
            send_to(&address, "READY=1\n").unwrap();
            let length = manager.recv(&mut heard).unwrap();
            assert_eq!(&heard[..length], b"READY=1\n");
        }
    }
}
