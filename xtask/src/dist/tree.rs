//! The files of an installation, by their paths below the prefix.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

#[derive(Clone, Debug)]
pub(super) enum Contents {
    Bytes(Vec<u8>),
    /// A copy of this file.
    Copy(PathBuf),
}

#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) contents: Contents,
    pub(super) executable: bool,
}

impl File {
    pub(super) fn bytes(&self) -> Result<Vec<u8>> {
        match &self.contents {
            Contents::Bytes(bytes) => Ok(bytes.clone()),
            Contents::Copy(path) => fs::read(path).with_context(|| path.display().to_string()),
        }
    }
}

/// Files in the order of their paths.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree(pub(super) BTreeMap<String, File>);

impl Tree {
    pub(super) fn add_text(&mut self, path: &str, text: &str) {
        self.add(path, Contents::Bytes(text.as_bytes().to_vec()), false);
    }

    pub(super) fn add_script(&mut self, path: &str, text: &str) {
        self.add(path, Contents::Bytes(text.as_bytes().to_vec()), true);
    }

    pub(super) fn add_copy(&mut self, path: &str, source: &Path) {
        self.add(path, Contents::Copy(source.to_owned()), false);
    }

    pub(super) fn add_program(&mut self, path: &str, source: &Path) {
        self.add(path, Contents::Copy(source.to_owned()), true);
    }

    pub(super) fn add(&mut self, path: &str, contents: Contents, executable: bool) {
        let file = File {
            contents,
            executable,
        };
        self.0.insert(path.to_owned(), file);
    }

    /// Writes the files below a folder that does not exist, with modes that do not depend on the umask.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        for (path, file) in &self.0 {
            let target = folder.join(path);
            let parent = target.parent().unwrap_or(folder);
            fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
            for created in parent
                .ancestors()
                .take_while(|created| created.starts_with(folder))
            {
                set_mode(created, 0o755)?;
            }
            fs::write(&target, file.bytes()?).with_context(|| target.display().to_string())?;
            set_mode(&target, if file.executable { 0o755 } else { 0o644 })?;
        }
        Ok(())
    }
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    let mode = fs::Permissions::from_mode(mode);
    fs::set_permissions(path, mode).with_context(|| path.display().to_string())
}
