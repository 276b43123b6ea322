//! Datagrams in batches and one by one, with their control messages. All memory is taken when a
//! batch is made: nothing here allocates per packet.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use crate::address::{self, Name};
use crate::cmsg::Control;
pub use crate::cmsg::{Family, Outgoing, RecvInfo};

/// Do not wait for a datagram, or for room to send one.
pub const DONT_WAIT: i32 = libc::MSG_DONTWAIT;
/// `recvmmsg` waits for the first datagram only.
pub const WAIT_FOR_ONE: i32 = libc::MSG_WAITFORONE;

/// Buffers for `recvmmsg`.
pub struct RecvBatch {
    messages: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    names: Box<[Name]>,
    controls: Box<[Control]>,
    payloads: Box<[u8]>,
    payload_len: usize,
    received: Vec<RecvInfo>,
}

// SAFETY: the raw pointers inside the message headers are rewritten before every system call and
// are never read between calls, so moving the batch to another thread moves only owned memory.
unsafe impl Send for RecvBatch {}

impl RecvBatch {
    /// Room for `batch` datagrams of `payload_len` bytes each (65536 with UDP GRO).
    ///
    /// # Panics
    /// When `payload_len` is 0.
    pub fn new(batch: usize, payload_len: usize) -> Self {
        assert!(payload_len > 0, "a datagram needs a buffer");
        Self {
            messages: vec![empty_message(); batch].into(),
            vectors: vec![empty_vector(); batch].into(),
            names: vec![Name::empty(); batch].into(),
            controls: vec![Control::empty(); batch].into(),
            payloads: vec![0; batch * payload_len].into(),
            payload_len,
            received: Vec::with_capacity(batch),
        }
    }

    /// Replaces the content with what the socket has now, and returns how many datagrams that is.
    ///
    /// # Errors
    /// `WouldBlock` when there is none and `flags` or the socket says not to wait.
    pub fn receive(&mut self, socket: impl AsFd, flags: i32) -> io::Result<usize> {
        self.received.clear();
        self.point_headers_at_buffers();
        // SAFETY: every header points at its own name, control and payload buffer, all owned by
        // `self` and not borrowed elsewhere, with their true lengths.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_fd().as_raw_fd(),
                self.messages.as_mut_ptr(),
                vlen(self.messages.len()),
                flags,
                ptr::null_mut(),
            )
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        for index in 0..count {
            let message = &self.messages[index];
            let received = RecvInfo {
                len: self.payload_len.min(message.msg_len as usize),
                ..received(&message.msg_hdr, &self.names[index], &self.controls[index])
            };
            self.received.push(received);
        }
        Ok(count)
    }

    /// The datagrams of the last `receive`, in order of arrival.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&RecvInfo, &[u8])> {
        self.received
            .iter()
            .zip(self.payloads.chunks_exact(self.payload_len))
            .map(|(received, buffer)| (received, &buffer[..received.len]))
    }

    /// One datagram of the last `receive`, with its payload to be changed in place.
    pub fn get_mut(&mut self, index: usize) -> Option<(&RecvInfo, &mut [u8])> {
        let received = self.received.get(index)?;
        let at = index * self.payload_len;
        Some((received, &mut self.payloads[at..at + received.len]))
    }

    /// The number of datagrams of the last `receive`.
    pub fn len(&self) -> usize {
        self.received.len()
    }

    pub fn is_empty(&self) -> bool {
        self.received.is_empty()
    }

    fn point_headers_at_buffers(&mut self) {
        let buffers = self.payloads.chunks_exact_mut(self.payload_len);
        let slots = self.names.iter_mut().zip(self.controls.iter_mut());
        let headers = self.messages.iter_mut().zip(self.vectors.iter_mut());
        for (((message, vector), (name, control)), buffer) in headers.zip(slots).zip(buffers) {
            vector.iov_base = buffer.as_mut_ptr().cast();
            vector.iov_len = buffer.len();
            point_at(&mut message.msg_hdr, vector, name, control);
        }
    }
}

impl fmt::Debug for RecvBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvBatch")
            .field("capacity", &self.messages.len())
            .field("payload_len", &self.payload_len)
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}

/// Headers for `sendmmsg`; payloads stay where they are.
pub struct SendBatch {
    messages: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    names: Box<[Name]>,
    controls: Box<[Control]>,
}

// SAFETY: as for `RecvBatch`; pointers to payloads live only as long as a `Burst`, which borrows
// the batch and the payloads and is not itself `Send`.
unsafe impl Send for SendBatch {}

impl SendBatch {
    /// Room for `batch` datagrams in one system call.
    pub fn new(batch: usize) -> Self {
        Self {
            messages: vec![empty_message(); batch].into(),
            vectors: vec![empty_vector(); batch].into(),
            names: vec![Name::empty(); batch].into(),
            controls: vec![Control::empty(); batch].into(),
        }
    }

    /// Starts an empty burst.
    pub fn burst<'batch, 'payload>(&'batch mut self) -> Burst<'batch, 'payload> {
        Burst {
            batch: self,
            start: 0,
            end: 0,
            payloads: PhantomData,
        }
    }
}

impl fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendBatch")
            .field("capacity", &self.messages.len())
            .finish_non_exhaustive()
    }
}

