//! The control connection as either end has it, byte by byte.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// The first bytes from either end.
pub(crate) fn greeting() -> Vec<u8> {
    [b"lrnb\r\n", &netbench::VERSION.to_le_bytes()[..]].concat()
}

/// The next message.
pub(crate) fn receive(from: &mut TcpStream) -> Value {
    let mut length = [0; 4];
    from.read_exact(&mut length).unwrap();
    let mut body = vec![0; u32::from_le_bytes(length) as usize];
    from.read_exact(&mut body).unwrap();
    serde_json::from_slice(&body).unwrap()
}

pub(crate) fn send(mut to: &TcpStream, message: &Value) {
    let body = message.to_string();
    let length = u32::try_from(body.len()).unwrap().to_le_bytes();
    to.write_all(&[&length[..], body.as_bytes()].concat())
        .unwrap();
}

/// Sends a byte every few milliseconds until the other end closes. Returns how many were sent.
pub(crate) fn drip(mut to: TcpStream) -> usize {
    let mut sent = 0;
    while to.write_all(b" ").is_ok() {
        sent += 1;
        thread::sleep(Duration::from_millis(5));
    }
    sent
}
