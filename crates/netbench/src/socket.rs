//! What both ends ask of their sockets.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::outcome::End;
use crate::spec::Spec;

/// A thread that waits for a datagram looks so often whether to stop.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// A socket that nobody waits for, before it is bound or connected: buffers are asked for before, as
/// TCP fits its window to them.
pub(crate) fn tcp(to: IpAddr, spec: &Spec) -> io::Result<Socket> {
    let socket = Socket::new(domain(to), Type::STREAM, Some(Protocol::TCP))?;
    tune(&socket, spec)?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket)
}

/// A port of the test's own.
pub(crate) fn listen(at: SocketAddr, spec: &Spec) -> io::Result<TcpListener> {
    let socket = tcp(at.ip(), spec)?;
    // A port that was asked for may still have connections of the test before.
    socket.set_reuse_address(at.port() != 0)?;
    socket.bind(&at.into())?;
    // Connections of tcp_crr come as fast as they can.
    socket.listen(1024)?;
    Ok(socket.into())
}

pub(crate) fn udp(at: SocketAddr, spec: &Spec) -> io::Result<UdpSocket> {
    let socket = Socket::new(domain(at.ip()), Type::DGRAM, Some(Protocol::UDP))?;
    tune(&socket, spec)?;
    socket.bind(&at.into())?;
    socket.set_read_timeout(Some(LOOK))?;
    Ok(socket.into())
}

fn domain(of: IpAddr) -> Domain {
    match of {
        IpAddr::V4(_) => Domain::IPV4,
        IpAddr::V6(_) => Domain::IPV6,
    }
}

fn tune(socket: &Socket, spec: &Spec) -> io::Result<()> {
    if let Some(bytes) = spec.socket_buffer {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        socket.set_send_buffer_size(bytes)?;
        socket.set_recv_buffer_size(bytes)?;
    }
    if let Some(us) = spec.busy_poll_us {
        socket.set_busy_poll(us).map_err(|cause| {
            let what = format!("busy polling, which needs CAP_NET_ADMIN: {cause}");
            io::Error::new(cause.kind(), what)
        })?;
    }
    Ok(())
}

/// What the kernel has given, as it counts, and does, if it is more than what is there.
pub(crate) fn buffers(socket: &SockRef<'_>, end: &mut End) {
    let bytes = |size: io::Result<usize>| size.map_or(0, |bytes| bytes as u64);
    end.send_buffer = end.send_buffer.max(bytes(socket.send_buffer_size()));
    end.receive_buffer = end.receive_buffer.max(bytes(socket.recv_buffer_size()));
    let polls = socket.busy_poll().unwrap_or_default();
    end.busy_poll_us = end.busy_poll_us.max(polls);
}

/// Of this process, user and system, in nanoseconds.
pub(crate) fn cpu_ns() -> u64 {
    let spent = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    spent.map_or(0, |spent| {
        let spent = Duration::from(spent);
        u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX)
    })
}

/// Whether a read or write has only run out of its time.
pub(crate) fn timed_out(error: &io::Error) -> bool {
    use io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

/// Bytes that nobody guesses.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    Ok(bytes)
}
