//! A disk that is soon full.

use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Mounts one of so many KiB, for the calling thread and those that it starts.
pub(crate) fn mount_disk(folder: &Path, kib: u32) {
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_PRIVATE | MsFlags::MS_REC, none).unwrap();
    let (disk, size) = (Some("tmpfs"), format!("size={kib}k"));
    mount(disk, folder, disk, MsFlags::empty(), Some(size.as_str())).unwrap();
}
