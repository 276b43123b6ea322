//! Compiles the generator's and the far end's BPF programs.

fn main() {
    bpf::build("bpf/live.bpf.c");
    bpf::build("bpf/far_end.bpf.c");
}
