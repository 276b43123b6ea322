//! Sockets as both ends open them.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::outcome::End;
use crate::spec::Spec;

/// The interval at which a thread that waits for a datagram checks whether to stop.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A TCP socket that is not bound or connected yet. Buffer sizes are set before, because TCP chooses its window by them.
pub(crate) fn tcp(to: IpAddr, spec: &Spec) -> io::Result<Socket> {
    let socket = Socket::new(domain(to), Type::STREAM, Some(Protocol::TCP))?;
    tune(&socket, spec)?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket)
}

/// A listener for the connections of one test.
pub(crate) fn listen(at: SocketAddr, spec: &Spec) -> io::Result<TcpListener> {
    let socket = tcp(at.ip(), spec)?;
    // A given port may still have connections of the previous test.
    socket.set_reuse_address(at.port() != 0)?;
    socket.bind(&at.into())?;
    // The connections of tcp_crr arrive in bursts.
    socket.listen(1024)?;
    Ok(socket.into())
}

pub(crate) fn udp(at: SocketAddr, spec: &Spec) -> io::Result<UdpSocket> {
    let socket = Socket::new(domain(at.ip()), Type::DGRAM, Some(Protocol::UDP))?;
    tune(&socket, spec)?;
    socket.bind(&at.into())?;
    socket.set_read_timeout(Some(POLL_INTERVAL))?;
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

/// Raises the buffer sizes and the polling time of `end` to those that the kernel reports of the socket.
pub(crate) fn record_buffers(socket: &SockRef<'_>, end: &mut End) {
    let bytes = |size: io::Result<usize>| size.map_or(0, |bytes| bytes as u64);
    end.send_buffer = end.send_buffer.max(bytes(socket.send_buffer_size()));
    end.receive_buffer = end.receive_buffer.max(bytes(socket.recv_buffer_size()));
    let polls = socket.busy_poll().unwrap_or_default();
    end.busy_poll_us = end.busy_poll_us.max(polls);
}

/// CPU time of this process, user and system, in nanoseconds.
pub(crate) fn cpu_ns() -> u64 {
    let spent = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    spent.map_or(0, |spent| {
        let spent = Duration::from(spent);
        u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX)
    })
}

/// Whether a read or write has only timed out.
pub(crate) fn timed_out(error: &io::Error) -> bool {
    use io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

/// Bytes that cannot be guessed.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    Ok(bytes)
}
