//! What a bed's maker left behind when it was killed: found by name, removed when the maker is dead.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{fs, io};

use sys::netns;
use sys::owner::Owner;
use tempfile::TempDir;

use crate::environment::{clean_engines, kill_inside};
use crate::{Error, nic};

const PREFIX: &str = "lr-bed-";
const CGROUPS: &str = "/sys/fs/cgroup";

/// Where programs and maps are pinned that outlive their maker, each under a name that starts with
/// the maker's [`Owner`].
pub const PINS: &str = "/sys/fs/bpf/lowroad";

/// How long processes that were killed may take to be gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    pub namespaces: usize,
    pub processes: usize,
    /// Devices of this machine, given back.
    pub nics: usize,
    /// tc filters outside the beds.
    pub filters: usize,
    pub pins: usize,
    pub containers: usize,
    /// Of containers.
    pub images: usize,
    /// Folders of temporary files.
    pub folders: usize,
    /// Engines that are installed and do not answer, and why: what there is of theirs stays.
    pub silent: Vec<(&'static str, String)>,
}

/// A folder for temporary files, removed when dropped, and by [`clean`] when its maker was killed.
pub fn folder() -> io::Result<TempDir> {
    let prefix = format!("{PREFIX}{}-", Owner::current());
    tempfile::Builder::new().prefix(&prefix).tempdir()
}

/// The namespace's name of a bed's host or switch.
pub(crate) fn name(owner: Owner, run: &str, host: &str) -> String {
    format!("{PREFIX}{owner}-{run}-{host}")
}

/// A name of the same kind that nothing else of this process has.
pub(crate) fn unique(of: &str) -> String {
    static NAMES: AtomicU32 = AtomicU32::new(0);
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    name(Owner::current(), of, &number.to_string())
}

/// A device's name that no other of this process has.
pub(crate) fn device() -> String {
    static DEVICES: AtomicU32 = AtomicU32::new(0);
    // With the longest process id it has room for five digits.
    let number = DEVICES.fetch_add(1, Ordering::Relaxed) % 100_000;
    format!("lr{}n{number}", std::process::id())
}

/// Removes the namespaces of dead makers with all devices, processes and containers in them, and their
/// tc filters, pins, control groups and temporary folders. What a living maker has stays.
pub fn clean() -> Result<Cleaned, Error> {
    let mut cleaned = Cleaned::default();
    for name in netns::names() {
        if owner_of(&name).is_some_and(|owner| !owner.alive()) {
            // A device that somebody has lent would end with it, or come back under another name.
            let place = netns::find(&name).map_err(Error::from);
            let given =
                place.and_then(|place| place.map_or(Ok(0), |place| nic::give_all_back(&place)));
            match given {
                Ok(given) => cleaned.nics += given,
                Err(error) => {
                    tracing::warn!("{name} stays: {error}");
                    continue;
                }
            }
            cleaned.processes += kill_all_in(&name);
            netns::remove(&name)?;
            cleaned.namespaces += 1;
        }
    }
    cleaned.filters = netdev::clsact::clean().map_err(crate::error::at("cleaning"))?;
    cleaned.pins = remove_of_dead(Path::new(PINS), "");
    let left = clean_engines(owner_of);
    cleaned.containers = remove_cgroups() + left.containers;
    cleaned.images = left.images;
    cleaned.silent = left.silent;
    cleaned.folders = remove_of_dead(&std::env::temp_dir(), PREFIX);
    Ok(cleaned)
}

fn owner_of(name: &str) -> Option<Owner> {
    leading_owner(name.strip_prefix(PREFIX)?)
}

/// The owner that a name starts with: its first two parts, written as an owner is.
fn leading_owner(name: &str) -> Option<Owner> {
    let (pid, rest) = name.split_once('-')?;
    let started = rest.split('-').next()?;
    let owner = format!("{pid}-{started}");
    // A date has zeros where no number does.
    let read: Option<Owner> = owner.parse().ok();
    read.filter(|read| read.to_string() == owner)
}

/// Kills until nobody is left: one that forks while it is killed leaves another.
fn kill_all_in(name: &str) -> usize {
    let found = netns::find(name).ok().flatten();
    let Some(inode) = found.and_then(|namespace| namespace.inode().ok()) else {
        return 0;
    };
    let first = kill_inside(inode);
    let until = Instant::now() + PATIENCE;
    while first > 0 && kill_inside(inode) > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    first
}

/// Removes what dead makers left in `folder` under names of `prefix` and their [`Owner`].
fn remove_of_dead(folder: &Path, prefix: &str) -> usize {
    let mut removed = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let dead = entry
            .file_name()
            .to_str()
            .and_then(|name| leading_owner(name.strip_prefix(prefix)?))
            .is_some_and(|owner| !owner.alive());
        let path = entry.path();
        if dead && (fs::remove_file(&path).is_ok() || fs::remove_dir_all(&path).is_ok()) {
            removed += 1;
        }
    }
    removed
}

/// Removes the control groups of dead makers' containers, each in every hierarchy, and returns how many
/// containers there were.
fn remove_cgroups() -> usize {
    let root = Path::new(CGROUPS);
    let hierarchies = fs::read_dir(root).into_iter().flatten().flatten();
    let folders = hierarchies.map(|entry| entry.path()).chain([root.into()]);
    let mut removed = BTreeSet::new();
    for group in folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten()) {
        let name = group.file_name().to_string_lossy().into_owned();
        if owner_of(&name).is_none_or(Owner::alive) {
            continue;
        }
        let until = Instant::now() + PATIENCE;
        // Those that were killed a moment ago may still leave it.
        while fs::remove_dir(group.path()).is_err() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        removed.insert(name);
    }
    removed.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_their_owner_and_others_names_are_left_alone() {
        let owner = Owner {
            pid: 12,
            started: 345,
        };
        assert_eq!(owner_of(&name(owner, "run-7", "relay")), Some(owner));
        for other in [
            "lr-12-345-relay",
            "lr-bed-relay",
            "lr-bed-12",
            "lr-bed-2026-01-15",
            "web",
        ] {
            assert_eq!(owner_of(other), None, "{other}");
        }
    }

    #[test]
    fn what_the_dead_left_goes_and_what_the_living_have_stays() {
        let folder = tempfile::tempdir().unwrap();
        let living = folder.path().join(format!("x-{}-relay", Owner::current()));
        let dead = folder.path().join("x-1-1-relay");
        let others = ["1-1-relay", "x-notes"].map(|name| folder.path().join(name));
        for path in others.iter().chain([&living]) {
            fs::write(path, "").unwrap();
        }
        fs::create_dir(&dead).unwrap();
        assert_eq!(remove_of_dead(folder.path(), "x-"), 1);
        assert!(living.exists() && others.iter().all(|path| path.exists()) && !dead.exists());
    }

    #[test]
    fn a_temporary_folder_is_known_by_its_name() {
        let folder = folder().unwrap();
        let name = folder.path().file_name().unwrap().to_str().unwrap();
        assert_eq!(owner_of(name), Some(Owner::current()));
    }
}
