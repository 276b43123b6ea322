//! fio: rings, mappings, direct writes and ordinary ones on the same files at the same time.

use std::process::Command;

use sys::require::{Class, requested, skip};

use super::mirror::{MirrorBed, script};
use crate::bed::file_system::{Format, within};

/// `$1` has the files. Each part writes at random places of both, in sizes that fit no page.
const WORK: &str = r#"
cat >mixed.fio <<END
[global]
directory=$1
file_service_type=random
size=24m
filesize=4m
rw=randwrite
bsrange=512-72k
bs_unaligned=1
number_ios=400
randseed=4711
fallocate=none
group_reporting=1
[ring]
filename=one:other
ioengine=io_uring
iodepth=16
[ring-fixed]
filename=one:other
ioengine=io_uring
iodepth=16
fixedbufs=1
registerfiles=1
[mapped]
filename=one:other
ioengine=mmap
bsrange=4k-72k
bs_unaligned=0
[spliced]
filename=one:other
ioengine=splice
[reserved]
filename=one:other
ioengine=falloc
bsrange=4k-64k
bs_unaligned=0
number_ios=40
# Who syncs hears of pages that a direct write could not take away.
[positioned]
filename=one
ioengine=pvsync2
fdatasync=40
[ordinary]
filename=one
ioengine=sync
rw=write
sync_file_range=write:16
[direct]
filename=other
ioengine=libaio
iodepth=8
direct=1
bs_unaligned=0
bsrange=4k-64k
[direct-ring]
filename=other
ioengine=io_uring
iodepth=8
direct=1
bs_unaligned=0
bsrange=4k-64k
END
fio --output=said mixed.fio || {
    cat said >&2
    exit 1
}
"#;

#[test]
fn files_that_are_written_in_every_way_at_once_are_mirrored() {
    mirrored_on(Format::Ext4);
}

#[test]
fn files_that_are_written_in_every_way_at_once_are_mirrored_on_other_file_systems() {
    if requested("follows fio on xfs and btrfs") {
        for format in [Format::Ext4Journal, Format::Xfs, Format::Btrfs] {
            mirrored_on(format);
        }
    }
}

fn mirrored_on(format: Format) {
    within(|bed| {
        if Command::new("fio").arg("--version").output().is_err() {
            skip(Class::OptIn, "needs fio: apt-get install fio");
            return;
        }
        let Some(mut mirrored) = MirrorBed::start_on(bed, format, "fio") else {
            return;
        };
        let tree = mirrored.tree.clone();
        mirrored.during(|| script(bed, WORK, &tree));
        mirrored.end();
    });
}
