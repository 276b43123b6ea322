//! Sockets as both ends open them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::str::FromStr;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::outcome::End;
use crate::socket_options::{never_fragment, path_mtu, set_mss, set_pacing};
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

/// A UDP socket that is not bound or connected yet.
pub(crate) fn udp(to: IpAddr, spec: &Spec) -> io::Result<UdpSocket> {
    let socket = Socket::new(domain(to), Type::DGRAM, Some(Protocol::UDP))?;
    tune(&socket, spec)?;
    socket.set_read_timeout(Some(POLL_INTERVAL))?;
    Ok(socket.into())
}

/// Sets DF on datagrams whose size follows the path MTU.
pub(crate) fn fit_path(socket: &UdpSocket, spec: &Spec, v6: bool) -> io::Result<()> {
    match spec.fit_message {
        true => never_fragment(socket, v6),
        false => Ok(()),
    }
}

/// The MTU of the path to an address, in bytes, as far as this machine knows it.
pub(crate) fn path_mtu_to(to: SocketAddr, source: &Source) -> io::Result<u32> {
    let socket = Socket::new(domain(to.ip()), Type::DGRAM, Some(Protocol::UDP))?;
    source.bind(&SockRef::from(&socket), to, 0)?;
    // Any port: nothing is sent.
    let mut at = to;
    at.set_port(to.port().max(1));
    socket.connect(&at.into())?;
    path_mtu(&socket, to.is_ipv6())
}

/// What a client's sockets are bound to, before they connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    pub address: Option<IpAddr>,
    pub device: Option<String>,
    /// The port of the first flow; each further flow has the next.
    pub port: Option<u16>,
}

/// The longest name of a device (`IFNAMSIZ` of linux/if.h, less the final zero).
const MAX_DEVICE_NAME: usize = 15;

impl FromStr for Source {
    type Err = String;

    /// `ADDRESS`, `DEVICE` or `ADDRESS%DEVICE`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\": write ADDRESS, DEVICE or ADDRESS%DEVICE");
        let (address, device) = match text.split_once('%') {
            Some((address, device)) => (Some(address), Some(device)),
            None if text.parse::<IpAddr>().is_ok() => (Some(text), None),
            None => (None, Some(text)),
        };
        let address = address.map(str::parse).transpose().map_err(|_| wrong())?;
        let legal = |name: &&str| {
            let len = name.len();
            (1..=MAX_DEVICE_NAME).contains(&len) && !name.contains(['/', ' ', ':', '\0'])
        };
        if device.is_some_and(|name| !legal(&name)) {
            return Err(wrong());
        }
        Ok(Self {
            address,
            device: device.map(str::to_owned),
            port: None,
        })
    }
}

impl Source {
    /// Binds a socket without ports to this.
    pub(crate) fn bind_address(&self, socket: &Socket, to: SocketAddr) -> io::Result<()> {
        let source = Self {
            port: None,
            ..self.clone()
        };
        source.bind(&SockRef::from(socket), to, 0)
    }

    /// Binds the socket of a flow to this.
    pub(crate) fn bind(&self, socket: &SockRef<'_>, to: SocketAddr, flow: u16) -> io::Result<()> {
        if let Some(device) = &self.device {
            socket.bind_device(Some(device.as_bytes()))?;
        }
        let port = self.port.map(|first| first.checked_add(flow));
        let port = match port {
            Some(None) => return Err(io::Error::other("the flows need ports above 65535")),
            Some(Some(port)) => port,
            None => 0,
        };
        if port == 0 && self.address.is_none() {
            return Ok(());
        }
        let any = match to {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let mut at = SocketAddr::new(self.address.unwrap_or(any), port);
        if let (SocketAddr::V6(at), SocketAddr::V6(to)) = (&mut at, to) {
            // A link-local address is one of the device that leads to the target.
            at.set_scope_id(to.scope_id());
        }
        socket.set_reuse_address(port != 0)?;
        let bound = socket.bind(&at.into());
        bound.map_err(|cause| io::Error::new(cause.kind(), format!("binding to {at}: {cause}")))
    }
}

fn domain(of: IpAddr) -> Domain {
    match of {
        IpAddr::V4(_) => Domain::IPV4,
        IpAddr::V6(_) => Domain::IPV6,
    }
}

/// Sets the options that the spec asks for.
pub(crate) fn tune(socket: &Socket, spec: &Spec) -> io::Result<()> {
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
    if let Some(dscp) = spec.dscp {
        // The two lowest bits are those of explicit congestion notification.
        let byte = u32::from(dscp) << 2;
        if socket.domain()? == Domain::IPV6 {
            socket.set_tclass_v6(byte)?;
            // Its peer may be an IPv4 address in IPv6 form. A raw socket of IPv6 has no such peer, and refuses.
            let _raw = socket.set_tos_v4(byte);
        } else {
            socket.set_tos_v4(byte)?;
        }
    }
    if let Some(name) = &spec.congestion {
        let set = socket.set_tcp_congestion(name.as_bytes());
        set.map_err(|cause| {
            let what = format!(
                "congestion control {name}: {cause}; see sysctl net.ipv4.tcp_available_congestion_control"
            );
            io::Error::new(cause.kind(), what)
        })?;
    }
    if let Some(mss) = spec.mss {
        set_mss(socket, mss)?;
    }
    if let Some(rate) = spec.pacing_bits_per_s {
        set_pacing(socket, rate)?;
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn source_is_address_or_device_or_both() {
        let source = |address: Option<&str>, device: Option<&str>| Source {
            address: address.map(|it| it.parse().unwrap()),
            device: device.map(str::to_owned),
            port: None,
        };
        for (text, expected) in [
            ("192.0.2.1", source(Some("192.0.2.1"), None)),
            ("eth0", source(None, Some("eth0"))),
            ("fe80::1%eth0", source(Some("fe80::1"), Some("eth0"))),
        ] {
            assert_eq!(text.parse(), Ok(expected));
        }
        for wrong in ["", "1.2.3.4%", "x%eth0", "a name", "longer-than-a-device"] {
            assert!(wrong.parse::<Source>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn options_are_set_on_sockets() {
        let spec = Spec {
            dscp: Some(46),
            mss: Some(500),
            pacing_bits_per_s: Some(8_000_000),
            congestion: Some("reno".to_owned()),
            ..Spec::new(crate::Test::TcpStream, Duration::from_secs(1))
        };
        let socket = tcp(Ipv4Addr::LOCALHOST.into(), &spec).unwrap();
        assert_eq!(socket.tos_v4().unwrap(), 46 << 2);
        assert!(socket.tcp_congestion().unwrap().starts_with(b"reno"));
        // A server that listens on [::] has IPv4 clients at such addresses.
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        let socket = tcp(mapped.into(), &spec).unwrap();
        assert_eq!(
            (socket.tos_v4().unwrap(), socket.tclass_v6().unwrap()),
            (46 << 2, 46 << 2)
        );
        let unknown = Spec {
            congestion: Some("none".to_owned()),
            ..spec
        };
        let why = tcp(Ipv6Addr::LOCALHOST.into(), &unknown).unwrap_err();
        assert!(why.to_string().contains("congestion control none"), "{why}");
    }
}
