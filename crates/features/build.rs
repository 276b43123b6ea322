//! Compiles the BPF programs that make packets and flows in the kernel.

fn main() {
    bpf::build("bpf/fanout.bpf.c");
    bpf::build("bpf/flow.bpf.c");
    bpf::build("bpf/flow_tc.bpf.c");
    bpf::build("bpf/hand_over.bpf.c");
    bpf::build("bpf/packets.bpf.c");
}
