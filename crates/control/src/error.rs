//! The one error that crosses the control interface, as it is in JSON.

use std::fmt;

use datapath::{Classify, ErrorClass, Missing};
use serde::{Deserialize, Serialize};

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub kind: Kind,
    /// One line: what is wrong, and what to do where that is not obvious.
    pub message: String,
}

/// The kind of an error: what a caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Correct the request: it is not JSON, or its parameters do not fit the method.
    BadRequest,
    /// Send less: the request is over the size limit.
    TooLarge,
    /// Show the token.
    Unauthorised,
    /// There is no such method.
    UnknownMethod,
    /// The thing the request names does not exist.
    NotFound,
    /// The thing exists already, or is in a state that does not allow it.
    Conflict,
    /// This machine cannot do it.
    Missing,
    /// It was attempted and did not work.
    Failed,
    /// The endpoint does not answer.
    Unreachable,
}

impl Error {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// The request cannot be understood.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Kind::BadRequest, message)
    }

    /// The request is over the limit of `bytes`.
    pub(crate) fn too_large(bytes: usize) -> Self {
        let message = format!("the request is longer than {bytes} bytes");
        Self::new(Kind::TooLarge, message)
    }

    /// The named thing does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, message)
    }

    /// It was attempted and did not work.
    pub fn failed(message: impl fmt::Display) -> Self {
        Self::new(Kind::Failed, message.to_string())
    }

    /// No method of this name.
    pub fn unknown_method(method: &str) -> Self {
        Self::new(Kind::UnknownMethod, format!("no method \"{method}\""))
    }
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self.kind {
            Kind::BadRequest
            | Kind::TooLarge
            | Kind::UnknownMethod
            | Kind::NotFound
            | Kind::Unauthorised => ErrorClass::Input,
            Kind::Missing => ErrorClass::Missing,
            Kind::Conflict | Kind::Failed | Kind::Unreachable => ErrorClass::Failed,
        }
    }

    /// The message is what [`datapath::Error`] displays: what is missing and the remedy, with "; " between.
    fn missing(&self) -> Vec<(String, Missing)> {
        let (what, remedy) = self.message.split_once("; ").unwrap_or((&self.message, ""));
        vec![(String::new(), Missing::new(what, remedy))]
    }
}
