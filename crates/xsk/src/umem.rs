//! Packet memory shared with the kernel, cut into frames. A frame that user space may touch is a
//! [`Frame`]; giving it to a ring consumes it, and a ring gives it back as a new one.

use std::os::fd::OwnedFd;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use sys::mmap::{Pages, Region};

use crate::Error;
use crate::socket::{Bind, Mode, Socket};

/// Bytes the kernel leaves before a received packet for its own use, after the headroom.
const XDP_PACKET_HEADROOM: u32 = 256;

/// The memory; cloning it shares it.
#[derive(Clone, Debug)]
pub struct Umem(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    id: u32,
    region: Region,
    frame_size: u16,
    frames: u32,
    headroom: u32,
    bound: Mutex<Vec<Bound>>,
}

/// A socket bound to this memory: the kernel finds the registration by any of them.
#[derive(Debug)]
struct Bound {
    ifindex: u32,
    queue: u32,
    mode: Mode,
    fd: Weak<OwnedFd>,
}

/// One frame, owned. Dropping it loses the frame until the UMEM is dropped.
#[derive(Debug)]
pub struct Frame {
    index: u32,
    umem: u32,
    start: u16,
    len: u16,
    size: u16,
}

impl Umem {
    /// `frames` frames of 2048 or 4096 bytes, with `headroom` bytes before each received packet
    /// beyond the 256 the kernel leaves anyway. Returns the memory and all its frames.
    ///
    /// # Errors
    /// A size the kernel does not take, or no memory.
    pub fn new(
        frames: u32,
        frame_size: u32,
        headroom: u32,
        pages: Pages,
    ) -> Result<(Self, Vec<Frame>), Error> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let size = u16::try_from(frame_size)
            .ok()
            .filter(|size| matches!(size, 2048 | 4096))
            .ok_or(Error::FrameSize(frame_size))?;
        if headroom + XDP_PACKET_HEADROOM >= frame_size {
            return Err(Error::Headroom(headroom));
        }
        let bytes = frames as usize * usize::from(size);
        let region = Region::anonymous(bytes, pages).map_err(|cause| Error::Memory {
            frames,
            size: frame_size,
            cause,
        })?;
        let umem = Self(Arc::new(Shared {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            region,
            frame_size: size,
            frames,
            headroom,
            bound: Mutex::default(),
        }));
        let all = (0..frames).map(|index| umem.frame(index, 0, 0)).collect();
        Ok((umem, all))
    }

    /// The packet in a frame.
    ///
    /// # Panics
    /// When the frame is another UMEM's.
    pub fn bytes<'a>(&'a self, frame: &'a Frame) -> &'a [u8] {
        // SAFETY: the range lies in the region (`pointer` and `set` see to it), which lives as long
        // as `self`; the frame is the only handle on it, and it is borrowed.
        unsafe { slice::from_raw_parts(self.pointer(frame), frame.len()) }
    }

    /// The packet in a frame, to be changed.
    ///
    /// # Panics
    /// When the frame is another UMEM's.
    pub fn bytes_mut<'a>(&'a self, frame: &'a mut Frame) -> &'a mut [u8] {
        // SAFETY: as in `bytes`, and the handle is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.pointer(frame), frame.len()) }
    }

    /// Bytes of one frame.
    pub fn frame_size(&self) -> usize {
        usize::from(self.0.frame_size)
    }

    fn pointer(&self, frame: &Frame) -> *mut u8 {
        assert!(frame.umem == self.0.id, "a frame of another UMEM");
        let at = frame.index as usize * self.frame_size() + usize::from(frame.start);
        // SAFETY: `index` is below the number of frames and `start` within a frame, so the result
        // is inside the region.
        unsafe { self.0.region.as_ptr().add(at) }
    }

    fn frame(&self, index: u32, start: u16, len: u16) -> Frame {
        Frame {
            index,
            umem: self.0.id,
            start,
            len,
            size: self.0.frame_size,
        }
    }

    /// The handle of what a ring gave back; `None` when the address is not in this memory.
    pub(crate) fn take_back(&self, address: u64, len: u32) -> Option<Frame> {
        let size = u64::from(self.0.frame_size);
        let index = u32::try_from(address / size).ok()?;
        let start = u16::try_from(address % size).ok()?;
        let len = u16::try_from(len).ok()?;
        let end = start.checked_add(len)?;
        let inside = index < self.0.frames && end <= self.0.frame_size;
        inside.then(|| self.frame(index, start, len))
    }

    /// Gives the frame up to the kernel: its address, with the packet's place or the frame's start.
    #[expect(clippy::needless_pass_by_value, reason = "the caller has it no more")]
    pub(crate) fn give(&self, frame: Frame) -> (u64, u32) {
        assert!(frame.umem == self.0.id, "a frame of another UMEM");
        let base = u64::from(frame.index) * u64::from(frame.size);
        (base + u64::from(frame.start), u32::from(frame.len))
    }

    pub(crate) fn registration(&self) -> libc::xdp_umem_reg {
        libc::xdp_umem_reg {
            addr: self.0.region.as_ptr().addr() as u64,
            len: self.0.region.len() as u64,
            chunk_size: u32::from(self.0.frame_size),
            headroom: self.0.headroom,
            flags: 0,
            tx_metadata_len: 0,
        }
    }

    /// Calls `open` with a bound socket that has this memory registered for the same mode, if there
    /// is one, and keeps the socket it returns. Locked, so that two first sockets cannot both
    /// register.
    pub(crate) fn with_registered(
        &self,
        bind: &Bind,
        open: impl FnOnce(Option<&OwnedFd>) -> Result<Socket, Error>,
    ) -> Result<Socket, Error> {
        let mut bound = self
            .0
            .bound
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        bound.retain(|other| other.fd.strong_count() > 0);
        let (ifindex, queue) = (bind.ifindex, bind.queue);
        // The kernel would answer EINVAL, as it does for a queue that is not there.
        if bound
            .iter()
            .any(|b| (b.ifindex, b.queue) == (ifindex, queue))
        {
            return Err(Error::Taken { ifindex, queue });
        }
        let registered = bound
            .iter()
            .filter(|other| other.mode == bind.mode)
            .find_map(|other| other.fd.upgrade());
        let socket = open(registered.as_deref())?;
        bound.push(Bound {
            ifindex,
            queue,
            mode: bind.mode,
            fd: socket.downgrade(),
        });
        Ok(socket)
    }
}

