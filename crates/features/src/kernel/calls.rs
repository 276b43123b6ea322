//! Calls of libbpf that libbpf-rs does not cover: running a program on this CPU, and loading an empty one.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use bpf::Run;
use libbpf_rs::libbpf_sys;

/// Runs an XDP program `times` times on the thread's CPU. Softirqs are disabled during each run.
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

/// Loads an XDP program that only passes every frame.
pub(super) fn load_empty() -> io::Result<OwnedFd> {
    const XDP_PASS: i32 = 2;
    let mut code = [libbpf_sys::bpf_insn::default(); 2];
    // r0 = XDP_PASS; exit
    (code[0].code, code[0].imm) = (0xb7, XDP_PASS);
    code[1].code = 0x95;
    // SAFETY: the name, the licence and the two instructions outlive the call.
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
    // SAFETY: the descriptor was just created and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(program) })
}
