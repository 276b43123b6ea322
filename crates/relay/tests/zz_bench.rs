#![allow(clippy::all, clippy::pedantic, clippy::nursery, clippy::restriction)]
mod common;
use common::frame::Frame;
use common::*;
use libbpf_rs::libbpf_sys;
use relay::plan::Plan;
use relay::xdp::Xdp;
use std::os::fd::AsRawFd;
#[test]
fn bench() {
    let rig = Rig::new();
    for (s, d) in [(SENDER, INGEST), (SENDER6, INGEST6)] {
        for size in [20, 200, 1200] {
            let plan = Plan { streams: vec![rig.stream(16, d)], ..Plan::default() };
            let running = rig.start(&Xdp, &plan);
            let program = rig.xdp_program();
            let frame = Frame::new(s, d, size).bytes();
            let mut best = u32::MAX;
            for _ in 0..15 {
                let dur = rig.relay.run(|| {
                    let length = frame.len() as u32;
                    let context: [u32; 6] = [0, length, 0, rig.ingress, 0, 0];
                    let mut out = vec![0u8; frame.len() + 256];
                    let mut o = libbpf_sys::bpf_test_run_opts {
                        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
                        data_in: frame.as_ptr().cast(), data_size_in: length,
                        ctx_in: context.as_ptr().cast(), ctx_size_in: 24, repeat: 20000,
                        data_out: out.as_mut_ptr().cast(), data_size_out: out.len() as u32,
                        ..Default::default()
                    };
                    let r = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut o) };
                    assert_eq!(r, 0); assert_eq!(o.retval, REDIRECT);
                    o.duration
                });
                best = best.min(dur);
            }
            println!("{d} {size} B: {best} ns");
            drop(running);
        }
    }
}
