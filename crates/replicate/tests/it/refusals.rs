//! Trees that are refused because their changes would not be reported.

use std::path::Path;

use replicate::capture::{Capture, Error, Options};

use crate::bed::file_system::{Format, within};
use crate::follow::shell;

fn refused(tree: &Path) {
    let refused = Capture::start(tree, Options::default());
    assert!(
        matches!(refused, Err(Error::FileSystem { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_file_system_that_does_not_tell_of_all_times() {
    within(|bed| {
        let Some(tree) = bed.follow(Format::Ext4, "tree") else {
            return;
        };
        drop(Capture::start(&tree, Options::default()).unwrap());
        shell(tree.parent().unwrap(), "mount -o remount,lazytime .");
        refused(&tree);
    });
}

/// Mounts a directory at another place with mapped owners: files of the owners 0 to 9 appear as
/// 1000 to 1009.
const MAPS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static void put(int process, const char *name)
{
	char path[64];
	int file;

	snprintf(path, sizeof(path), "/proc/%d/%s", process, name);
	file = open(path, O_WRONLY);
	if (write(file, "0 1000 10", 9) != 9)
		perror(path);
	close(file);
}
int main(int argc, char **argv)
{
	struct { uint64_t set, clear, propagation, users; } how = { .set = 0x100000 };
	int begun[2], ends[2], child, mount;
	char byte, path[64];

	if (pipe(begun) || pipe(ends))
		return 1;
	child = fork();
	if (child == 0) {
		close(ends[1]);
		if (unshare(CLONE_NEWUSER) || write(begun[1], "", 1) != 1)
			_exit(1);
		_exit(read(ends[0], &byte, 1));
	}
	close(begun[1]);
	if (read(begun[0], &byte, 1) != 1)
		return 1;
	put(child, "uid_map");
	put(child, "gid_map");
	snprintf(path, sizeof(path), "/proc/%d/ns/user", child);
	how.users = open(path, O_RDONLY);
	/* open_tree, mount_setattr, move_mount */
	mount = syscall(428, AT_FDCWD, argv[1], 1);
	if (syscall(442, mount, "", 0x1000, &how, sizeof(how)))
		return perror("mount_setattr"), 1;
	if (syscall(429, mount, "", AT_FDCWD, argv[2], 4))
		return perror("move_mount"), 1;
	close(ends[1]);
	return wait(NULL) != child;
}
"#;

#[test]
fn a_mount_that_maps_owners() {
    within(|bed| {
        let Some(tree) = bed.follow(Format::Ext4, "tree") else {
            return;
        };
        std::fs::write(bed.scratch().join("maps.c"), MAPS).unwrap();
        let script =
            "gcc -O1 -o maps maps.c; mkdir mapped; ./maps tree/tree mapped; stat -c %u mapped";
        assert_eq!(shell(bed.scratch(), script), "1000\n");
        refused(&bed.scratch().join("mapped"));
        drop(Capture::start(&tree, Options::default()).unwrap());
    });
}
