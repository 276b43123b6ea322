//! Test file systems: images in a mount namespace of the test.
//!
//! Images lie in memory that is mounted in that namespace only. When the last thread and process in
//! it ends, killed or not, the kernel unmounts everything, frees the loop devices and the memory.

use std::fs::{self, File};
use std::panic;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use replicate::capture;
use sys::kernel::Release;
use sys::require::{Class, skip};
use tempfile::TempDir;

/// The size of an image, which is sparse. xfs requires at least 300 MB.
const SIZE: u64 = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Ext4,
    /// With data in the journal, too.
    Ext4Journal,
    /// With small files in their inodes.
    Ext4Inline,
    /// With directories in which names are alike whatever their case.
    Ext4Folded,
    Xfs,
    Btrfs,
    Tmpfs,
    /// Both layers on ext4.
    Overlay,
}

impl Format {
    pub(crate) const ALL: [Self; 7] = [
        Self::Ext4,
        Self::Ext4Journal,
        Self::Ext4Inline,
        Self::Xfs,
        Self::Btrfs,
        Self::Tmpfs,
        Self::Overlay,
    ];

    fn is_ext4(self) -> bool {
        matches!(
            self,
            Self::Ext4 | Self::Ext4Journal | Self::Ext4Inline | Self::Ext4Folded
        )
    }

    /// Whether this kernel reports its changes, by tracepoints or by functions.
    fn has_events(self) -> bool {
        let events = self.is_ext4() || Release::running().unwrap().at_least(6, 13);
        events || self != Self::Overlay && capture::functions().is_ok()
    }

    /// What makes its image, if it has one.
    fn maker(self) -> &'static str {
        match self {
            Self::Ext4 | Self::Ext4Journal | Self::Overlay => "mkfs.ext4 -q -F -I 256 -N 8192",
            Self::Ext4Inline => "mkfs.ext4 -q -F -I 512 -N 8192 -O inline_data",
            Self::Ext4Folded => "mkfs.ext4 -q -F -I 256 -N 8192 -O casefold",
            Self::Xfs => "mkfs.xfs -q -f",
            Self::Btrfs => "mkfs.btrfs -q -f",
            Self::Tmpfs => "",
        }
    }
}

/// A mount namespace with a place for images.
#[derive(Debug)]
pub(crate) struct Bed {
    place: TempDir,
}

/// Runs `work` in a namespace of its own, on a thread of its own; threads and processes that it
/// starts are in it, too. `None`, with the skip reported, where that is not allowed.
pub(crate) fn within<T: Send>(work: impl FnOnce(&Bed) -> T + Send) -> Option<T> {
    if !sys::require::root() {
        return None;
    }
    let inside = || {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
        let bed = Bed {
            place: tempfile::tempdir().unwrap(),
        };
        tmpfs(bed.place.path());
        work(&bed)
    };
    thread::scope(|scope| {
        let ended = scope.spawn(inside).join();
        Some(ended.unwrap_or_else(|panic| panic::resume_unwind(panic)))
    })
}

impl Bed {
    /// A folder in memory, for files that are not under test.
    pub(crate) fn scratch(&self) -> &Path {
        self.place.path()
    }

    /// An empty folder at the root of a new file system; `None`, with the skip reported, where its
    /// programs are missing or the kernel does not know it.
    pub(crate) fn mount(&self, format: Format, name: &str) -> Option<PathBuf> {
        let at = self.scratch().join(name);
        fs::create_dir(&at).unwrap();
        let mounted = match format {
            Format::Tmpfs => {
                tmpfs(&at);
                true
            }
            Format::Overlay => self.overlay(&at, name),
            // A long commit interval, so that no test relies on the file system's own commits.
            Format::Ext4Journal => self.image(format, &at, name, "loop,data=journal,commit=300"),
            _ => self.image(format, &at, name, "loop"),
        };
        // A file system's root has entries and attributes of its own.
        let tree = at.join("tree");
        mounted.then(|| fs::create_dir(&tree).map(|()| tree).unwrap())
    }

