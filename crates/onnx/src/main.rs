//! `lowroad-onnx`: evaluates one ONNX model for the program that starts it, as `onnx_protocol` describes.
//!
//! A process of its own, because the evaluator is large and takes long to build, and most programs need none.
#![expect(
    clippy::print_stdout,
    reason = "a program prints its usage and its version"
)]
#![expect(clippy::print_stderr, reason = "a program says why it ends")]

mod budget;
mod graph;
mod inputs;
mod network;
mod output;
mod plain;
mod serve;
mod trees;

use std::process::ExitCode;

use datapath::{Classify as _, ErrorClass};

const USAGE: &str =
    "lowroad-onnx evaluates ONNX models for lowroad and its Python package, which start it.
It takes no arguments except --help and --version.
";

fn main() -> ExitCode {
    let argument = std::env::args_os().nth(1);
    match argument.as_ref().map(|argument| argument.to_str()) {
        None => {}
        Some(Some("-h" | "--help")) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Some(Some("-V" | "--version")) => {
            println!("lowroad-onnx {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Some(_) => {
            eprint!("{USAGE}");
            return exit_code(ErrorClass::Input);
        }
    }
    match serve::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lowroad-onnx: {error}");
            exit_code(error.class())
        }
    }
}

fn exit_code(class: ErrorClass) -> ExitCode {
    ExitCode::from(class.exit_code())
}
