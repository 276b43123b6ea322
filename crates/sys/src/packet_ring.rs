//! `TPACKET_V3`: a packet socket's ring of blocks, shared with the kernel.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::capture::{Capture, FrameInfo, Socket, Statistics, TAG, put_tag, set_option, tag};
use crate::mmap::Region;

const TPACKET_V3: libc::c_int = 2;
const TP_STATUS_KERNEL: u32 = 0;
const TP_STATUS_USER: u32 = 1;

/// The size of a ring, and the time after which its blocks are handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a block: a power of two, at least a page.
    pub block: u32,
    pub blocks: u32,
    /// A block that is not full is handed over after this.
    pub patience: Duration,
}

/// A capturing socket with its ring.
#[derive(Debug)]
pub struct Ring {
    socket: Socket,
    region: Region,
    shape: Shape,
    next: u32,
}

impl Ring {
    /// Sets the ring up, then starts to capture into it.
    pub fn open(capture: &Capture, shape: Shape) -> io::Result<Self> {
        let socket = Socket::open()?;
        let set = |name, value: libc::c_int| set_option(&socket, libc::SOL_PACKET, name, &value);
        set(libc::PACKET_VERSION, TPACKET_V3)?;
        set(
            libc::PACKET_RESERVE,
            libc::c_int::try_from(TAG).unwrap_or(0),
        )?;
        let request = libc::tpacket_req3 {
            tp_block_size: shape.block,
            tp_block_nr: shape.blocks,
            // Only the product counts: in this version frames lie back to back.
            tp_frame_size: shape.block,
            tp_frame_nr: shape.blocks,
            tp_retire_blk_tov: u32::try_from(shape.patience.as_millis()).unwrap_or(u32::MAX),
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let len = shape.block as usize * shape.blocks as usize;
        let region = Region::shared(&socket, len, 0)?;
        socket.bind(capture)?;
        Ok(Self {
            socket,
            region,
            shape,
            next: 0,
        })
    }

    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    pub fn statistics(&mut self) -> io::Result<Statistics> {
        self.socket.statistics()
    }

    /// Waits until a block is ours, at most this long. An error when the device is down or gone.
    pub fn wait(&self, at_most: Duration) -> io::Result<()> {
        let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
        let mut asked = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        match poll(&mut asked, timeout) {
            Ok(_) if has_failed(&asked[0]) => self.socket.take_error(),
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Hands over every frame of the next block and gives it back; false when none is ours.
    pub fn next_block(&mut self, mut take: impl FnMut(FrameInfo, &[u8])) -> bool {
        let size = self.shape.block as usize;
        // SAFETY: `next` is below the number of blocks, all of which are mapped.
        let start = unsafe { self.region.as_ptr().add(self.next as usize * size) };
        let head = start.cast::<libc::tpacket_block_desc>();
        // SAFETY: a block starts with this header, aligned to a page; the status word is shared with
        // the kernel and read as such.
        let status = unsafe { AtomicU32::from_ptr(&raw mut (*head).hdr.bh1.block_status) };
        if status.load(Ordering::Acquire) & TP_STATUS_USER == 0 {
            return false;
        }
        // SAFETY: the block is ours until its status returns it to the kernel: nothing else reads or writes it.
        let (block, count, first) = unsafe {
            let block = std::slice::from_raw_parts_mut(start, size);
            let bh1 = &(*head).hdr.bh1;
            (block, bh1.num_pkts, bh1.offset_to_first_pkt)
        };
        frames(block, count, first as usize, &mut take);
        status.store(TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.shape.blocks;
        true
    }
}

fn has_failed(asked: &PollFd<'_>) -> bool {
    let failed = |events: PollFlags| events.contains(PollFlags::POLLERR);
    asked.revents().is_some_and(failed)
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Walks the frames of a block. Offsets are the kernel's, yet none is trusted beyond the block.
fn frames(block: &mut [u8], count: u32, first: usize, take: &mut impl FnMut(FrameInfo, &[u8])) {
    let mut at = first;
    for _ in 0..count {
        let Some(bytes) = block.get(at..at + size_of::<libc::tpacket3_hdr>()) else {
            return;
        };
        // SAFETY: the bytes are as many as the header has, and plain data.
        let header: libc::tpacket3_hdr =
            unsafe { bytes.as_ptr().cast::<libc::tpacket3_hdr>().read_unaligned() };
        let mut from = at + usize::from(header.tp_mac);
        let until = from + header.tp_snaplen as usize;
        if until > block.len() {
            return;
        }
        let mut length = header.tp_len;
        let tci = u16::try_from(header.hv1.tp_vlan_tci & 0xffff).unwrap_or(0);
        if let Some(tag) = tag(header.tp_status, tci, header.hv1.tp_vlan_tpid) {
            from = put_tag(&mut block[..until], from, tag);
            length += u32::try_from(TAG).unwrap_or(0);
        }
        let info = FrameInfo {
            time_ns: i64::from(header.tp_sec) * 1_000_000_000 + i64::from(header.tp_nsec),
            length,
        };
        take(info, &block[from..until]);
        if header.tp_next_offset == 0 {
            return;
        }
        at += header.tp_next_offset as usize;
    }
}
