//! One AF_XDP socket on one queue of one device, with its four rings.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use netdev::requirement;

use crate::Error;
use crate::ring::{self, Consumer, Layout, Producer};
use crate::umem::{Frame, Umem};

/// How packets get between device and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The kernel copies; every device can.
    Copy,
    /// The device reads and writes the memory itself; its driver must support it.
    ZeroCopy,
}

/// Where to bind, and the rings' sizes (powers of two).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    pub ifindex: u32,
    pub queue: u32,
    pub mode: Mode,
    pub receive: u32,
    pub transmit: u32,
    pub fill: u32,
    pub completion: u32,
}

impl Bind {
    /// Rings of 2048 entries.
    pub const fn new(ifindex: u32, queue: u32, mode: Mode) -> Self {
        Self {
            ifindex,
            queue,
            mode,
            receive: 2048,
            transmit: 2048,
            fill: 2048,
            completion: 2048,
        }
    }
}

/// What the kernel dropped or refused on this socket, in packets or descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Dropped for another reason than a full receive ring (a packet longer than a frame).
    pub dropped: u64,
    pub invalid_receive: u64,
    pub invalid_transmit: u64,
    /// Dropped because the receive ring was full.
    pub receive_full: u64,
    /// Dropped because the fill ring was empty.
    pub fill_empty: u64,
    pub transmit_empty: u64,
}

/// What came of asking the kernel to transmit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kick {
    /// It took everything, or needs no asking.
    Done,
    /// It stopped early (its budget, a busy device, a full completion ring): collect completions
    /// and ask again.
    Again,
    /// The device refused the last packet it took, and lost it (copy mode). Ask again for others.
    Dropped,
}

/// A bound socket.
#[derive(Debug)]
pub struct Socket {
    receive: Consumer<libc::xdp_desc>,
    transmit: Producer<libc::xdp_desc>,
    fill: Producer<u64>,
    completion: Consumer<u64>,
    umem: Umem,
    /// Frames that are in the rings or with the kernel.
    lent: usize,
    fd: Arc<OwnedFd>,
}

impl Socket {
    /// Binds to a queue, in memory that other sockets on other queues or devices may use too.
    /// It receives nothing before [`Self::fill`] has given it frames.
    ///
    /// # Errors
    /// No such interface or queue, the queue is taken, no zero-copy, not allowed.
    pub fn bind(umem: &Umem, bind: &Bind) -> Result<Self, Error> {
        for size in [bind.receive, bind.transmit, bind.fill, bind.completion] {
            if !size.is_power_of_two() {
                return Err(Error::RingSize(size));
            }
        }
        umem.with_registered(bind, |registered| Self::open(umem, bind, registered))
    }

    fn open(umem: &Umem, bind: &Bind, registered: Option<&OwnedFd>) -> Result<Self, Error> {
        let at = |step| move |source| explain(bind, step, source);
        let fd = sys::socket::af_xdp().map_err(at("socket"))?;
        let socket = fd.as_fd();
        if registered.is_none() {
            set(socket, libc::XDP_UMEM_REG, &umem.registration()).map_err(at("register UMEM"))?;
        }
        for (option, size) in [
            (libc::XDP_UMEM_FILL_RING, bind.fill),
            (libc::XDP_UMEM_COMPLETION_RING, bind.completion),
            (libc::XDP_RX_RING, bind.receive),
            (libc::XDP_TX_RING, bind.transmit),
        ] {
            set(socket, option, &size).map_err(at("make ring"))?;
        }
        let offsets: libc::xdp_mmap_offsets =
            get(socket, libc::XDP_MMAP_OFFSETS).map_err(at("ring offsets"))?;
        let receive = Layout::new(offsets.rx, bind.receive);
        let transmit = Layout::new(offsets.tx, bind.transmit);
        let fill = Layout::new(offsets.fr, bind.fill);
        let completion = Layout::new(offsets.cr, bind.completion);
        let rx = ring::map::<libc::xdp_desc>(socket, receive, RX_PAGES).map_err(at("map ring"))?;
        let tx = ring::map::<libc::xdp_desc>(socket, transmit, TX_PAGES).map_err(at("map ring"))?;
        let fr = ring::map::<u64>(socket, fill, libc::XDP_UMEM_PGOFF_FILL_RING)
            .map_err(at("map ring"))?;
        let cr = ring::map::<u64>(socket, completion, libc::XDP_UMEM_PGOFF_COMPLETION_RING)
            .map_err(at("map ring"))?;
        bind_socket(socket, bind, registered).map_err(at("bind"))?;
        Ok(Self {
            receive: Consumer::new(rx, receive),
            transmit: Producer::new(tx, transmit),
            fill: Producer::new(fr, fill),
            completion: Consumer::new(cr, completion),
            umem: umem.clone(),
            lent: 0,
            fd: Arc::new(fd),
        })
    }

