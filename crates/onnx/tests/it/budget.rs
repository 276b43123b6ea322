//! A model takes no more memory and time than one of its size may.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use features::model::{Classifier, Search};

use super::{load, stored_models};

/// A field of a message in the encoding of protocol buffers.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = |bits: usize| u8::try_from(bits).unwrap();
    let mut field = vec![number << 3 | 2];
    if bytes.len() > 127 {
        field.push(length(bytes.len() & 0x7f) | 0x80);
        field.push(length(bytes.len() >> 7));
    } else {
        field.push(length(bytes.len()));
    }
    field.extend(bytes);
    field
}

fn number(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

const FLOAT: u8 = 1;
const INT64: u8 = 7;

fn tensor(name: &str, kind: u8, dims: &[u8], data: &[u8]) -> Vec<u8> {
    let dims = dims.iter().map(|dim| number(1, *dim)).collect::<Vec<_>>();
    let parts = [
        dims.concat(),
        number(2, kind),
        field(8, name.as_bytes()),
        field(9, data),
    ];
    field(5, &parts.concat())
}

fn node(operator: &str, inputs: &[&str], output: &str, attribute: &[u8]) -> Vec<u8> {
    let inputs = inputs
        .iter()
        .map(|name| field(1, name.as_bytes()))
        .collect::<Vec<_>>();
    let parts = [
        inputs.concat(),
        field(2, output.as_bytes()),
        field(4, operator.as_bytes()),
        attribute.to_vec(),
    ];
    field(1, &parts.concat())
}

/// A matrix of numbers with this many columns and any number of rows.
fn value(place: u8, name: &str, columns: u8) -> Vec<u8> {
    let rows = field(1, &field(2, b"N"));
    let shape = [rows, field(1, &number(1, columns))].concat();
    let kind = [number(1, FLOAT), field(2, &shape)].concat();
    field(
        place,
        &[field(1, name.as_bytes()), field(2, &field(1, &kind))].concat(),
    )
}

/// A model of few bytes that makes this many numbers and adds them up.
fn summing(count: i64) -> Vec<u8> {
    let keep_no_dimensions = field(
        5,
        &[field(1, b"keepdims"), number(3, 0), vec![0xa0, 1, 2]].concat(),
    );
    let graph = [
        node("MatMul", &["x", "weights"], "y", &[]),
        node("ConstantOfShape", &["shape"], "many", &[]),
        node("ReduceSum", &["many"], "sum", &keep_no_dimensions),
        node("Add", &["y", "sum"], "z", &[]),
        node("Softmax", &["z"], "probabilities", &[]),
        field(2, b"graph"),
        tensor("weights", FLOAT, &[6, 2], &[0; 48]),
        tensor("shape", INT64, &[1], &count.to_le_bytes()),
        value(11, "x", 6),
        value(12, "probabilities", 2),
    ];
    let operators = field(8, &[field(1, b""), number(2, 13)].concat());
    [number(1, 8), field(7, &graph.concat()), operators].concat()
}

fn write(folder: &Path, model: &[u8]) -> std::path::PathBuf {
    let manifest = stored_models::folder().join("plain-2.toml");
    let path = folder.join("plain-2.toml");
    std::fs::copy(manifest, &path).unwrap();
    std::fs::write(path.with_extension("onnx"), model).unwrap();
    path
}

#[test]
fn a_small_file_that_asks_for_much_memory_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    load(&write(folder.path(), &summing(1000))).unwrap();
    let error = load(&write(folder.path(), &summing(1 << 30)))
        .unwrap_err()
        .to_string();
    assert!(error.contains("memory than"), "{error}");
    assert!(!error.contains('\n'), "{error}");
}

/// An evaluator that is ended as the kernel ends one that has used up its time or memory.
#[test]
fn an_evaluator_that_is_ended_for_its_budget_is_explained() {
    for (signal, why) in [("XCPU", "CPU time than"), ("ABRT", "memory than")] {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("lowroad-onnx");
        // It greets, reads the request to load a model, and ends.
        let greeting = r#"{"hello":{"protocol":1}}"#;
        let script = format!(
            "#!/usr/bin/env python3\n\
             import os, signal, socket, struct\n\
             s = socket.socket(fileno=0)\n\
             s.recv(65536)\n\
             reply = b'{greeting}'\n\
             s.sendall(struct.pack('<I', len(reply)) + reply)\n\
             s.recv(65536)\n\
             os.kill(os.getpid(), signal.SIG{signal})\n"
        );
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let search = Search::in_folder_of(&program);
        let model = stored_models::folder().join("plain-2.toml");
        let error = Classifier::load(&model, &search).unwrap_err().to_string();
        assert!(error.contains(why), "{signal}: {error}");
    }
}
