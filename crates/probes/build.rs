//! Compiles the probes' BPF programs.

fn main() {
    bpf::build("bpf/delay.bpf.c");
}
