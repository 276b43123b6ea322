//! The shared libraries of programs, cached, because `ldd` is a slow shell script.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;
use std::{fs, io};

/// The libraries of each program, with its size and time of modification.
type Cache = BTreeMap<PathBuf, ((u64, SystemTime), BTreeSet<PathBuf>)>;

static CACHE: Mutex<Cache> = Mutex::new(Cache::new());

/// The libraries of a dynamic program and its loader; none for a static program.
pub(crate) fn libraries(program: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let metadata = fs::metadata(program)?;
    let as_it_is = (metadata.len(), metadata.modified()?);
    let known = || CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((then, found)) = known().get(program)
        && *then == as_it_is
        && found.iter().all(|library| library.is_file())
    {
        return Ok(found.clone());
    }
    let found = ask(program)?;
    known().insert(program.to_owned(), (as_it_is, found.clone()));
    Ok(found)
}

fn ask(program: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let output = Command::new("ldd").arg(program).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let words = said.lines().flat_map(str::split_whitespace);
    Ok(words
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .filter(|path| path.is_file())
        .collect())
}

#[cfg(test)]
mod tests {
    use sys::require::{Class, skip};

    use super::*;

    #[test]
    fn changed_program_is_asked_again() {
        if Command::new("ldd").arg("--version").output().is_err() {
            return skip(
                Class::Hardware,
                "a machine without a shell script that is ldd",
            );
        }
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::write(&program, "no program").unwrap();
        assert_eq!(libraries(&program).unwrap(), BTreeSet::new());
        // Whatever is linked with a C library.
        fs::copy("/bin/sh", &program).unwrap();
        let found = libraries(&program).unwrap();
        assert!(!found.is_empty());
        assert_eq!(libraries(&program).unwrap(), found);
        assert!(libraries(&folder.path().join("none")).is_err());
    }
}