    /// Gives frames from the end of `frames` to the kernel to receive into, as many as fit; returns
    /// how many.
    pub fn fill(&mut self, frames: &mut Vec<Frame>) -> usize {
        self.fill_up_to(frames, usize::MAX)
    }

    /// As [`Self::fill`], but at most `limit` frames.
    pub fn fill_up_to(&mut self, frames: &mut Vec<Frame>, limit: usize) -> usize {
        let count = self.fill.room(frames.len().min(limit));
        let umem = &self.umem;
        let given = frames.drain(frames.len() - count..);
        self.fill.publish(given.map(|mut frame| {
            // The kernel chooses where in the frame the packet goes.
            frame.clear();
            umem.give(frame).0
        }));
        self.lent += count;
        count
    }

    /// Appends at most `limit` received packets to `frames`, in order; returns how many.
    pub fn receive(&mut self, frames: &mut Vec<Frame>, limit: usize) -> usize {
        let umem = &self.umem;
        let count = self.receive.take(limit, |packet| {
            frames.extend(umem.take_back(packet.addr, packet.len));
        });
        self.lent = self.lent.saturating_sub(count);
        count
    }

    /// Hands packets from the front of `frames` over for transmission, in order, as many as fit;
    /// returns how many. They leave at the next [`Self::kick`].
    pub fn send(&mut self, frames: &mut Vec<Frame>) -> usize {
        let count = self.transmit.room(frames.len());
        let umem = &self.umem;
        self.transmit.publish(frames.drain(..count).map(|frame| {
            let (addr, len) = umem.give(frame);
            libc::xdp_desc {
                addr,
                len,
                options: 0,
            }
        }));
        self.lent += count;
        count
    }

    /// Appends every frame whose transmission is over to `frames`; returns how many.
    pub fn complete(&mut self, frames: &mut Vec<Frame>) -> usize {
        let umem = &self.umem;
        let count = self.completion.take(usize::MAX, |address| {
            frames.extend(umem.take_back(address, 0));
        });
        self.lent = self.lent.saturating_sub(count);
        count
    }

    /// Closes the socket and appends the frames that it has to `frames`, received packets included. Returns how many
    /// frames are lost, because a device still sends them.
    pub fn close(self, frames: &mut Vec<Frame>) -> usize {
        let Self {
            mut receive,
            mut transmit,
            mut fill,
            mut completion,
            umem,
            lent,
            fd,
        } = self;
        // The kernel does not touch the rings any more once the descriptor is closed. They stay mapped.
        drop(fd);
        let before = frames.len();
        let mut take_back = |address, length| frames.extend(umem.take_back(address, length));
        completion.take(usize::MAX, |address| take_back(address, 0));
        receive.take(usize::MAX, |packet| take_back(packet.addr, packet.len));
        fill.take_back(|address| take_back(address, 0));
        transmit.take_back(|packet| take_back(packet.addr, packet.len));
        lent.saturating_sub(frames.len() - before)
    }

    /// Packets handed over that the kernel has not taken yet.
    pub fn unsent(&mut self) -> usize {
        self.transmit.pending()
    }

    /// Asks the kernel to transmit, if it must be asked.
    ///
    /// # Errors
    /// The device is down or gone.
    pub fn kick(&self) -> io::Result<Kick> {
        if !self.transmit.needs_wakeup() {
            return Ok(Kick::Done);
        }
        // SAFETY: no buffer is passed.
        let result = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
        if result >= 0 {
            return Ok(Kick::Done);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => Ok(Kick::Again),
            Some(libc::EBUSY) => Ok(Kick::Dropped),
            _ => Err(error),
        }
    }

