//! Replaces files atomically.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process;

/// Bytes written at once.
const BLOCK: usize = 1 << 20;

/// Has `write` fill a temporary file in the same folder, which then replaces `path`.
pub(super) fn save<T>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<T>,
) -> io::Result<T> {
    let path = target(path)?;
    let temporary = temporary_path(&path)?;
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&temporary)?;
    let written = (|| {
        let mut file = BufWriter::with_capacity(BLOCK, file);
        let result = write(&mut file)?;
        file.flush()?;
        file.get_ref().sync_all()?;
        fs::rename(&temporary, &path)?;
        Ok(result)
    })();
    if written.is_err() {
        // The first error counts.
        let _ = fs::remove_file(&temporary);
        return written;
    }
    sync_folder(&path)?;
    written
}

/// Where a link leads; devices and folders are left alone.
fn target(path: &Path) -> io::Result<PathBuf> {
    match fs::metadata(path) {
        Ok(known) if known.is_file() => path.canonicalize(),
        Ok(_) => Err(io::Error::other("it is there, and is no ordinary file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(path.to_owned()),
        Err(error) => Err(error),
    }
}

fn temporary_path(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name();
    let mut name = name
        .ok_or_else(|| io::Error::other("no name of a file"))?
        .to_owned();
    name.push(format!(".{}.lowroad.tmp", process::id()));
    Ok(path.with_file_name(name))
}

/// Makes the new name last.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_leaves_what_was_there_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.lrt");
        save(&path, |file| file.write_all(b"first")).unwrap();
        let failed = save(&path, |file| {
            file.write_all(b"half")?;
            Err::<(), _>(io::Error::other("the disk is full"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "the disk is full");
        assert_eq!(fs::read(&path).unwrap(), b"first");
        save(&path, |file| file.write_all(b"second")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn devices_are_not_replaced_and_links_followed() {
        let folder = tempfile::tempdir().unwrap();
        assert!(save(folder.path(), |_| Ok(())).is_err());
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        save(&link, |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
