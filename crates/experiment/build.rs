//! Lists the experiments that ship, and compiles the BPF programs of router trials: lookups in the kernel, and a peer
//! and a sink of forwarding.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The experiments that ship are the files in this folder.
const EXPERIMENTS: &str = "../../experiments";
/// The programs that ship as arms are the files in this folder, in a folder for each job.
const ARMS: &str = "../../experiments/arms";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    bpf::compile(Path::new("bpf/lookup.bpf.c"), &out.join("lookup.bpf.o"));
    bpf::build("bpf/forward.bpf.c");
    fs::write(out.join("shipped.rs"), shipped()).expect("OUT_DIR can be written");
    fs::write(out.join("shipped_arms.rs"), shipped_arms()).expect("OUT_DIR can be written");
    for watched in ["bpf", "../router/bpf", "../bpf/include", EXPERIMENTS] {
        println!("cargo:rerun-if-changed={watched}");
    }
}

/// A constant with the text of each experiment, sorted by the names of their files.
fn shipped() -> String {
    let files = entries(Path::new(EXPERIMENTS));
    let files = files.iter().filter(|path| is_toml(path));
    let lines = files.map(|file| format!("    include_str!({file:?}),\n"));
    format!(
        "pub(crate) const SHIPPED: &[&str] = &[\n{}];\n",
        lines.collect::<String>()
    )
}

/// A constant with the job, the name and the text of each arm, sorted by job and name.
fn shipped_arms() -> String {
    let name = |path: &Path| {
        let stem = path.file_stem().expect("an entry has a name");
        stem.to_string_lossy().into_owned()
    };
    let mut lines = String::new();
    for folder in entries(Path::new(ARMS)) {
        for file in entries(&folder).iter().filter(|path| is_toml(path)) {
            let (job, arm) = (name(&folder), name(file));
            lines.push_str(&format!(
                "    ({job:?}, {arm:?}, include_str!({file:?})),\n"
            ));
        }
    }
    format!("const SHIPPED_ARMS: &[(&str, &str, &str)] = &[\n{lines}];\n")
}

/// The entries of a folder, sorted by name.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let folder = fs::canonicalize(folder).expect("the folder exists");
    let entries = fs::read_dir(&folder).expect("the folder can be read");
    let paths = entries.map(|entry| entry.expect("an entry of the folder").path());
    let mut paths: Vec<PathBuf> = paths.collect();
    paths.sort();
    paths
}

fn is_toml(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "toml")
}
