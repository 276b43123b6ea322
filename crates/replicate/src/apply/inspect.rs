//! Checks whether a tree is as it was applied: names, kinds, sizes, owners, modes, times, targets
//! and links. It also checks for extended attributes that should be gone. Changed bytes whose file
//! has its former time are left to `verify`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::mem::take;
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::{fs, io::Errno};

use super::folders::{Folders, called};
use super::omissions::Omissions;
use super::plan::Directory;
use crate::make::{Maker, OWNER_RW, OWNER_RWX, has_more};
use crate::record::{File, Kind, Name, Renumbering};
use crate::tree::{Node, Tree};

/// The deviations from the applied tree.
#[derive(Debug, Default)]
pub(super) struct Deviations {
    /// Files that are missing or replaced, with everything below them.
    pub(super) lost: BTreeSet<File>,
    /// Entries that are there instead or in addition.
    pub(super) debris: Vec<(Directory, OsString)>,
    /// Files with other attributes.
    pub(super) worn: BTreeSet<File>,
    /// The number of names with a deviation.
    pub(super) names: u64,
    /// The first of them.
    pub(super) first: Option<PathBuf>,
}

impl Deviations {
    /// Applies a renumbering of files.
    pub(super) fn renumber(&mut self, all: &Renumbering) {
        let name = |file: File| all.get(file).unwrap_or(file);
        let names = |files: &mut BTreeSet<File>| take(files).into_iter().map(name).collect();
        self.lost = names(&mut self.lost);
        self.worn = names(&mut self.worn);
        for (directory, _) in &mut self.debris {
            *directory = directory.map(name);
        }
    }
}

/// Compares the tree on the disk with the one that was applied.
pub(super) fn inspect(
    tree: &Tree,
    (folders, omissions): (&mut Folders, &Omissions),
    maker: &Maker,
) -> Result<Deviations, (PathBuf, Errno)> {
    let mut inspection = Inspection {
        tree,
        omissions,
        maker,
        device: 0,
        inodes: BTreeMap::new(),
        files: BTreeMap::new(),
        found: Deviations::default(),
    };
    let Some(root) = tree.root() else {
        return Ok(inspection.found);
    };
    let status = fs::fstat(&folders.tree).map_err(|errno| (PathBuf::new(), errno))?;
    inspection.device = status.st_dev;
    if let Some(node) = tree.get(root)
        && !inspection.has_attributes(node, &status)
    {
        if inspection.is_relaxed(node, &status) {
            inspection.found.worn.insert(root);
        } else {
            inspection.worn(root, None);
        }
    }
    let mut left = vec![root];
    while let Some(directory) = left.pop() {
        let read = inspection.directory(directory, folders, &mut left);
        read.map_err(|errno| (inspection.path(directory), errno))?;
    }
    if let Some(node) = tree.get(root)
        && has_more(node, folders.tree.as_fd(), OsStr::new("."))
    {
        inspection.found.worn.insert(root);
    }
    Ok(inspection.found)
}

struct Inspection<'a> {
    tree: &'a Tree,
    omissions: &'a Omissions,
    maker: &'a Maker,
    device: u64,
    /// Maps the inodes of the replica to files, and back.
    inodes: BTreeMap<u64, File>,
    files: BTreeMap<File, u64>,
    found: Deviations,
}

