//! Compiles the BPF programs of router trials: lookups in the kernel, and a peer and a sink of
//! forwarding.

use std::env;
use std::path::{Path, PathBuf};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    bpf::compile(Path::new("bpf/lookup.bpf.c"), &out.join("lookup.bpf.o"));
    bpf::build("bpf/forward.bpf.c");
    for watched in ["bpf", "../router/bpf", "../bpf/include"] {
        println!("cargo:rerun-if-changed={watched}");
    }
}
