//! Socket options that `socket2` lacks: the path MTU, pacing, and what TCP says of a connection.

use std::io;
use std::os::fd::AsFd;

use nix::libc::{self, c_int};
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};
use socket2::SockRef;

use crate::outcome::TcpStatistics;

sockopt_impl!(
    Ipv4MtuDiscover,
    Both,
    libc::IPPROTO_IP,
    libc::IP_MTU_DISCOVER,
    c_int
);
sockopt_impl!(
    Ipv6MtuDiscover,
    Both,
    libc::IPPROTO_IPV6,
    libc::IPV6_MTU_DISCOVER,
    c_int
);
sockopt_impl!(Ipv6Mtu, GetOnly, libc::IPPROTO_IPV6, libc::IPV6_MTU, c_int);
sockopt_impl!(
    MaxPacingRate,
    Both,
    libc::SOL_SOCKET,
    libc::SO_MAX_PACING_RATE,
    u64
);
sockopt_impl!(
    TcpInformation,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    TcpInfo
);

/// The first part of `struct tcp_info` (linux/tcp.h), which every kernel since 4.9 fills. Later kernels have more
/// fields after these.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(
    unreachable_pub,
    reason = "the type of the option, which the macro makes public"
)]
pub struct TcpInfo {
    /// State, congestion state, retransmits of the segment under way, probes, backoff, options and window scales.
    state: [u8; 8],
    /// Retransmission and delayed-acknowledgement timeouts, in microseconds.
    timeouts_us: [u32; 2],
    send_mss: u32,
    receive_mss: u32,
    /// Segments: unacknowledged, selectively acknowledged, lost, retransmitted and not acknowledged yet, forward.
    segments: [u32; 5],
    /// Milliseconds since data and acknowledgements were sent and received.
    ages_ms: [u32; 4],
    path_mtu: u32,
    receive_threshold: u32,
    rtt_us: u32,
    rtt_variation_us: u32,
    send_threshold: u32,
    send_window_segments: u32,
    advertised_mss: u32,
    reordering: u32,
    receive_rtt_us: u32,
    receive_space: u32,
    total_retransmits: u32,
    /// Bytes a second: in effect, and the limit.
    pacing: [u64; 2],
    bytes_acknowledged: u64,
    bytes_received: u64,
    segments_out: u32,
    segments_in: u32,
    not_sent_bytes: u32,
    min_rtt_us: u32,
    data_segments_in: u32,
    data_segments_out: u32,
    delivery_rate: u64,
}

/// The MTU of a connected socket's path, in bytes, as far as the kernel knows it.
pub(crate) fn path_mtu(socket: &impl AsFd, v6: bool) -> io::Result<u32> {
    let mtu = match v6 {
        true => getsockopt(socket, Ipv6Mtu)?,
        false => getsockopt(socket, sockopt::IpMtu)?,
    };
    u32::try_from(mtu).map_err(io::Error::other)
}

/// Sets DF on datagrams. One that does not fit the path MTU is refused with `EMSGSIZE`.
pub(crate) fn never_fragment(socket: &impl AsFd, v6: bool) -> io::Result<()> {
    if v6 {
        setsockopt(socket, Ipv6MtuDiscover, &libc::IPV6_PMTUDISC_DO)?;
    }
    // Of an IPv6 socket as well: its peer may be an IPv4 address in IPv6 form.
    Ok(setsockopt(socket, Ipv4MtuDiscover, &libc::IP_PMTUDISC_DO)?)
}

/// Limits the rate at which the kernel sends what a connection has buffered.
pub(crate) fn set_pacing(socket: &impl AsFd, bits_per_s: u64) -> io::Result<()> {
    Ok(setsockopt(socket, MaxPacingRate, &(bits_per_s / 8).max(1))?)
}

/// Sets the largest segment of a connection that is not open yet.
pub(crate) fn set_mss(socket: &impl AsFd, bytes: u16) -> io::Result<()> {
    Ok(setsockopt(socket, sockopt::TcpMaxSeg, &bytes.into())?)
}

/// What TCP knows of one connection; none for a socket of another kind.
pub(crate) fn tcp_statistics(socket: &SockRef<'_>) -> Option<TcpStatistics> {
    let info: TcpInfo = getsockopt(&**socket, TcpInformation).ok()?;
    let name = socket.tcp_congestion().unwrap_or_default();
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Some(TcpStatistics {
        connections: 1,
        retransmits: info.total_retransmits.into(),
        rtt_us: info.rtt_us,
        rtt_variation_us: info.rtt_variation_us,
        // The kernel has no minimum before its first sample.
        min_rtt_us: Some(info.min_rtt_us).filter(|min| *min != u32::MAX && *min != 0),
        congestion_window_bytes: u64::from(info.send_window_segments) * u64::from(info.send_mss),
        mss: info.send_mss,
        congestion: String::from_utf8_lossy(name).into_owned(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn layout_is_that_of_the_kernel() {
        assert_eq!(size_of::<TcpInfo>(), 168);
        assert_eq!(std::mem::offset_of!(TcpInfo, rtt_us), 68);
        assert_eq!(std::mem::offset_of!(TcpInfo, total_retransmits), 100);
        assert_eq!(std::mem::offset_of!(TcpInfo, delivery_rate), 160);
    }

    #[test]
    fn datagrams_to_mapped_address_have_df() {
        let socket = UdpSocket::bind("[::]:0").unwrap();
        never_fragment(&socket, true).unwrap();
        let set = (
            getsockopt(&socket, Ipv4MtuDiscover).unwrap(),
            getsockopt(&socket, Ipv6MtuDiscover).unwrap(),
        );
        assert_eq!(set, (libc::IP_PMTUDISC_DO, libc::IPV6_PMTUDISC_DO));
    }

    #[test]
    fn connection_has_statistics_and_datagram_socket_has_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[1; 100]).unwrap();
        far.read_exact(&mut [0; 100]).unwrap();
        let statistics = tcp_statistics(&SockRef::from(&near)).unwrap();
        assert_eq!((statistics.connections, statistics.retransmits), (1, 0));
        assert!(statistics.mss > 500 && statistics.congestion_window_bytes > 500);
        assert!(!statistics.congestion.is_empty());
        assert!(path_mtu(&near, false).unwrap() >= 1280);
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(tcp_statistics(&SockRef::from(&datagrams)).is_none());
    }
}
