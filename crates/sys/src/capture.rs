//! Packet sockets that capture: whole frames of a device, with their times and tags.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt};

use crate::socket::check;

/// `PACKET_IGNORE_OUTGOING`, since Linux 4.20.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
/// `PACKET_FANOUT_DATA`.
const PACKET_FANOUT_DATA: libc::c_int = 22;
/// Says that the tag's identifier in the status is valid.
pub(crate) const TP_STATUS_VLAN_VALID: u32 = 1 << 4;
/// Says that the tag's protocol is, too.
pub(crate) const TP_STATUS_VLAN_TPID_VALID: u32 = 1 << 6;

/// The kernel takes the outer tag out of a frame and tells it beside; this much room in front of a
/// frame lets it be put back.
pub const TAG: usize = 4;
/// Both addresses, which come before the tag.
const ADDRESSES: usize = 12;

/// The frames of a device to capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capture {
    pub ifindex: u32,
    /// Frames that this machine sends, too.
    pub outgoing: bool,
    /// Frames for other machines, too.
    pub promiscuous: bool,
    /// Shares the device's frames with all sockets of this group.
    pub fanout: Option<u16>,
}

/// The metadata of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameInfo {
    /// Since the epoch, by the kernel's clock when it took the frame in.
    pub time_ns: i64,
    /// Bytes of the whole frame, its tag included.
    pub length: u32,
}

/// Counted by the kernel since the socket was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames that were for this socket, dropped ones included.
    pub packets: u64,
    /// Frames for which there was no room.
    pub drops: u64,
}

/// A socket that captures.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    statistics: Statistics,
}

