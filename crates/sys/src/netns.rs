//! Network namespaces: created where `ip netns` keeps them, entered thread by thread.
//!
//! It decides nothing about what is in a namespace; the devices belong to `netdev` and `testbed`.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

/// The folder in which `ip netns` looks for names.
const FOLDER: &str = "/run/netns";

/// A handle to a network namespace. The namespace lives at least as long as its handles.
#[derive(Debug)]
pub struct Namespace {
    file: File,
}

/// An error of a namespace.
#[derive(Debug, thiserror::Error)]
#[error("{action} network namespace {name}: {cause}")]
pub struct Error {
    action: &'static str,
    name: String,
    cause: io::Error,
}

impl Namespace {
    /// The namespace of the calling thread.
    pub fn current() -> Result<Self, Error> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// The namespace that `ip netns` calls `name`.
    pub fn named(name: &str) -> Result<Self, Error> {
        Self::open(&path(name))
    }

    /// The namespace behind a file of `/proc/PID/ns/net` kind or a bind mount of one.
    pub fn open(path: &Path) -> Result<Self, Error> {
        File::open(path)
            .map(|file| Self { file })
            .map_err(|source| error("opening", &path.display().to_string(), source))
    }

    /// A new, empty namespace under a name that must be free. It lasts until [`remove`].
    pub fn create(name: &str) -> Result<Self, Error> {
        let target = path(name);
        prepare_folder()
            .and_then(|()| File::create_new(&target))
            .map_err(|source| error("creating", name, source))?;
        let made = thread::scope(|scope| {
            scope
                .spawn(|| {
                    unshare(CloneFlags::CLONE_NEWNET)?;
                    bind(Path::new("/proc/thread-self/ns/net"), &target)?;
                    File::open(&target)
                })
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("its thread died")))
        });
        match made {
            Ok(file) => Ok(Self { file }),
            Err(source) => {
                // The empty file would look like a namespace that cannot be entered.
                let _ = fs::remove_file(&target);
                Err(error("creating", name, source))
            }
        }
    }

    /// The namespace behind such a file under a name that must be free. The name lasts until [`remove`], and
    /// the namespace at least as long.
    pub fn bind(name: &str, file: &Path) -> Result<Self, Error> {
        let target = path(name);
        prepare_folder()
            .and_then(|()| File::create_new(&target))
            .map_err(|source| error("naming", name, source))?;
        let opened = bind(file, &target).and_then(|()| File::open(&target));
        match opened {
            Ok(file) => Ok(Self { file }),
            Err(source) => {
                let _ = fs::remove_file(&target);
                Err(error("naming", name, source))
            }
        }
    }

    /// Moves the calling thread, and what it starts from now on, into this namespace.
    ///
    /// Sockets that are open stay where they were made.
    pub fn enter(&self) -> Result<(), Error> {
        setns(&self.file, CloneFlags::CLONE_NEWNET)
            .map_err(|errno| error("entering", "by handle", errno.into()))
    }

    /// Runs `work` on a thread of its own inside this namespace and returns its value.
    ///
    /// # Panics
    /// When `work` does, with its message.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        thread::scope(|scope| {
            scope
                .spawn(|| self.enter().map(|()| work()))
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs `work` as [`Self::run`] does, with `/sys` showing this namespace's devices.
    ///
    /// The mounts are private to that thread; mounts below `/sys` are hidden from it.
    pub fn run_with_sysfs<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        self.run(|| {
            unshare(CloneFlags::CLONE_NEWNS)?;
            let none: Option<&str> = None;
            mount(none, "/", none, MsFlags::MS_SLAVE | MsFlags::MS_REC, none)?;
            mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none)?;
            Ok(work())
        })?
        .map_err(|errno: nix::errno::Errno| error("mounting sysfs of", "by handle", errno.into()))
    }

    /// The number that tells namespaces apart on one machine.
    pub fn inode(&self) -> Result<u64, Error> {
        self.file
            .metadata()
            .map(|metadata| metadata.ino())
            .map_err(|source| error("reading", "by handle", source))
    }

    /// Another handle to the same namespace.
    pub fn try_clone(&self) -> Result<Self, Error> {
        self.file
            .try_clone()
            .map(|file| Self { file })
            .map_err(|source| error("duplicating", "by handle", source))
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Forgets a name; the namespace ends with its last process, socket and handle. No error when the
/// name is not there.
pub fn remove(name: &str) -> Result<(), Error> {
    let path = path(name);
    // EINVAL: a file that no namespace is mounted on, left by a creation that was cut short.
    match umount2(&path, MntFlags::MNT_DETACH) {
        Ok(()) | Err(nix::errno::Errno::EINVAL | nix::errno::Errno::ENOENT) => {}
        Err(errno) => return Err(error("removing", name, errno.into())),
    }
    match fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(error("removing", name, source))
        }
        _ => Ok(()),
    }
}

