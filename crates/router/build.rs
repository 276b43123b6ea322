//! Compiles the router's BPF programs into objects that the crate carries.

use std::env;
use std::path::{Path, PathBuf};

const PROGRAMS: [&str; 2] = ["router", "steer"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    for program in PROGRAMS {
        let source = Path::new("bpf").join(format!("{program}.bpf.c"));
        bpf::compile(&source, &out.join(format!("{program}.bpf.o")));
    }
}