    /// Asks the kernel to look at the fill ring again, if it must be asked (zero-copy only).
    ///
    /// # Errors
    /// The device is down or gone.
    pub fn wake_receive(&self) -> io::Result<()> {
        if !self.fill.needs_wakeup() {
            return Ok(());
        }
        // SAFETY: no buffer is passed.
        let result = unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
        if result >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => Ok(()),
            _ => Err(error),
        }
    }

    /// Waits until there are packets to receive; false when `timeout` passed first.
    ///
    /// # Errors
    /// The device is down or gone.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let events = poll(std::iter::once(self.as_fd()), timeout)?;
        if events & HANGUP_EVENTS != 0 {
            return Err(io::Error::from_raw_os_error(libc::ENETDOWN));
        }
        Ok(events & libc::POLLIN != 0)
    }

    /// What the kernel dropped on this socket since it was opened.
    ///
    /// # Errors
    /// The kernel is older than 5.9.
    pub fn statistics(&self) -> io::Result<Statistics> {
        let kernel: libc::xdp_statistics = get(self.fd.as_fd(), libc::XDP_STATISTICS)?;
        Ok(Statistics {
            dropped: kernel.rx_dropped,
            invalid_receive: kernel.rx_invalid_descs,
            invalid_transmit: kernel.tx_invalid_descs,
            receive_full: kernel.rx_ring_full,
            fill_empty: kernel.rx_fill_ring_empty_descs,
            transmit_empty: kernel.tx_ring_empty_descs,
        })
    }

    pub(crate) fn downgrade(&self) -> Weak<OwnedFd> {
        Arc::downgrade(&self.fd)
    }

    /// The memory it was bound with.
    pub fn umem(&self) -> &Umem {
        &self.umem
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Events of a socket whose device is gone.
pub(crate) const HANGUP_EVENTS: libc::c_short = libc::POLLERR | libc::POLLHUP;

/// Waits until one of the sockets has packets to receive; the events of all, none after `timeout` or a
/// signal.
pub(crate) fn poll<'a>(
    sockets: impl Iterator<Item = BorrowedFd<'a>>,
    timeout: Duration,
) -> io::Result<libc::c_short> {
    let entry = |socket: BorrowedFd<'_>| libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut entries: Vec<libc::pollfd> = sockets.map(entry).collect();
    let count = libc::nfds_t::try_from(entries.len()).unwrap_or(libc::nfds_t::MAX);
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: as many entries are passed as said, and they and the timeout outlive the call.
    let ready = unsafe {
        libc::ppoll(
            entries.as_mut_ptr(),
            count,
            &raw const timeout,
            std::ptr::null(),
        )
    };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::Interrupted => Ok(0),
            _ => Err(error),
        };
    }
    Ok(entries.iter().fold(0, |all, entry| all | entry.revents))
}

const RX_PAGES: u64 = libc::XDP_PGOFF_RX_RING.cast_unsigned();
const TX_PAGES: u64 = libc::XDP_PGOFF_TX_RING.cast_unsigned();

fn bind_socket(
    socket: BorrowedFd<'_>,
    bind: &Bind,
    registered: Option<&OwnedFd>,
) -> io::Result<()> {
    // A sharing socket inherits mode and need-wakeup from the memory's first one.
    let flags = match (registered, bind.mode) {
        (Some(_), _) => libc::XDP_SHARED_UMEM,
        (None, Mode::Copy) => libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP,
        (None, Mode::ZeroCopy) => libc::XDP_ZEROCOPY | libc::XDP_USE_NEED_WAKEUP,
    };
    let address = libc::sockaddr_xdp {
        #[expect(clippy::cast_possible_truncation, reason = "44")]
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: bind.ifindex,
        sxdp_queue_id: bind.queue,
        sxdp_shared_umem_fd: registered.map_or(0, |fd| fd.as_raw_fd().cast_unsigned()),
    };
    // SAFETY: the address is as long as said and outlives the call.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            len_of::<libc::sockaddr_xdp>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn set<T: Copy>(socket: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: `value` is as long as said and outlives the call, which only reads it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            option,
            std::ptr::from_ref(value).cast(),
            len_of::<T>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Only for plain C structs, which all-zero bytes are a value of.
fn get<T: Copy>(socket: BorrowedFd<'_>, option: libc::c_int) -> io::Result<T> {
    let mut len = len_of::<T>();
    // SAFETY: the two callers ask for C structs of integers.
    let mut value: T = unsafe { std::mem::zeroed() };
    // SAFETY: `value` has `len` bytes, and both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            option,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    if len != len_of::<T>() {
        return Err(io::Error::other("the kernel knows a shorter structure"));
    }
    Ok(value)
}

#[expect(clippy::cast_possible_truncation, reason = "structs of some ten words")]
const fn len_of<T>() -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}

fn explain(bind: &Bind, step: &'static str, cause: io::Error) -> Error {
    let (ifindex, queue) = (bind.ifindex, bind.queue);
    match (step, cause.raw_os_error()) {
        ("socket", Some(libc::EAFNOSUPPORT))
        | (_, Some(libc::EPERM))
        | ("register UMEM", Some(libc::ENOBUFS)) => requirement::af_xdp(&cause).into(),
        ("bind", Some(libc::EINVAL)) => Error::NoQueue { ifindex, queue },
        ("bind", Some(libc::ENODEV | libc::ENETDOWN)) => Error::NoInterface(ifindex),
        ("bind", Some(libc::EBUSY)) => Error::Taken { ifindex, queue },
        ("bind", Some(libc::EOPNOTSUPP)) => Error::NoZeroCopy(ifindex),
        _ => Error::System {
            ifindex,
            queue,
            step,
            cause,
        },
    }
}
