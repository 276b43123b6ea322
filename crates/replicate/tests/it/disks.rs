//! A disk image in a file of the tree, which kernel threads write.
#![allow(clippy::print_stdout, reason = "a failed test shows what was done")]

use replicate::capture::Options;
use sys::kernel::Release;
use sys::require::{Class, skip};

use crate::bed::file_system::{Format, within};
use crate::follow::{Following, shell};

/// With its own cache, and with direct I/O.
const DISK: &str = r#"
truncate -s 16M image
device=$(losetup --find --show $1 image)
trap 'losetup -d $device' EXIT
dd if=/dev/urandom of=$device bs=64K count=40 conv=fsync status=none
mkfs.ext4 -q -F $device
blkdiscard --offset 8M --length 1M $device
dd if=/dev/urandom of=$device bs=4K seek=2100 count=3 oflag=direct status=none
sync $device
"#;

#[test]
fn what_a_disk_in_a_file_writes_is_said() {
    for format in [Format::Ext4, Format::Xfs, Format::Btrfs] {
        for direct in ["off", "on"] {
            within(|bed| {
                let Some(tree) = bed.follow(format, "tree") else {
                    return;
                };
                println!("{format:?}, direct {direct}");
                let refuses = !Release::running().unwrap().at_least(6, 13);
                if format == Format::Btrfs && direct == "on" && refuses {
                    let why = "btrfs of old kernels fails direct writes that meet a reader";
                    return skip(Class::Hardware, why);
                }
                let mut following = Following::start(&tree, Options::default());
                following.check(&tree);
                let script = DISK.replace("$1", &format!("--direct-io={direct}"));
                following.during(|| shell(&tree, &script));
                following.check(&tree);
            });
        }
    }
}
