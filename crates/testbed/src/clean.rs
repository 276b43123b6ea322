//! Removes what a bed's maker left behind when it was killed: found by name, removed when the maker is dead.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use sys::netns;
use sys::owner::Owner;

use crate::environment::engine::orphans;
use crate::error::{Error, at};
use crate::names::{PREFIX, RANDOM_LETTERS};
use crate::network::kill_inside;
use crate::nic;

const CGROUPS: &str = "/sys/fs/cgroup";

/// Where programs and maps are pinned that outlive their maker, each under a name that starts with
/// the maker's [`Owner`].
pub const PINS: &str = "/sys/fs/bpf/lowroad";

/// How long processes that were killed may take to be gone.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Counts of what was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CleanReport {
    pub namespaces: usize,
    pub processes: usize,
    /// Devices that were returned to this machine.
    pub nics: usize,
    /// tc filters outside the beds.
    pub filters: usize,
    pub pins: usize,
    pub containers: usize,
    /// Images of containers.
    pub images: usize,
    /// Folders of temporary files.
    pub folders: usize,
    /// Engines that are installed and do not answer, or run their containers elsewhere, and why: what there is of
    /// theirs stays.
    pub silent: Vec<(&'static str, String)>,
}

/// Removes the namespaces of dead makers with all devices, processes and containers in them, and their
/// tc filters, pins, control groups and temporary folders. What a living maker has stays.
pub fn clean() -> Result<CleanReport, Error> {
    let mut report = CleanReport::default();
    for name in netns::names() {
        if owner_of(&name).is_some_and(|owner| !owner.alive()) {
            // A lent device would end with the namespace, or come back under another name.
            let place = netns::find(&name).map_err(Error::from);
            let returned =
                place.and_then(|place| place.map_or(Ok(0), |place| nic::return_all(&place)));
            match returned {
                Ok(returned) => report.nics += returned,
                Err(error) => {
                    tracing::warn!("{name} stays: {error}");
                    continue;
                }
            }
            report.processes += kill_all_in(&name);
            netns::remove(&name)?;
            report.namespaces += 1;
        }
    }
    report.filters = netdev::clsact::clean().map_err(at("cleaning"))?;
    report.pins = remove_of_dead(Path::new(PINS), "", |_, _| true);
    let orphans = orphans::remove(owner_of);
    report.containers = remove_cgroups() + orphans.containers;
    report.images = orphans.images;
    report.silent = orphans.silent;
    report.folders = remove_of_dead(&std::env::temp_dir(), PREFIX, is_folder);
    Ok(report)
}

/// The owner of a thing of this name; the name has more after the owner.
fn owner_of(name: &str) -> Option<Owner> {
    let (owner, what) = leading_owner(name.strip_prefix(PREFIX)?)?;
    (!what.is_empty()).then_some(owner)
}

/// The owner that a name starts with, in its first two parts, and the others.
fn leading_owner(name: &str) -> Option<(Owner, &str)> {
    let mut dashes = name.match_indices('-').map(|(at, _)| at);
    let end = dashes.nth(1).unwrap_or(name.len());
    let what = name.get(end + 1..).unwrap_or_default();
    Some((name[..end].parse().ok()?, what))
}

/// Whether this is one of [`crate::folder`]'s: this user's, with [`RANDOM_LETTERS`] letters after its owner.
fn is_folder(path: &Path, what: &str) -> bool {
    let random =
        what.len() == RANDOM_LETTERS && what.bytes().all(|letter| letter.is_ascii_alphanumeric());
    let metadata = fs::symlink_metadata(path);
    let made = metadata.is_ok_and(|of| of.is_dir() && of.uid() == geteuid().as_raw());
    random && made
}

/// Kills until no process is left: a process that forks while it is killed leaves another.
fn kill_all_in(name: &str) -> usize {
    let found = netns::find(name).ok().flatten();
    let Some(inode) = found.and_then(|namespace| namespace.inode().ok()) else {
        return 0;
    };
    let first = kill_inside(inode);
    let until = Instant::now() + KILL_TIMEOUT;
    while first > 0 && kill_inside(inode) > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    first
}

/// Removes what dead makers left in `folder` under names of `prefix` and their [`Owner`], where path and the rest of
/// the name are of a thing of ours.
fn remove_of_dead(folder: &Path, prefix: &str, is_ours: impl Fn(&Path, &str) -> bool) -> usize {
    let mut removed = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let dead = entry
            .file_name()
            .to_str()
            .and_then(|name| leading_owner(name.strip_prefix(prefix)?))
            .is_some_and(|(owner, what)| !owner.alive() && is_ours(&path, what));
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
        let until = Instant::now() + KILL_TIMEOUT;
        // Processes that were just killed may still be leaving the group.
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
    use crate::names::{self, folder};

    #[test]
    fn names_tell_their_owner_and_others_names_are_left_alone() {
        let owner = Owner {
            pid: 12,
            started: 345,
        };
        assert_eq!(
            owner_of(&names::namespace(owner, "run-7", "relay")),
            Some(owner)
        );
        for other in [
            "lr-12-345-relay",
            "lr-bed-relay",
            "lr-bed-12",
            "lr-bed-12-345",
            "lr-bed-2026-01-15",
            "lr-bed-2026-10-15",
            "lr-bed-2026-1015",
            "lr-bed-20261015-143000-backup",
            "web",
        ] {
            assert_eq!(owner_of(other), None, "{other}");
        }
    }

    #[test]
    fn what_the_dead_left_goes_and_what_the_living_have_stays() {
        let folder = tempfile::tempdir().unwrap();
        let living = folder.path().join(format!("x-{}-relay", Owner::current()));
        let dead = folder.path().join("x-1-100-relay");
        let others = ["1-100-relay", "x-1-1-relay", "x-notes"];
        let others = others.map(|name| folder.path().join(name));
        for path in others.iter().chain([&living]) {
            fs::write(path, "").unwrap();
        }
        fs::create_dir(&dead).unwrap();
        assert_eq!(remove_of_dead(folder.path(), "x-", |_, _| true), 1);
        assert!(living.exists() && others.iter().all(|path| path.exists()) && !dead.exists());
    }

    #[test]
    fn a_temporary_folder_is_known_by_its_name() {
        let folder = folder().unwrap();
        let name = folder.path().file_name().unwrap().to_str().unwrap();
        assert_eq!(owner_of(name), Some(Owner::current()));
        let (_, what) = leading_owner(name.strip_prefix(PREFIX).unwrap()).unwrap();
        assert!(is_folder(folder.path(), what));
    }

    #[test]
    fn a_folder_that_only_begins_alike_is_not_taken_for_temporary_files() {
        let within = tempfile::tempdir().unwrap();
        let at = |name: &str| within.path().join(name);
        let ours = at("lr-bed-1-100-aBc123");
        let others = ["lr-bed-1-100-photographs", "lr-bed-2026-10-150000"].map(at);
        for path in others.iter().chain([&ours]) {
            fs::create_dir(path).unwrap();
        }
        let file = at("lr-bed-1-100-aBc124");
        fs::write(&file, "").unwrap();
        assert_eq!(remove_of_dead(within.path(), PREFIX, is_folder), 1);
        assert!(!ours.exists() && file.exists() && others.iter().all(|path| path.exists()));
    }
}
