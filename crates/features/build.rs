//! Compiles the BPF programs that make packets and flows in the kernel.

fn main() {
    bpf::build("bpf/flow.bpf.c");
    bpf::build("bpf/packets.bpf.c");
}