    /// As [`Self::mount`], for a file system to be followed. Older kernels report too little on
    /// most.
    pub(crate) fn follow(&self, format: Format, name: &str) -> Option<PathBuf> {
        if !format.has_events() {
            let reason = format!("following {format:?} needs Linux 6.13");
            skip(Class::Hardware, &reason);
            return None;
        }
        self.mount(format, name)
    }

    fn image(&self, format: Format, at: &Path, name: &str, options: &str) -> bool {
        let image = self.scratch().join(format!("{name}.image"));
        File::create_new(&image).unwrap().set_len(SIZE).unwrap();
        let mut words = format.maker().split(' ');
        let mut maker = Command::new(words.next().unwrap());
        maker.args(words).arg(&image);
        let mut mounter = Command::new("mount");
        mounter.arg("-o").arg(options).arg(&image).arg(at);
        done(&mut maker) && done(&mut mounter)
    }

    fn overlay(&self, at: &Path, name: &str) -> bool {
        let Some(layers) = self.mount(Format::Ext4, &format!("{name}.layers")) else {
            return false;
        };
        let lower = layers.join("lower");
        fs::create_dir(&lower).unwrap();
        overlay(at, &lower, &layers, "")
    }

    /// As [`Self::follow`], of an overlay above an upper directory on such a file system, mounted with those
    /// options beside, the lower directory within the same. What `fill` makes in a folder is in the tree.
    pub(crate) fn layers(
        &self,
        upper: Format,
        name: &str,
        options: &str,
        fill: impl FnOnce(&Path),
    ) -> Option<PathBuf> {
        let layers = self.follow(upper, &format!("{name}.layers"))?;
        let lower = layers.join("lower");
        self.above(&lower, &layers, name, options, fill)
    }

    /// As [`Self::layers`], of a lower directory anywhere, and a folder for the upper one.
    pub(crate) fn above(
        &self,
        lower: &Path,
        layers: &Path,
        name: &str,
        options: &str,
        fill: impl FnOnce(&Path),
    ) -> Option<PathBuf> {
        if !Release::running().unwrap().at_least(6, 13) {
            skip(Class::Hardware, "following an overlay needs Linux 6.13");
            return None;
        }
        let at = self.scratch().join(name);
        fs::create_dir(&at).unwrap();
        fs::create_dir_all(lower.join("tree")).unwrap();
        fill(&lower.join("tree"));
        overlay(&at, lower, layers, options).then(|| at.join("tree"))
    }
}

/// Mounts one, its upper directory in a folder.
fn overlay(at: &Path, lower: &Path, layers: &Path, more: &str) -> bool {
    let [upper, work] = ["upper", "work"].map(|layer| layers.join(layer));
    for layer in [&upper, &work] {
        fs::create_dir(layer).unwrap();
    }
    let options = format!(
        "lowerdir={},upperdir={},workdir={}{more}",
        lower.display(),
        upper.display(),
        work.display()
    );
    done(
        Command::new("mount")
            .args(["-t", "overlay", "-o", &options, "overlay"])
            .arg(at),
    )
}

impl Drop for Bed {
    fn drop(&mut self) {
        // With all that is mounted below.
        let _ = umount2(self.place.path(), MntFlags::MNT_DETACH);
    }
}

fn tmpfs(at: &Path) {
    let none = MsFlags::empty();
    mount(Some("tmpfs"), at, Some("tmpfs"), none, None::<&str>).unwrap();
}

/// Whether the program did it; what it lacks is reported as a skip.
fn done(command: &mut Command) -> bool {
    let (done, why) = match command.output() {
        Ok(output) => (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        ),
        Err(error) => (false, error.to_string()),
    };
    if !done {
        skip(Class::Core, &format!("{command:?}: {why}"));
    }
    done
}
