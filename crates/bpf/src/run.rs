//! Runs a program on a frame without a device (`BPF_PROG_TEST_RUN`).

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use libbpf_rs::libbpf_sys::{self, bpf_test_run_opts};

/// The input of a test run of a program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Run<'a> {
    pub frame: &'a [u8],
    /// The program's context, as the kernel's `struct xdp_md` or `struct __sk_buff`; may be empty.
    pub context: &'a [u8],
    /// How often; 0 is once.
    pub repeat: u64,
    /// The kernel acts on the verdict of each run, as for a frame that came by a device. XDP only.
    pub live: bool,
    /// For live frames, the size of the kernel's batches; 0 leaves it to the kernel.
    pub batch: usize,
}

/// Runs a program on the calling thread's CPU; the duration of one run in nanoseconds, as the kernel
/// measures it.
///
/// # Errors
/// The program is of a kind that the kernel does not run so, or the frame is too short or too long.
pub fn run(program: impl AsFd, run: &Run<'_>) -> io::Result<u32> {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(io::Error::other);
    let mut options = bpf_test_run_opts {
        sz: size_of::<bpf_test_run_opts>() as _,
        data_in: run.frame.as_ptr().cast(),
        data_size_in: length(run.frame)?,
        repeat: i32::try_from(run.repeat).unwrap_or(i32::MAX),
        batch_size: u32::try_from(run.batch).unwrap_or(0),
        ..Default::default()
    };
    if !run.context.is_empty() {
        options.ctx_in = run.context.as_ptr().cast();
        options.ctx_size_in = length(run.context)?;
    }
    if run.live {
        options.flags = libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES;
    }
    let program = program.as_fd().as_raw_fd();
    // SAFETY: frame, context and options outlive the call, and their sizes are theirs.
    let result = unsafe { libbpf_sys::bpf_prog_test_run_opts(program, &raw mut options) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    Ok(options.duration)
}
