//! Folders of files that are made again.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Removes a folder that may be absent.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| folder.display().to_string())
        }
        _ => Ok(()),
    }
}
