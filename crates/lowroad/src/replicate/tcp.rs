//! What `serve` and `receive` have in common where they speak TCP.

use std::path::PathBuf;

use replicate::ship::tcp::{Error, Files};

use crate::exit::Failure;

pub(super) fn files(certificate: PathBuf, key: PathBuf, authority: PathBuf) -> Files {
    Files {
        certificate,
        key,
        authority,
    }
}

pub(super) fn failure(error: Error) -> Failure {
    match error {
        Error::File { .. }
        | Error::NotAdmitted(_)
        | Error::NotTrusted(_)
        | Error::Refused { .. }
        | Error::Version(_) => Failure::Input(error.to_string()),
        failed => Failure::Failed(failed.into()),
    }
}
