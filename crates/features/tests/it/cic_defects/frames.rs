//! Frames between one client and its server, with their times.

use std::net::SocketAddr;

use features::dissect::tcp_flag::{ACK, SYN};
use packet::build;

pub(super) const MILLISECOND: i64 = 1_000_000;
pub(super) const SECOND: i64 = 1_000 * MILLISECOND;

/// A frame, and its time after the start in nanoseconds.
pub(super) type TimedFrame = (i64, Vec<u8>);

/// SYN, SYN with ACK, ACK; a packet each 10 ms.
pub(super) fn handshake() -> Vec<TimedFrame> {
    vec![
        (0, tcp(true, SYN, 0)),
        (10 * MILLISECOND, tcp(false, SYN | ACK, 0)),
        (20 * MILLISECOND, tcp(true, ACK, 0)),
    ]
}

/// Frames at equal distances.
pub(super) fn every(
    distance: i64,
    first: i64,
    count: i64,
    frame: impl Fn() -> Vec<u8>,
) -> Vec<TimedFrame> {
    (0..count)
        .map(|n| (first + n * distance, frame()))
        .collect()
}

/// A client and its server.
pub(super) fn ends(client: &str) -> (SocketAddr, SocketAddr) {
    let server = if client.contains(':') {
        "fd00::2"
    } else {
        "10.0.0.2"
    };
    let address = |text: &str, port| SocketAddr::new(text.parse().expect("an address"), port);
    (address(client, 1000), address(server, 2000))
}

fn directed(forward: bool) -> (SocketAddr, SocketAddr) {
    let (client, server) = ends("10.0.0.1");
    if forward {
        (client, server)
    } else {
        (server, client)
    }
}

pub(super) fn udp(forward: bool, payload: usize) -> Vec<u8> {
    let (source, destination) = directed(forward);
    build::udp(source, destination)
        .payload(vec![0; payload])
        .frame()
}

pub(super) fn tcp(forward: bool, flags: u8, payload: usize) -> Vec<u8> {
    let (source, destination) = directed(forward);
    build::tcp(source, destination, flags, 0)
        .payload(vec![0; payload])
        .frame()
}

/// Behind the Ethernet and the IPv4 header.
const TCP: usize = 34;

pub(super) fn sequence(mut frame: Vec<u8>, number: u32) -> Vec<u8> {
    frame[TCP + 4..TCP + 8].copy_from_slice(&number.to_be_bytes());
    frame
}

pub(super) fn window(mut frame: Vec<u8>, window: u16) -> Vec<u8> {
    frame[TCP + 14..TCP + 16].copy_from_slice(&window.to_be_bytes());
    frame
}
