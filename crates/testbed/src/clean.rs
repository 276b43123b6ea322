//! What a bed's maker left behind when it was killed: found by name, removed when the maker is dead.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use sys::netns::{self, Namespace};
use sys::owner::Owner;

use crate::Error;
use crate::environment::kill_inside;

const PREFIX: &str = "lr-bed-";

/// Where programs and maps are pinned that outlive their maker, each under a name that starts with
/// the maker's [`Owner`].
pub const PINS: &str = "/sys/fs/bpf/lowroad";

/// How long processes that were killed may take to be gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    pub namespaces: usize,
    pub processes: usize,
    /// tc filters outside the beds.
    pub filters: usize,
    pub pins: usize,
}

/// The namespace's name of a bed's host or switch.
pub(crate) fn name(owner: Owner, run: &str, host: &str) -> String {
    format!("{PREFIX}{owner}-{run}-{host}")
}

/// Removes the namespaces of dead makers with all devices and processes in them, and their tc
/// filters and pins. What a living maker has stays.
pub fn clean() -> Result<Cleaned, Error> {
    let mut cleaned = Cleaned::default();
    for name in netns::names() {
        if owner_of(&name).is_some_and(|owner| !owner.alive()) {
            cleaned.processes += kill_all_in(&name);
            netns::remove(&name)?;
            cleaned.namespaces += 1;
        }
    }
    cleaned.filters = netdev::clsact::clean().map_err(crate::error::at("cleaning"))?;
    cleaned.pins = remove_pins(Path::new(PINS));
    Ok(cleaned)
}

fn owner_of(name: &str) -> Option<Owner> {
    leading_owner(name.strip_prefix(PREFIX)?)
}

/// The owner that a name starts with: its first two parts.
fn leading_owner(name: &str) -> Option<Owner> {
    let (pid, rest) = name.split_once('-')?;
    let started = rest.split('-').next()?;
    format!("{pid}-{started}").parse().ok()
}

/// Kills until nobody is left: one that forks while it is killed leaves another.
fn kill_all_in(name: &str) -> usize {
    let Ok(inode) = Namespace::named(name).and_then(|namespace| namespace.inode()) else {
        return 0;
    };
    let first = kill_inside(inode);
    let until = Instant::now() + PATIENCE;
    while first > 0 && kill_inside(inode) > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    first
}

fn remove_pins(folder: &Path) -> usize {
    let mut removed = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let dead = entry
            .file_name()
            .to_str()
            .and_then(leading_owner)
            .is_some_and(|owner| !owner.alive());
        let path = entry.path();
        if dead && (fs::remove_file(&path).is_ok() || fs::remove_dir_all(&path).is_ok()) {
            removed += 1;
        }
    }
    removed
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
        for other in ["lr-12-345-relay", "lr-bed-relay", "lr-bed-12", "web"] {
            assert_eq!(owner_of(other), None, "{other}");
        }
    }

    #[test]
    fn pins_of_the_dead_go_and_pins_of_the_living_stay() {
        let folder = tempfile::tempdir().unwrap();
        let living = folder.path().join(format!("{}-relay", Owner::current()));
        let dead = folder.path().join("1-1-relay");
        let other = folder.path().join("notes");
        for path in [&living, &other] {
            fs::write(path, "").unwrap();
        }
        fs::create_dir(&dead).unwrap();
        assert_eq!(remove_pins(folder.path()), 1);
        assert!(living.exists() && other.exists() && !dead.exists());
    }
}
