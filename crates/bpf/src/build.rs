//! Compiles a BPF program and generates its skeleton, from a crate's build script.

use std::env;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

use crate::plain_types;

/// Compiles `bpf/NAME.bpf.c` of the calling crate into `OUT_DIR/NAME.skel.rs`.
///
/// # Panics
/// When the program does not compile: the compiler's message is the panic's.
pub fn build(source: &str) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    let name = Path::new(source)
        .file_name()
        .and_then(|name| name.to_str())
        .and_then(|name| name.strip_suffix(".bpf.c"))
        .expect("a BPF program is named NAME.bpf.c");
    let object = out.join(format!("{name}.bpf.o"));
    let skeleton = out.join(format!("{name}.skel.rs"));
    compiler(source.as_ref())
        .obj(&object)
        .build_and_generate(&skeleton)
        .unwrap_or_else(|error| panic!("{source}: {error:#}"));
    OpenOptions::new()
        .append(true)
        .open(&skeleton)
        .and_then(|mut file| file.write_all(plain_types::implementations(&object).as_bytes()))
        .unwrap_or_else(|error| panic!("{}: {error}", skeleton.display()));
    for watched in [Path::new("bpf"), headers().as_path()] {
        #[expect(
            clippy::print_stdout,
            reason = "cargo reads build scripts from standard output"
        )]
        {
            println!("cargo:rerun-if-changed={}", watched.display());
        }
    }
}

/// Compiles a program into an object file without a skeleton: for tests that compile what they
/// load.
///
/// # Panics
/// When the program does not compile: the compiler's message is the panic's.
pub fn compile(source: &Path, object: &Path) {
    compiler(source)
        .obj(object)
        .build()
        .unwrap_or_else(|error| panic!("{}: {error:#}", source.display()));
}

fn compiler(source: &Path) -> SkeletonBuilder {
    let mut builder = SkeletonBuilder::new();
    builder.source(source).clang_args([
        "-I".into(),
        headers().into_os_string(),
        "-Wall".into(),
        "-Werror".into(),
        "-Wno-unused-function".into(),
        // Atomic operations that return what they replaced, 32-bit registers; Linux 5.12.
        "-mcpu=v3".into(),
        // BTF names the source files: as the repository does, wherever it lies.
        prefix_map(),
    ]);
    builder
}

fn prefix_map() -> OsString {
    let mut argument = OsString::from("-ffile-prefix-map=");
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    argument.push(repository.expect("the crate is two folders below the repository"));
    argument.push("=.");
    argument
}

fn headers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}
