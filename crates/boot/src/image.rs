//! A guest's whole file system, put together from files of this machine and packed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cpio::Archive;
use crate::{Error, at};

/// The folder of modules in an image. Its file `order` names them, one a line, in the order of loading.
pub const MODULES: &str = "/modules";

/// Files by the paths that they have in the guest.
#[derive(Clone, Debug, Default)]
pub struct Image {
    files: BTreeMap<PathBuf, PathBuf>,
    texts: BTreeMap<PathBuf, String>,
    links: BTreeMap<PathBuf, String>,
    folders: BTreeSet<PathBuf>,
}

impl Image {
    /// An empty folder, such as one to mount a file system on.
    pub fn folder(&mut self, folder: impl Into<PathBuf>) {
        self.folders.insert(folder.into());
    }

    /// A file with this text.
    pub fn text(&mut self, at: impl Into<PathBuf>, text: impl Into<String>) {
        self.texts.insert(at.into(), text.into());
    }

    /// A symbolic link.
    pub fn link(&mut self, at: impl Into<PathBuf>, target: impl Into<String>) {
        self.links.insert(at.into(), target.into());
    }

    /// A file of this machine. All files can be executed.
    pub fn file(&mut self, at: impl Into<PathBuf>, source: impl Into<PathBuf>) {
        self.files.insert(at.into(), source.into());
    }

    /// A program of this machine, with the libraries that it needs under their own paths.
    pub fn program(&mut self, at: impl Into<PathBuf>, source: &Path) {
        self.file(at, source);
        for library in libraries(source) {
            self.file(&library, &library);
        }
    }

    /// A kernel's modules, in the order of their files.
    pub fn modules(&mut self, modules: &[PathBuf]) {
        let mut order = String::new();
        for module in modules {
            let name = module.file_name().unwrap_or_default();
            self.file(Path::new(MODULES).join(name), module);
            order.push_str(&format!("{}\n", name.to_string_lossy()));
        }
        self.text(Path::new(MODULES).join("order"), order);
    }

    /// Packs it into the file `to`; `read` may leave out what of a file the guest has no use for.
    ///
    /// # Errors
    /// When a file cannot be read, or `to` not be written.
    pub fn write(
        &self,
        to: &Path,
        read: impl Fn(&Path) -> io::Result<Vec<u8>>,
    ) -> Result<(), Error> {
        let file = File::create(to).map_err(at(to))?;
        let mut archive = Archive::new(BufWriter::new(file));
        for folder in self.all_folders() {
            archive.folder(&folder.to_string_lossy()).map_err(at(to))?;
        }
        for (path, text) in &self.texts {
            archive
                .program(&path.to_string_lossy(), text.as_bytes())
                .map_err(at(to))?;
        }
        for (path, source) in &self.files {
            let content = read(source).map_err(at(source))?;
            archive
                .program(&path.to_string_lossy(), &content)
                .map_err(at(to))?;
        }
        for (path, target) in &self.links {
            archive
                .link(&path.to_string_lossy(), target)
                .map_err(at(to))?;
        }
        archive.finish().map_err(at(to))
    }

    /// Packs it with every file whole.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_whole(&self, to: &Path) -> Result<(), Error> {
        self.write(to, |source| fs::read(source))
    }

    /// The requested folders and the parents of everything, each after its own parent.
    fn all_folders(&self) -> BTreeSet<&Path> {
        let of_files = self.files.keys().chain(self.texts.keys());
        let holding = of_files
            .chain(self.links.keys())
            .filter_map(|path| path.parent());
        let mut folders: BTreeSet<&Path> = holding
            .chain(self.folders.iter().map(PathBuf::as_path))
            .flat_map(Path::ancestors)
            .collect();
        folders.remove(Path::new("/"));
        folders
    }
}

/// The libraries that a program is linked with; none for a static program, or for another file.
pub fn libraries(program: &Path) -> Vec<PathBuf> {
    let listed = Command::new("ldd").arg(program).output();
    let listed = listed.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&listed)
        .split_whitespace()
        .map(PathBuf::from)
        .filter(|word| word.is_absolute() && word.is_file())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_files_are_there_once_and_before_what_is_in_them() {
        let mut image = Image::default();
        image.folder("/dev");
        image.text("/a/b/c", "text");
        image.link("/a/l", "b");
        let folders: Vec<_> = image.all_folders().into_iter().collect();
        assert_eq!(
            folders,
            [Path::new("/a"), Path::new("/a/b"), Path::new("/dev")]
        );
        let folder = tempfile::tempdir().unwrap();
        let packed = folder.path().join("packed");
        image.write_whole(&packed).unwrap();
        let packed = fs::read(packed).unwrap();
        let has = |word: &[u8]| packed.windows(word.len()).any(|window| window == word);
        assert!(has(b"a/b/c\0") && has(b"text") && has(b"TRAILER!!!\0"));
    }
}
