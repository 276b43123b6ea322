//! Holes in files that are written meanwhile, and in files whose data is in the inode.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::unistd::{Whence, lseek};
use sys::holes;

use crate::bed::file_system::{Format, within};

const PAGE: usize = 4096;
/// An offset within the punched range.
const WRITE_OFFSET: u64 = 2100 * PAGE as u64;
const ROUNDS: u32 = 50;

/// Two adjacent holes, which the file system may store separately.
fn holed(path: &Path) -> File {
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
        .unwrap();
    file.write_all_at(&[1; PAGE], 0).unwrap();
    file.write_all_at(&vec![1; 1 << 20], 8 << 20).unwrap();
    file.set_len(16 << 20).unwrap();
    file.sync_all().unwrap();
    file.read_exact_at(&mut vec![0; 1 << 20], 6 << 20).unwrap();
    let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(&file, punch, 8 << 20, 1 << 20).unwrap();
    file
}

#[test]
fn what_is_on_its_way_to_the_disk_is_no_hole() {
    for format in [Format::Ext4, Format::Xfs, Format::Btrfs, Format::Tmpfs] {
        within(|bed| {
            let Some(tree) = bed.mount(format, "tree") else {
                return;
            };
            for round in 0..ROUNDS {
                let file = holed(&tree.join(round.to_string()));
                file.write_all_at(&[2; 3 * PAGE], WRITE_OFFSET).unwrap();
                thread::scope(|scope| {
                    let writer = scope.spawn(|| file.sync_data().unwrap());
                    while !writer.is_finished() {
                        let data = holes::next_data(&file, 4 << 20).unwrap();
                        assert_eq!(data, Some(WRITE_OFFSET), "{format:?}, round {round}");
                    }
                });
            }
        });
    }
}

#[test]
fn behind_data_in_an_inode_is_a_hole() {
    within(|bed| {
        let Some(tree) = bed.mount(Format::Ext4Inline, "tree") else {
            return;
        };
        let file = File::create_new(tree.join("short")).unwrap();
        // In this order ext4 leaves no space in the inode for what follows the data.
        file.set_len(5000).unwrap();
        file.write_all_at(&[1; 20], 0).unwrap();
        // Confirms that the data is inline: other files have data up to the end of a block.
        let behind = lseek(&file, 100, Whence::SeekData);
        assert!(matches!(behind, Err(Errno::ENOENT | Errno::ENXIO)));
        assert_eq!(holes::next_data(&file, 0).unwrap(), Some(0));
        assert_eq!(holes::next_data(&file, 100).unwrap(), None);
    });
}
