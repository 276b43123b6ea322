//! The protocol between a program that scores rows and `lowroad-onnx`, the evaluator of ONNX models.
//!
//! The program starts the evaluator with one end of a socket pair as standard input and with a memory file as
//! standard output. Requests and replies are frames on the socket ([`frame`]); the numbers of a batch are in the
//! memory file ([`memory`]). Each request has one reply, except [`Request::Bye`].
//!
//! A session is: [`Request::Hello`], [`Request::Load`], any number of [`Request::Score`], [`Request::Bye`]. The
//! evaluator also ends when the socket is closed, so that it does not outlive the program.

pub mod budget;
mod client;
mod find;
pub mod frame;
pub mod memory;

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use client::{Evaluator, LoadError, ScoreError, Scores};
pub use find::{PROGRAM, Search};

/// Both sides must have the same one. [`Request::Hello`] and [`Reply::Hello`] never change.
pub const VERSION: u32 = 1;

/// What the program asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    Hello {
        protocol: u32,
    },
    Load(Model),
    /// Score the rows whose inputs are in the memory file.
    Score {
        rows: usize,
    },
    Bye,
}

/// What the evaluator answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    Hello {
        protocol: u32,
    },
    /// The model is ready; `operators` are evaluated for each batch.
    Loaded {
        operators: usize,
    },
    /// The scores are in the memory file.
    Scored,
    /// The model's file could not be read.
    Unreadable {
        errno: i32,
    },
    /// The model cannot be used, or had no answer. The reason goes on after its name.
    Invalid {
        reason: String,
    },
}

/// A model in ONNX and what its manifest says about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// The path as bytes, which need not be UTF-8.
    file: Vec<u8>,
    /// The inputs, in the model's order.
    pub columns: Vec<Column>,
    /// Whether the rows' columns may be null.
    pub has_nulls: bool,
    pub classes: Vec<String>,
    /// The least probability of the second of two classes.
    pub threshold: f64,
}

/// An input of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Schema and name.
    pub id: String,
    /// Whether its values are whole numbers.
    pub is_integer: bool,
    /// Whether the manifest says which number stands for null; otherwise null is NaN.
    pub replaces_null: bool,
}

impl Model {
    pub fn new(
        file: &Path,
        columns: Vec<Column>,
        has_nulls: bool,
        classes: Vec<String>,
        threshold: f64,
    ) -> Self {
        Self {
            file: file.as_os_str().as_bytes().to_vec(),
            columns,
            has_nulls,
            classes,
            threshold,
        }
    }

    pub fn file(&self) -> PathBuf {
        OsString::from_vec(self.file.clone()).into()
    }
}