/// Datagrams collected for sending; what is not sent when it is dropped is forgotten.
pub struct Burst<'batch, 'payload> {
    batch: &'batch mut SendBatch,
    start: usize,
    end: usize,
    payloads: PhantomData<(&'payload [u8], *const u8)>,
}

impl<'payload> Burst<'_, 'payload> {
    /// Adds one datagram; false when the batch is full.
    #[must_use]
    pub fn push(&mut self, payload: &'payload [u8], outgoing: &Outgoing) -> bool {
        let index = self.end;
        let Some(message) = self.batch.messages.get_mut(index) else {
            return false;
        };
        let vector = &mut self.batch.vectors[index];
        vector.iov_base = payload.as_ptr().cast_mut().cast();
        vector.iov_len = payload.len();
        let name = &mut self.batch.names[index];
        let control = &mut self.batch.controls[index];
        fill(&mut message.msg_hdr, vector, name, control, outgoing);
        self.end += 1;
        true
    }

    /// Datagrams pushed and not yet sent.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends from where the last call stopped and returns how many datagrams the kernel took:
    /// fewer than `len` when one in the middle was refused, whose error the next call returns.
    ///
    /// # Errors
    /// Why the first unsent datagram was refused; [`Self::skip`] gives it up.
    pub fn send(&mut self, socket: impl AsFd, flags: i32) -> io::Result<usize> {
        if self.is_empty() {
            return Ok(0);
        }
        let unsent = &mut self.batch.messages[self.start..self.end];
        // SAFETY: the headers in this range were filled by `push`; they point at names and controls
        // of the batch borrowed here and at payloads borrowed for 'payload. The kernel only reads
        // them, and writes `msg_len`.
        let count = unsafe {
            libc::sendmmsg(
                socket.as_fd().as_raw_fd(),
                unsent.as_mut_ptr(),
                vlen(unsent.len()),
                flags,
            )
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        self.start += count;
        Ok(count)
    }

    /// Gives up the first unsent datagram.
    pub fn skip(&mut self) {
        self.start = self.end.min(self.start + 1);
    }
}

impl fmt::Debug for Burst<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Burst")
            .field("unsent", &self.len())
            .finish_non_exhaustive()
    }
}

/// Receives one datagram.
///
/// # Errors
/// `WouldBlock` when there is none and `flags` or the socket says not to wait.
pub fn receive_one(socket: impl AsFd, payload: &mut [u8], flags: i32) -> io::Result<RecvInfo> {
    let mut message = empty_message().msg_hdr;
    let mut name = Name::empty();
    let mut control = Control::empty();
    let mut vector = libc::iovec {
        iov_base: payload.as_mut_ptr().cast(),
        iov_len: payload.len(),
    };
    point_at(&mut message, &mut vector, &mut name, &mut control);
    // SAFETY: the header points at the buffers above, which live until the call returns.
    let len = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags) };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    Ok(RecvInfo {
        len: len.min(payload.len()),
        ..received(&message, &name, &control)
    })
}

/// Sends one datagram (or, with `segment`, one train of datagrams) and returns its bytes.
///
/// # Errors
/// `WouldBlock` or `ENOBUFS` when there is no room; else why it cannot leave.
pub fn send_one(
    socket: impl AsFd,
    payload: &[u8],
    outgoing: &Outgoing,
    flags: i32,
) -> io::Result<usize> {
    let mut message = empty_message().msg_hdr;
    let mut name = Name::empty();
    let mut control = Control::empty();
    let mut vector = libc::iovec {
        iov_base: payload.as_ptr().cast_mut().cast(),
        iov_len: payload.len(),
    };
    fill(&mut message, &mut vector, &mut name, &mut control, outgoing);
    // SAFETY: the header points at the buffers above, which live until the call returns; the
    // kernel only reads the payload.
    let len = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, flags) };
    usize::try_from(len).map_err(|_| io::Error::last_os_error())
}

fn empty_message() -> libc::mmsghdr {
    // SAFETY: all-zero is a valid value: null pointers with zero lengths.
    unsafe { mem::zeroed() }
}

fn empty_vector() -> libc::iovec {
    libc::iovec {
        iov_base: ptr::null_mut(),
        iov_len: 0,
    }
}

fn point_at(
    message: &mut libc::msghdr,
    vector: &mut libc::iovec,
    name: &mut Name,
    control: &mut Control,
) {
    message.msg_name = name.0.as_mut_ptr().cast();
    message.msg_namelen = vlen(address::LEN);
    message.msg_iov = vector;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // The field's width differs between C libraries.
    message.msg_controllen = control.0.len() as _;
    message.msg_flags = 0;
}

fn fill(
    message: &mut libc::msghdr,
    vector: &mut libc::iovec,
    name: &mut Name,
    control: &mut Control,
    outgoing: &Outgoing,
) {
    let used = outgoing.write_control(control);
    point_at(message, vector, name, control);
    match outgoing.destination() {
        Some(to) => message.msg_namelen = name.write(to),
        None => {
            message.msg_name = ptr::null_mut();
            message.msg_namelen = 0;
        }
    }
    message.msg_controllen = used as _;
}

fn received(message: &libc::msghdr, name: &Name, control: &Control) -> RecvInfo {
    let mut received = RecvInfo {
        truncated: message.msg_flags & libc::MSG_TRUNC != 0,
        source: name.read(message.msg_namelen),
        ..RecvInfo::default()
    };
    #[expect(
        clippy::unnecessary_cast,
        reason = "the field's width differs between C libraries"
    )]
    let used = message.msg_controllen as usize;
    received.read_control(&control.0[..used.min(control.0.len())]);
    received
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the kernel takes at most 1024 messages a call, and a name is 28 bytes"
)]
fn vlen(count: usize) -> u32 {
    count.min(1024) as u32
}