impl Inspection<'_> {
    fn directory(
        &mut self,
        directory: File,
        folders: &mut Folders,
        left: &mut Vec<File>,
    ) -> Result<(), Errno> {
        if self.found.lost.contains(&directory) {
            return Ok(());
        }
        let of = |file: File| Some(file).filter(|file| Some(*file) != self.tree.root());
        let above = |file: File| {
            let (above, name) = self.tree.get(file)?.names.first()?;
            Some((of(*above), name.clone()))
        };
        let at = folders.directory(of(directory), &above)?;
        let here = of(directory);
        let mut expected: BTreeMap<Name, File> = self
            .tree
            .children(directory)
            .map(|(name, file)| (name.clone(), file))
            .collect();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = fs::openat(&at, ".", flags, Mode::empty())?;
        for entry in fs::Dir::read_from(&listed)? {
            let entry = entry?;
            if self.maker.gate.is_closed() {
                return Err(Errno::INTR);
            }
            let bytes = entry.file_name().to_bytes();
            let Ok(name) = Name::new(bytes) else { continue };
            let there = called(&name).to_owned();
            let status = match fs::statat(&at, &there, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue,
                status => status?,
            };
            let file = expected.remove(&name);
            let node = file.and_then(|file| self.tree.get(file));
            let (Some(file), Some(node)) = (file, node.filter(|node| self.maker.makes(&node.kind)))
            else {
                self.count((directory, &name));
                self.found.debris.push((here, there));
                continue;
            };
            if self.omissions.has(&(here, name.clone())) {
                // An interrupted step has put it there. Omitted files are created again when they
                // are retried, and the name must be free then.
                self.found.debris.push((here, there));
                match node.kind {
                    Kind::Directory => self.lose(file, (directory, &name)),
                    _ => self.count((directory, &name)),
                }
                continue;
            }
            let target = || fs::readlinkat(&at, &there, Vec::new());
            let same = self.is_same(file, node, &status, target);
            if !same {
                self.found.debris.push((here, there));
                self.lose(file, (directory, &name));
            } else if self.is_relaxed(node, &status) {
                self.found.worn.insert(file);
            } else if !self.has_attributes(node, &status) {
                self.worn(file, Some((directory, &name)));
            } else if may_have(node) && has_more(node, at.as_fd(), &there) {
                // An earlier run left it and could not remove it.
                self.found.worn.insert(file);
            }
            if same && node.kind == Kind::Directory {
                left.push(file);
            }
        }
        for (name, file) in expected {
            let node = self.tree.get(file);
            let entry = (of(directory), name.clone());
            if self.omissions.has(&entry) {
                continue;
            }
            if node.is_some_and(|node| self.maker.makes(&node.kind)) {
                self.lose(file, (directory, &name));
            }
        }
        Ok(())
    }

    fn is_same(
        &mut self,
        file: File,
        node: &Node,
        status: &Stat,
        target: impl Fn() -> Result<std::ffi::CString, Errno>,
    ) -> bool {
        let kind = match (&node.kind, FileType::from_raw_mode(status.st_mode)) {
            (Kind::Regular, FileType::RegularFile) => {
                status.st_size.cast_unsigned() == node.size && is_of(node, status)
            }
            (Kind::Directory, FileType::Directory)
            | (Kind::Fifo, FileType::Fifo)
            | (Kind::Socket, FileType::Socket) => true,
            (Kind::Symlink(to), FileType::Symlink) => {
                target().is_ok_and(|there| there.as_bytes() == to.as_slice())
            }
            (Kind::CharacterDevice(device), FileType::CharacterDevice)
            | (Kind::BlockDevice(device), FileType::BlockDevice) => status.st_rdev == *device,
            _ => false,
        };
        let alone = *self.inodes.entry(status.st_ino).or_insert(file) == file
            && *self.files.entry(file).or_insert(status.st_ino) == status.st_ino;
        kind && alone && status.st_dev == self.device
    }

    fn has_attributes(&self, node: &Node, status: &Stat) -> bool {
        let Some(attributes) = &node.attributes else {
            return true;
        };
        let mode = u32::from(self.maker.mode(node, attributes));
        let owner = (attributes.uid, attributes.gid) == (status.st_uid, status.st_gid);
        let symlink = matches!(node.kind, Kind::Symlink(_));
        (symlink || status.st_mode & 0o7777 == mode)
            && (owner || !self.maker.owned)
            && is_of(node, status)
    }

    /// Whether the only deviation is a permission that a run without root gave to the owner to work
    /// on the file. The run was interrupted before it took the permission back.
    fn is_relaxed(&self, node: &Node, status: &Stat) -> bool {
        let Some(attributes) = &node.attributes else {
            return false;
        };
        let given = match node.kind {
            Kind::Directory => OWNER_RWX,
            Kind::Regular => OWNER_RW,
            _ => return false,
        };
        let mode = u32::from(self.maker.mode(node, attributes));
        let there = status.st_mode & 0o7777;
        !self.maker.owned && there != mode && there == mode | given && is_of(node, status)
    }

    /// Marks a file as lost with everything below it, because the same path no longer leads there.
    fn lose(&mut self, file: File, (directory, name): (File, &Name)) {
        self.count((directory, name));
        let mut left = vec![file];
        while let Some(file) = left.pop() {
            if self.found.lost.insert(file) {
                left.extend(self.tree.children(file).map(|(_, file)| file));
            }
        }
    }

    fn worn(&mut self, file: File, at: Option<(File, &Name)>) {
        self.found.worn.insert(file);
        match at {
            Some(at) => self.count(at),
            None => self.found.names += 1,
        }
    }

    fn count(&mut self, (directory, name): (File, &Name)) {
        self.found.names += 1;
        if self.found.first.is_none() {
            self.found.first = Some(self.path(directory).join(called(name)));
        }
    }

    fn path(&self, file: File) -> PathBuf {
        let path = self.tree.path(file).unwrap_or_default();
        path.iter().map(called).collect()
    }
}

/// Whether the file can have extended attributes that begin with `user.`
fn may_have(node: &Node) -> bool {
    matches!(node.kind, Kind::Regular | Kind::Directory)
}

/// Whether the file has the time that it was given.
pub(super) fn is_of(node: &Node, status: &Stat) -> bool {
    let Some(attributes) = &node.attributes else {
        return true;
    };
    let rest = i64::try_from(status.st_mtime_nsec).unwrap_or_default();
    is_kept(attributes.modified_ns, (status.st_mtime, rest))
}

/// Whether a time in nanoseconds was stored as these seconds and nanoseconds. Some file systems
/// keep no fractions of a second, and clamp a time that does not fit into 32 bits of seconds.
fn is_kept(given: i64, (seconds, rest): (i64, i64)) -> bool {
    let wanted = given.div_euclid(1_000_000_000);
    let parts = given.rem_euclid(1_000_000_000);
    let late = (i32::MAX.into()..wanted).contains(&seconds);
    let early = (wanted + 1..=i32::MIN.into()).contains(&seconds);
    late || early || (seconds == wanted && (rest == parts || rest == 0))
}

#[cfg(test)]
mod tests {
    use super::is_kept;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn a_time_is_kept_as_the_file_system_can() {
        assert!(is_kept(5 * SECOND + 7, (5, 7)) && is_kept(5 * SECOND + 7, (5, 0)));
        assert!(!is_kept(5 * SECOND + 7, (5, 6)) && !is_kept(5 * SECOND, (4, 0)));
        assert!(is_kept(-SECOND, (-1, 0)) && !is_kept(-SECOND, (i32::MIN.into(), 0)));
        let (last, first) = (i64::from(i32::MAX), i64::from(i32::MIN));
        let (late, early) = (last + 1000, first - 1000);
        assert!(is_kept(late * SECOND, (last, 0)) && is_kept(early * SECOND, (first, 0)));
        assert!(!is_kept(late * SECOND, (last - 1, 0)) && !is_kept(early * SECOND, (first + 1, 0)));
        assert!(!is_kept(late * SECOND, (late + 1, 0)) && !is_kept(early * SECOND, (early - 1, 0)));
    }
}
