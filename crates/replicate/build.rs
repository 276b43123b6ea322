//! Compiles the BPF programs that see what happens to files.

fn main() {
    bpf::build("bpf/capture.bpf.c");
}