impl Socket {
    /// A socket that captures nothing yet: rings are set up before [`Socket::bind`].
    pub fn open() -> io::Result<Self> {
        // Protocol 0: no frame is delivered before it is bound.
        // SAFETY: no pointer is passed.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        check(fd)?;
        // SAFETY: `fd` is open, and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self {
            fd,
            statistics: Statistics::default(),
        })
    }

    /// Starts to capture. Needs `CAP_NET_RAW`.
    pub fn bind(&self, capture: &Capture) -> io::Result<()> {
        let set = |name, value| set_packet(&self.fd, name, &value);
        set(PACKET_IGNORE_OUTGOING, libc::c_int::from(!capture.outgoing))?;
        let ifindex = i32::try_from(capture.ifindex).map_err(io::Error::other)?;
        if capture.promiscuous {
            self.join_promiscuous(ifindex)?;
        }
        #[expect(clippy::cast_possible_truncation, reason = "small constants")]
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
            sll_ifindex: ifindex,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        #[expect(clippy::cast_possible_truncation, reason = "20")]
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: `address` is `len` bytes and outlives the call.
        check(unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), len) })?;
        if let Some(group) = capture.fanout {
            self.join(group, capture.outgoing)?;
        }
        Ok(())
    }

    /// Joins a group, closed: which socket a frame is for depends on how many there are.
    fn join(&self, group: u16, outgoing: bool) -> io::Result<()> {
        const BY_PROGRAM: u32 = 7;
        /// A group has an answer of its own to `PACKET_IGNORE_OUTGOING`; since Linux 5.12.
        const IGNORE_OUTGOING: u32 = 0x4000;
        let flags = if outgoing { 0 } else { IGNORE_OUTGOING };
        self.close()?;
        let how = u32::from(group) | (BY_PROGRAM | flags) << 16;
        set_packet(&self.fd, libc::PACKET_FANOUT, &how.cast_signed())
    }

    /// Gives the socket's group the program that chooses a socket for each frame.
    pub fn set_chooser(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        set_packet(&self.fd, PACKET_FANOUT_DATA, &program.as_raw_fd())
    }

    /// Takes no frame until it is opened, and counts none.
    fn close(&self) -> io::Result<()> {
        let mut nothing = libc::sock_filter {
            #[expect(clippy::cast_possible_truncation, reason = "6")]
            code: libc::BPF_RET as u16,
            jt: 0,
            jf: 0,
            k: 0,
        };
        let filter = libc::sock_fprog {
            len: 1,
            filter: &raw mut nothing,
        };
        set_option(&self.fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
    }

    /// Takes frames, once all sockets of its group are there.
    pub fn open_to_frames(&self) -> io::Result<()> {
        set_option(&self.fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0)
    }

    fn join_promiscuous(&self, ifindex: libc::c_int) -> io::Result<()> {
        let membership = libc::packet_mreq {
            mr_ifindex: ifindex,
            #[expect(clippy::cast_possible_truncation, reason = "1")]
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set_packet(&self.fd, libc::PACKET_ADD_MEMBERSHIP, &membership)
    }

    /// The device's hardware type (`ARPHRD_*`), once bound.
    pub fn hardware(&self) -> io::Result<u16> {
        // SAFETY: all zeros is a valid address of this kind.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        #[expect(clippy::cast_possible_truncation, reason = "20")]
        let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: `address` has room for `len` bytes, and both outlive the call.
        check(unsafe {
            libc::getsockname(self.fd.as_raw_fd(), (&raw mut address).cast(), &raw mut len)
        })?;
        Ok(address.sll_hatype)
    }

    /// Asks for a kernel time stamp and the taken-out tag with each frame, and for a limit to waiting.
    pub fn prepare_receive(&self, timeout: Duration) -> io::Result<()> {
        set_packet(&self.fd, libc::PACKET_AUXDATA, &1)?;
        crate::socket::set(&self.fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        let timeout = libc::timeval {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).map_err(io::Error::other)?,
            tv_usec: timeout.subsec_micros().into(),
        };
        set_option(&self.fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &timeout)
    }

    /// Receives one frame into `buffer`, and says where in it the frame lies; `WouldBlock` after the
    /// timeout. What does not fit is cut off.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<(FrameInfo, &'a [u8])> {
        let mut control = [0_u64; 16];
        let mut part = libc::iovec {
            iov_base: buffer[TAG..].as_mut_ptr().cast(),
            iov_len: buffer.len() - TAG,
        };
        // SAFETY: all zeros is a valid message header.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        // SAFETY: the message points to one part, that to memory of `buffer`, and both to `control`;
        // all outlive the call.
        let length =
            unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, libc::MSG_TRUNC) };
        let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        let ancillary = AncillaryData::read(&message);
        let captured = length.min(buffer.len() - TAG);
        let from = match ancillary.tag {
            Some(tag) => put_tag(buffer, TAG, tag),
            None => TAG,
        };
        let length = u32::try_from(length + TAG - from).unwrap_or(u32::MAX);
        let info = FrameInfo {
            time_ns: ancillary.time_ns,
            length,
        };
        Ok((info, &buffer[from..TAG + captured]))
    }

    /// The socket's pending error, as an error: the device is down or gone. Reading it clears it.
    pub(crate) fn take_error(&self) -> io::Result<()> {
        match getsockopt(self, sockopt::SocketError)? {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// The kernel's counters. Reading one resets it, so all are read here.
    pub fn statistics(&mut self) -> io::Result<Statistics> {
        // SAFETY: all zeros is a valid statistic. The older form is the beginning of this one.
        let mut now: libc::tpacket_stats_v3 = unsafe { std::mem::zeroed() };
        #[expect(clippy::cast_possible_truncation, reason = "12")]
        let mut len = size_of::<libc::tpacket_stats_v3>() as libc::socklen_t;
        // SAFETY: `now` has room for `len` bytes, and both outlive the call.
        check(unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut now).cast(),
                &raw mut len,
            )
        })?;
        self.statistics.packets += u64::from(now.tp_packets);
        self.statistics.drops += u64::from(now.tp_drops);
        Ok(self.statistics)
    }
}

/// A device takes frames for other machines while this lives. Needs `CAP_NET_RAW`.
#[derive(Debug)]
pub struct Promiscuous {
    _socket: Socket,
}

