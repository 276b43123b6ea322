//! Compiles the relay's BPF programs.

fn main() {
    bpf::build("bpf/steer.bpf.c");
    bpf::build("bpf/tc.bpf.c");
    bpf::build("bpf/xdp.bpf.c");
}
