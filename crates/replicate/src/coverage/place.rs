//! A hidden folder for tests, which is removed at the end.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::Error;

#[derive(Debug)]
pub(super) struct Place(PathBuf);

impl Place {
    pub(super) fn make(directory: &Path) -> Result<Self, Error> {
        let name = format!(".lowroad-coverage-{:016x}", fastrand::u64(..));
        let path = directory.join(name);
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => Ok(Self(path)),
            Err(cause) => Err(Error::Place {
                path: directory.to_owned(),
                cause,
            }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn name(index: usize) -> String {
        format!("{index:02}")
    }

    /// The folder of one operation.
    pub(super) fn folder(&self, index: usize) -> PathBuf {
        self.0.join(Self::name(index))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // An error cannot be reported here. What remains is a hidden folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}