/// The namespace of this name, if there is one: a file alone is the rest of a creation that was cut short.
pub fn find(name: &str) -> Result<Option<Namespace>, Error> {
    let there = match Namespace::named(name) {
        Err(gone) if gone.cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        there => there?,
    };
    let device = |file: &File| file.metadata().map(|metadata| metadata.dev());
    let namespaces = Namespace::current()?;
    let same = device(&there.file)
        .and_then(|device_there| Ok(device_there == device(&namespaces.file)?))
        .map_err(|source| error("reading", name, source))?;
    Ok(same.then_some(there))
}

/// Every name, in no particular order.
pub fn names() -> Vec<String> {
    fs::read_dir(FOLDER)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect()
}

/// Processes that have a thread inside the namespace with this [`Namespace::inode`].
pub fn processes_in(inode: u64) -> Vec<i32> {
    let inside = |task: &Path| fs::metadata(task.join("ns/net")).is_ok_and(|m| m.ino() == inode);
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let mut tasks = fs::read_dir(entry.path().join("task")).ok()?;
            tasks
                .any(|task| task.is_ok_and(|task| inside(&task.path())))
                .then_some(pid)
        })
        .collect()
}

fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// `/run/netns` has to be a shared mount point: without it, a name removed here would stay mounted
/// in other mount namespaces and keep the network namespace alive.
fn prepare_folder() -> io::Result<()> {
    fs::create_dir_all(FOLDER)?;
    // Two that find it unprepared would mount it twice; `ip netns` takes the same lock.
    let _locked = Flock::lock(File::open(FOLDER)?, FlockArg::LockExclusive)
        .map_err(|(_, errno)| io::Error::from(errno))?;
    let share = || {
        let none: Option<&str> = None;
        mount(
            none,
            FOLDER,
            none,
            MsFlags::MS_SHARED | MsFlags::MS_REC,
            none,
        )
    };
    if share().is_err() {
        let none: Option<&str> = None;
        mount(
            Some(FOLDER),
            FOLDER,
            none,
            MsFlags::MS_BIND | MsFlags::MS_REC,
            none,
        )?;
        share()?;
    }
    Ok(())
}

fn bind(source: &Path, target: &Path) -> io::Result<()> {
    let none: Option<&str> = None;
    Ok(mount(Some(source), target, none, MsFlags::MS_BIND, none)?)
}

fn error(action: &'static str, name: &str, cause: io::Error) -> Error {
    Error {
        action,
        name: name.to_owned(),
        cause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_entered_by_one_thread_and_leaves_no_name() {
        if !crate::require::root() {
            return;
        }
        let name = format!("lr-{}-sys", std::process::id());
        let outside = Namespace::current().unwrap().inode().unwrap();
        let namespace = Namespace::create(&name).unwrap();
        assert!(Namespace::create(&name).is_err(), "the name is taken");
        let inside = namespace.inode().unwrap();
        let seen = namespace
            .run(|| Namespace::current().unwrap().inode().unwrap())
            .unwrap();
        assert_eq!(seen, inside);
        assert_eq!(Namespace::current().unwrap().inode().unwrap(), outside);
        assert_eq!(Namespace::named(&name).unwrap().inode().unwrap(), inside);
        let devices = namespace
            .run_with_sysfs(|| fs::read_dir("/sys/class/net").unwrap().count())
            .unwrap();
        assert_eq!(devices, 1, "an empty namespace has its loopback only");
        assert!(names().contains(&name));
        let other = format!("{name}-other");
        let bound = Namespace::bind(&other, &path(&name)).unwrap();
        assert_eq!(bound.inode().unwrap(), inside);
        assert!(Namespace::bind(&other, &path(&name)).is_err(), "taken");
        remove(&other).unwrap();
        assert!(Namespace::bind(&other, Path::new("/no/such/file")).is_err());
        assert!(!names().contains(&other), "nothing stays of a failure");
        assert_eq!(find(&name).unwrap().unwrap().inode().unwrap(), inside);
        remove(&name).unwrap();
        remove(&name).unwrap();
        assert!(!names().contains(&name) && find(&name).unwrap().is_none());
        fs::write(path(&name), "").unwrap();
        assert!(find(&name).unwrap().is_none());
        remove(&name).unwrap();
    }

    #[test]
    fn processes_are_found_by_namespace() {
        if !crate::require::root() {
            return;
        }
        let inode = Namespace::current().unwrap().inode().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(processes_in(inode).contains(&own));
        assert!(processes_in(1).is_empty());
    }
}
