//! The integration tests of `onnx-protocol`: one program, one module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod replies;
