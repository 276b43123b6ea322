//! Compiles the BPF program that looks up in the kernel.

use std::env;
use std::path::{Path, PathBuf};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    bpf::compile(Path::new("bpf/lookup.bpf.c"), &out.join("lookup.bpf.o"));
    for watched in ["bpf", "../router/bpf", "../bpf/include"] {
        println!("cargo:rerun-if-changed={watched}");
    }
}