impl Promiscuous {
    pub fn start(ifindex: u32) -> io::Result<Self> {
        let socket = Socket::open()?;
        socket.join_promiscuous(i32::try_from(ifindex).map_err(io::Error::other)?)?;
        Ok(Self { _socket: socket })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The control messages of a frame.
#[derive(Debug, Default)]
struct AncillaryData {
    time_ns: i64,
    /// Protocol and control information.
    tag: Option<(u16, u16)>,
}

impl AncillaryData {
    fn read(message: &libc::msghdr) -> Self {
        let mut ancillary = Self::default();
        // SAFETY: the kernel has filled in `message`, whose control buffer is still there.
        let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
        while !next.is_null() {
            // SAFETY: a header that is not null is whole, and CMSG_DATA lies within its message.
            let (header, data) = unsafe { (&*next, libc::CMSG_DATA(next)) };
            match (header.cmsg_level, header.cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    // SAFETY: this message holds a timespec, of no particular alignment.
                    let time: libc::timespec =
                        unsafe { data.cast::<libc::timespec>().read_unaligned() };
                    ancillary.time_ns = time.tv_sec * 1_000_000_000 + time.tv_nsec;
                }
                (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                    // SAFETY: this message holds tpacket_auxdata, of no particular alignment.
                    let aux: libc::tpacket_auxdata =
                        unsafe { data.cast::<libc::tpacket_auxdata>().read_unaligned() };
                    ancillary.tag = tag(aux.tp_status, aux.tp_vlan_tci, aux.tp_vlan_tpid);
                }
                _ => {}
            }
            // SAFETY: as for the first.
            next = unsafe { libc::CMSG_NXTHDR(message, next) };
        }
        ancillary
    }
}

/// The tag that the kernel took out, if it did.
pub(crate) fn tag(status: u32, control: u16, protocol: u16) -> Option<(u16, u16)> {
    const VLAN: u16 = 0x8100;
    let protocol = if status & TP_STATUS_VLAN_TPID_VALID == 0 {
        VLAN
    } else {
        protocol
    };
    (status & TP_STATUS_VLAN_VALID != 0).then_some((protocol, control))
}

/// Puts a tag back into the frame that starts at `from`; returns where it starts then.
pub(crate) fn put_tag(buffer: &mut [u8], from: usize, (protocol, control): (u16, u16)) -> usize {
    let start = from - TAG;
    if buffer.len() < from + ADDRESSES {
        return from;
    }
    buffer.copy_within(from..from + ADDRESSES, start);
    let at = start + ADDRESSES;
    buffer[at..at + 2].copy_from_slice(&protocol.to_be_bytes());
    buffer[at + 2..at + TAG].copy_from_slice(&control.to_be_bytes());
    start
}

fn set_packet<T>(fd: impl AsFd, name: libc::c_int, value: &T) -> io::Result<()> {
    set_option(fd, libc::SOL_PACKET, name, value)
}

/// Sets an option whose value is plain data of the kernel's layout.
pub(crate) fn set_option<T>(
    fd: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let len = libc::socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    // SAFETY: `value` is `len` bytes and outlives the call.
    check(unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            len,
        )
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_goes_back_behind_the_addresses() {
        let mut buffer = vec![0; TAG];
        buffer.extend(1..=12_u8);
        buffer.extend([0x08, 0x00, 0x45]);
        let from = put_tag(&mut buffer, TAG, (0x8100, 7));
        assert_eq!(buffer[from..from + 12], (1..=12).collect::<Vec<u8>>());
        assert_eq!(buffer[from + 12..], [0x81, 0, 0, 7, 0x08, 0x00, 0x45]);
    }

    #[test]
    fn a_tag_without_a_protocol_is_a_vlan_tag() {
        assert_eq!(tag(TP_STATUS_VLAN_VALID, 5, 0), Some((0x8100, 5)));
        let both = TP_STATUS_VLAN_VALID | TP_STATUS_VLAN_TPID_VALID;
        assert_eq!(tag(both, 5, 0x88a8), Some((0x88a8, 5)));
        assert_eq!(tag(0, 5, 0x88a8), None);
    }
}
