//! Compiles and loads the programs under tests/bpf.

use std::path::Path;

use libbpf_rs::{Object, ObjectBuilder};

/// Compiles tests/bpf/NAME.bpf.c and loads it.
pub(crate) fn load(name: &str) -> Object {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/bpf/{name}.bpf.c"));
    let folder = tempfile::tempdir().expect("a writable temporary folder");
    let object = folder.path().join(format!("{name}.bpf.o"));
    bpf::compile(&source, &object);
    ObjectBuilder::default()
        .open_file(&object)
        .expect("a well-formed object")
        .load()
        .unwrap_or_else(|error| panic!("{name}: {error:#}"))
}
