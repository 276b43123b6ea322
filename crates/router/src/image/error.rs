//! Why an image cannot be made or taken.

use std::io;

use datapath::{Classify, ErrorClass};

use super::container::{ContainerError, VERSION};

/// What is wrong with an image, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{file}: no table image: lowroad router build makes one")]
    Foreign { file: String },
    #[error(
        "{file}: a table image of version {version}, where this lowroad reads {VERSION}: build it again from its sources"
    )]
    Version { file: String, version: u32 },
    #[error("{file}: {what}: build it again from its sources")]
    Damaged { file: String, what: String },
    #[error("{file}: {cause}")]
    Read { file: String, cause: io::Error },
    #[error("{file}: cannot be written: {cause}")]
    Write { file: String, cause: io::Error },
    #[error(
        "{hops} next hops of IPv4, where a table of bytes holds 254: --layout mixed and --layout words hold 32767"
    )]
    Bytes { hops: usize },
    #[error(transparent)]
    Routes(#[from] crate::Error),
    #[error(transparent)]
    Table(#[from] lpm::Error),
}

/// An [`Error`] of a file whose name the caller knows.
#[derive(Debug)]
pub(super) enum Fault {
    Container(ContainerError),
    Section { name: String, what: String },
    Table(lpm::Error),
}

impl Error {
    pub(super) fn broken(file: &str, broken: &ContainerError) -> Self {
        let file = file.to_owned();
        let what = match broken {
            ContainerError::Foreign => return Self::Foreign { file },
            ContainerError::Version(version) => {
                let version = *version;
                return Self::Version { file, version };
            }
            ContainerError::Short { bytes, whole } => {
                format!("cut off: {bytes} bytes of a table image of {whole}")
            }
            ContainerError::Long { bytes, whole } => {
                format!("{bytes} bytes, where the table image in it has {whole}")
            }
            ContainerError::Checksum => {
                "damaged: its content is not that of its checksum".to_owned()
            }
            ContainerError::Sections(what) => format!("a table image with {what}"),
        };
        Self::Damaged { file, what }
    }
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Write { .. } | Self::Table(lpm::Error::Memory { .. }) => ErrorClass::Failed,
            Self::Foreign { .. }
            | Self::Version { .. }
            | Self::Damaged { .. }
            | Self::Read { .. }
            | Self::Bytes { .. }
            | Self::Routes(_)
            | Self::Table(_) => ErrorClass::Input,
        }
    }
}

impl Fault {
    pub(super) fn section(name: &str, what: &str) -> Self {
        Self::Section {
            name: name.to_owned(),
            what: what.to_owned(),
        }
    }

    pub(super) fn of(self, file: &str) -> Error {
        match self {
            Self::Container(broken) => Error::broken(file, &broken),
            Self::Section { name, what } => Error::Damaged {
                file: file.to_owned(),
                what: format!("the section {name} {what}"),
            },
            Self::Table(error @ lpm::Error::Memory { .. }) => error.into(),
            Self::Table(error) => Error::Damaged {
                file: file.to_owned(),
                what: error.to_string(),
            },
        }
    }
}

impl From<ContainerError> for Fault {
    fn from(broken: ContainerError) -> Self {
        Self::Container(broken)
    }
}

impl From<lpm::Error> for Fault {
    fn from(error: lpm::Error) -> Self {
        Self::Table(error)
    }
}
