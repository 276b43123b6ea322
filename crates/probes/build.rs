//! Compiles the probes' BPF programs.

fn main() {
    bpf::build("bpf/delay.bpf.c");
    bpf::build("bpf/disturb.bpf.c");
    bpf::build("bpf/accountant.bpf.c");
    bpf::build("bpf/account_replay.bpf.c");
    bpf::build("bpf/foreign.bpf.c");
    bpf::build("bpf/stacks.bpf.c");
}
