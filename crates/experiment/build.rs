//! Lists the experiments that ship, and compiles the BPF programs of router trials: lookups in the kernel, and a peer
//! and a sink of forwarding.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The experiments that ship are the files in this folder.
const EXPERIMENTS: &str = "../../experiments";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    bpf::compile(Path::new("bpf/lookup.bpf.c"), &out.join("lookup.bpf.o"));
    bpf::build("bpf/forward.bpf.c");
    fs::write(out.join("shipped.rs"), shipped()).expect("OUT_DIR can be written");
    for watched in ["bpf", "../router/bpf", "../bpf/include", EXPERIMENTS] {
        println!("cargo:rerun-if-changed={watched}");
    }
}

/// A constant with the text of each experiment, sorted by the names of their files.
fn shipped() -> String {
    let folder = fs::canonicalize(EXPERIMENTS).expect("there are experiments");
    let entries = fs::read_dir(&folder).expect("the folder of experiments can be read");
    let paths = entries.map(|entry| entry.expect("an entry of the folder").path());
    let mut files: Vec<PathBuf> = paths
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .collect();
    files.sort();
    let lines = files
        .iter()
        .map(|file| format!("    include_str!({file:?}),\n"));
    format!(
        "pub(crate) const SHIPPED: &[&str] = &[\n{}];\n",
        lines.collect::<String>()
    )
}
