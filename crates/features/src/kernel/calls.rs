//! Calls of libbpf that need more than libbpf-rs asks: reading a table from where one stopped, and
//! running a program on this CPU.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use bpf::Run;
use libbpf_rs::libbpf_sys;

/// A place in a hash table that is read in batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor(Option<u32>);

/// Keys and values side by side, as many as `count`.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) keys: Vec<u8>,
    pub(super) values: Vec<u8>,
    pub(super) count: usize,
    room: u32,
    key_size: usize,
    value_size: usize,
}

impl Batch {
    pub(super) fn new(key_size: usize, value_size: usize, room: u32) -> Self {
        let mut batch = Self {
            keys: Vec::new(),
            values: Vec::new(),
            count: 0,
            room: 0,
            key_size,
            value_size,
        };
        batch.widen(room);
        batch
    }

    /// Entries that one call reads at most.
    pub(super) fn room(&self) -> usize {
        usize::try_from(self.room).unwrap_or(usize::MAX)
    }

    fn widen(&mut self, room: u32) {
        let entries = usize::try_from(room).unwrap_or(0);
        self.room = room;
        self.keys.resize(entries * self.key_size, 0);
        self.values.resize(entries * self.value_size, 0);
    }

    /// Reads on from the cursor; whether there is more.
    pub(super) fn read(&mut self, map: impl AsFd, cursor: &mut Cursor) -> io::Result<bool> {
        loop {
            match self.attempt(map.as_fd().as_raw_fd(), cursor) {
                // One bucket has more entries than there is room for.
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => {
                    self.widen(self.room * 2);
                }
                result => return result,
            }
        }
    }

    fn attempt(&mut self, map: i32, cursor: &mut Cursor) -> io::Result<bool> {
        let mut from = cursor.0;
        let mut next = 0_u32;
        let mut count = self.room;
        let options = libbpf_sys::bpf_map_batch_opts {
            sz: size_of::<libbpf_sys::bpf_map_batch_opts>() as _,
            ..Default::default()
        };
        let from = from
            .as_mut()
            .map_or(std::ptr::null_mut(), std::ptr::from_mut);
        // SAFETY: keys and values have room for `count` entries of the map's sizes, a hash table's
        // cursor is 32 bits, and all outlive the call.
        let result = unsafe {
            libbpf_sys::bpf_map_lookup_batch(
                map,
                from.cast(),
                (&raw mut next).cast(),
                self.keys.as_mut_ptr().cast(),
                self.values.as_mut_ptr().cast(),
                &raw mut count,
                &raw const options,
            )
        };
        let at_end = result == -libc::ENOENT;
        if result < 0 && !at_end {
            return Err(io::Error::from_raw_os_error(-result));
        }
        self.count = usize::try_from(count).unwrap_or(0);
        cursor.0 = (!at_end).then_some(next);
        Ok(!at_end)
    }
}

/// Runs an XDP program so many times on the CPU that the thread is on, softirqs off during each.
pub(super) fn run_live(program: impl AsFd, times: u32) -> io::Result<()> {
    let run = Run {
        frame: &[0; 64],
        repeat: times.into(),
        live: true,
        batch: 1,
        ..Default::default()
    };
    bpf::run(program, &run).map(drop)
}

/// Loads an XDP program that passes every frame and does nothing else.
pub(super) fn load_empty() -> io::Result<OwnedFd> {
    const XDP_PASS: i32 = 2;
    let mut code = [libbpf_sys::bpf_insn::default(); 2];
    // r0 = XDP_PASS; exit
    (code[0].code, code[0].imm) = (0xb7, XDP_PASS);
    code[1].code = 0x95;
    // SAFETY: the name, the licence and the instructions outlive the call, and there are two of them.
    let program = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_XDP,
            c"empty".as_ptr(),
            c"GPL".as_ptr(),
            code.as_ptr(),
            2,
            std::ptr::null_mut(),
        )
    };
    if program < 0 {
        return Err(io::Error::from_raw_os_error(-program));
    }
    // SAFETY: the descriptor was just made, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(program) })
}
