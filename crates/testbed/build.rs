//! Compiles the impaired link's BPF program.

fn main() {
    bpf::build("bpf/to_socket.bpf.c");
}