impl Frame {
    /// Bytes of packet.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the frame before the packet.
    pub fn headroom(&self) -> usize {
        usize::from(self.start)
    }

    pub(crate) fn clear(&mut self) {
        (self.start, self.len) = (0, 0);
    }

    /// Makes the packet `len` bytes that begin `start` bytes into the frame; false, and no change,
    /// when that does not fit. Bytes that were not part of a packet before are what they happen to
    /// be.
    #[must_use]
    pub fn set(&mut self, start: usize, len: usize) -> bool {
        let (Ok(start), Ok(len)) = (u16::try_from(start), u16::try_from(len)) else {
            return false;
        };
        let fits = start.checked_add(len).is_some_and(|end| end <= self.size);
        if fits {
            (self.start, self.len) = (start, len);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_do_not_overlap() {
        let (umem, mut frames) = Umem::new(4, 2048, 0, Pages::Ordinary).unwrap();
        for (mark, frame) in (1..).zip(&mut frames) {
            assert!(frame.set(0, 2048));
            umem.bytes_mut(frame).fill(mark);
        }
        for (mark, frame) in (1_u8..).zip(&frames) {
            assert!(umem.bytes(frame).iter().all(|&byte| byte == mark));
        }
    }

    #[test]
    fn a_packet_stays_inside_its_frame() {
        let (_umem, mut frames) = Umem::new(1, 2048, 0, Pages::Ordinary).unwrap();
        let frame = &mut frames[0];
        assert!(frame.set(48, 2000));
        assert!(!frame.set(49, 2000));
        assert!(!frame.set(65_535, 65_535));
        assert_eq!((frame.headroom(), frame.len()), (48, 2000));
    }

    #[test]
    fn what_is_given_comes_back() {
        let (umem, mut frames) = Umem::new(8, 4096, 0, Pages::Ordinary).unwrap();
        let mut frame = frames.remove(5);
        assert!(frame.set(256, 60));
        let (address, len) = umem.give(frame);
        assert_eq!((address, len), (5 * 4096 + 256, 60));
        let back = umem.take_back(address, len).unwrap();
        assert_eq!((back.index, back.start, back.len), (5, 256, 60));
        assert!(umem.take_back(8 * 4096, 0).is_none());
        assert!(umem.take_back(4000, 200).is_none());
    }

    #[test]
    #[should_panic(expected = "another UMEM")]
    fn a_frame_of_another_umem_is_refused() {
        let (_a, frames) = Umem::new(1, 2048, 0, Pages::Ordinary).unwrap();
        let (b, _) = Umem::new(1, 2048, 0, Pages::Ordinary).unwrap();
        b.bytes(&frames[0]);
    }

    #[test]
    fn sizes_the_kernel_would_refuse_are_named() {
        for (size, headroom) in [(1000, 0), (8192, 0), (2048, 1792)] {
            assert!(Umem::new(1, size, headroom, Pages::Ordinary).is_err());
        }
    }
}
