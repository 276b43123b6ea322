//! Where the evaluator's executable is.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use datapath::Missing;

/// The evaluator's file name.
pub const PROGRAM: &str = "lowroad-onnx";

/// Where the evaluator is looked for: in one folder, then in `PATH`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search(Option<PathBuf>);

impl Search {
    /// Looks first in the folder of the running program.
    pub fn in_folder_of_program() -> Self {
        env::current_exe().map_or_else(|_| Self(None), |program| Self::in_folder_of(&program))
    }

    /// Looks first in the folder of this file, after resolving symbolic links.
    pub fn in_folder_of(file: &Path) -> Self {
        // The file may have been replaced since it was started; its folder still exists.
        let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
        Self(file.parent().map(Path::to_owned))
    }

    /// The executable's path.
    ///
    /// # Errors
    /// No folder has the executable; the error has the remedy.
    pub fn find(&self) -> Result<PathBuf, Missing> {
        self.among(env::var_os("PATH").as_deref())
    }

    fn among(&self, path: Option<&OsStr>) -> Result<PathBuf, Missing> {
        let in_path = path.into_iter().flat_map(env::split_paths);
        // A relative entry names another program in each working directory.
        let folders = self.0.clone().into_iter().chain(in_path);
        let mut programs = folders
            .filter(|folder| folder.is_absolute())
            .map(|folder| folder.join(PROGRAM));
        programs
            .find(|program| is_executable(program))
            .ok_or_else(|| missing(format!("needs {PROGRAM}, which evaluates ONNX models")))
    }
}

/// Why the evaluator cannot be used, with the remedy for all such reasons.
pub(crate) fn missing(what: String) -> Missing {
    let remedy = format!(
        "build it with `cargo build --release --bin {PROGRAM}`, or install the one of this version beside lowroad"
    );
    Missing::new(what, remedy)
}

fn is_executable(program: &Path) -> bool {
    let file = fs::metadata(program);
    file.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder with an executable of the evaluator's name.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(PROGRAM);
        fs::write(&program, "").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        folder
    }

    #[test]
    fn beside_comes_before_path() {
        let (beside, in_path, empty) = (folder(), folder(), tempfile::tempdir().unwrap());
        let path = Some(in_path.path().as_os_str());
        let own = fs::canonicalize(beside.path()).unwrap();
        let search = Search::in_folder_of(&beside.path().join(PROGRAM));
        assert_eq!(search.among(path), Ok(own.join(PROGRAM)));
        let search = Search::in_folder_of(&empty.path().join("lowroad"));
        assert_eq!(search.among(path), Ok(in_path.path().join(PROGRAM)));
        let missing = search.among(None).unwrap_err();
        assert_eq!(
            missing.what,
            "needs lowroad-onnx, which evaluates ONNX models"
        );
        assert!(missing.remedy.contains("cargo build"), "{missing:?}");
    }

    #[test]
    fn links_to_the_program_are_resolved() {
        let (beside, links) = (folder(), tempfile::tempdir().unwrap());
        let program = beside.path().join("lowroad");
        fs::write(&program, "").unwrap();
        let link = links.path().join("lowroad");
        symlink(&program, &link).unwrap();
        let own = fs::canonicalize(beside.path()).unwrap();
        assert_eq!(
            Search::in_folder_of(&link).among(None),
            Ok(own.join(PROGRAM))
        );
    }

    #[test]
    fn only_absolute_executables_are_taken() {
        let folder = folder();
        let program = folder.path().join(PROGRAM);
        fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
        let search = Search::in_folder_of(&folder.path().join("lowroad"));
        assert!(search.among(Some(OsStr::new("."))).is_err());
    }
}
