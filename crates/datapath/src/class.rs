//! The class of an error, which decides the exit code of a program that ends with it.
//!
//! Each error type states its class where it is defined; programs only convert classes to exit codes.

use std::error::Error;

use super::Missing;

/// What a user can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The program tried and did not succeed; another attempt may succeed.
    Failed,
    /// The arguments or the input are wrong; another attempt fails as well.
    Input,
    /// This machine cannot run what was requested.
    Missing,
}

impl ErrorClass {
    /// The exit code of a program that ends with an error of this class.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Input => 2,
            Self::Missing => 3,
        }
    }
}

/// An error that states its class.
pub trait Classify: Error {
    fn class(&self) -> ErrorClass;

    /// What this machine lacks, for an error of class [`ErrorClass::Missing`]. Each entry names the part
    /// that needs it; the name is empty if the error does not know it.
    fn missing(&self) -> Vec<(String, Missing)> {
        vec![(String::new(), Missing::new(self.to_string(), ""))]
    }
}

impl Classify for Missing {
    fn class(&self) -> ErrorClass {
        ErrorClass::Missing
    }

    fn missing(&self) -> Vec<(String, Missing)> {
        vec![(String::new(), self.clone())]
    }
}

impl Classify for super::Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Missing(_) => ErrorClass::Missing,
            Self::Plan(_) => ErrorClass::Input,
            Self::Failed { .. } => ErrorClass::Failed,
        }
    }

    fn missing(&self) -> Vec<(String, Missing)> {
        match self {
            Self::Missing(missing) => missing.missing(),
            Self::Plan(_) | Self::Failed { .. } => Vec::new(),
        }
    }
}
