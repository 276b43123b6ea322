//! The machine-wide lock: two experiments never overlap.

use std::fs::{File, OpenOptions, create_dir_all};
use std::io::{Read, Seek, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};

/// Held while an experiment runs; released when dropped, also by a crash.
#[derive(Debug)]
pub(crate) struct MachineLock(#[expect(dead_code, reason = "held for its lock")] Flock<File>);

impl MachineLock {
    /// Takes the lock, or says who has it.
    pub(crate) fn take() -> Result<Self> {
        let folder = Path::new("/run/lowroad");
        create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let path = folder.join("compare.lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .with_context(|| path.display().to_string())?;
        let mut holder = String::new();
        file.read_to_string(&mut holder)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                lock.rewind()?;
                lock.set_len(0)?;
                write!(lock, "{}", std::process::id())?;
                Ok(Self(lock))
            }
            Err(_) => bail!(
                "another experiment is running (process {}); two would measure each other",
                holder.trim()
            ),
        }
    }
}
