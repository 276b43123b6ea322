//! Compiles the router's BPF programs.

fn main() {
    bpf::build("bpf/router.bpf.c");
    bpf::build("bpf/steer.bpf.c");
}
