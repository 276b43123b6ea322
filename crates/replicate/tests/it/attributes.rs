//! Extended attributes of pipes, sockets, devices and symbolic links, whose changes have no visible
//! end, and more attributes than the kernel lists.
#![cfg(target_arch = "x86_64")]

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use replicate::capture::Options;
use rustix::fs::{XattrFlags, listxattr, setxattr};
use rustix::io::Errno;
use sys::require::{Class, skip};
use sys::uring;

use crate::bed::file_system::{Format, within};
use crate::follow::{Following, shell};

/// Blocks changes of the file system for most of the time, once a pending change is reported.
const HOLDS: &str = r#"
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#define CHECKPOINT _IOW('f', 43, unsigned)
#define ZERO 2
int main(int argc, char **argv)
{
	struct pollfd ends = { .fd = 0, .events = POLLIN };
	int file = open(argv[1], O_RDONLY);
	unsigned how = ZERO;

	while (poll(&ends, 1, 0) == 0)
		if (ioctl(file, CHECKPOINT, &how))
			return perror("EXT4_IOC_CHECKPOINT"), 1;
	return 0;
}
"#;

/// As a 32-bit program does it: `lsetxattr` of a path in the working directory.
const SETS: &str = r#"
#include <string.h>
int main(int argc, char **argv)
{
	static char path[256], name[] = "trusted.x", value[16];
	long result;

	strcpy(path, argv[1]);
	strcpy(value, argv[2]);
	asm volatile("int $0x80"
		     : "=a"(result)
		     : "a"(227), "b"((long)path), "c"((long)name), "d"((long)value),
		       "S"(strlen(value)), "D"(0)
		     : "memory", "r8", "r9", "r10", "r11");
	return result == -38 ? 77 : result != 0;
}
"#;

#[test]
fn attributes_of_what_has_no_bytes_are_read_when_they_are_set() {
    within(|bed| {
        let scratch = bed.scratch();
        for (name, text) in [("holds", HOLDS), ("sets", SETS)] {
            fs::write(scratch.join(format!("{name}.c")), text).unwrap();
            let build = format!("gcc -O1 -static -no-pie -mno-red-zone -o {name} {name}.c");
            shell(scratch, &build);
        }
        let Some(tree) = bed.follow(Format::Ext4, "tree") else {
            return;
        };
        shell(&tree, "mkfifo pipe; ln -s nowhere link; mknod device c 1 3");
        let _socket = UnixListener::bind(tree.join("socket")).unwrap();
        let mut following = Following::start(&tree, Options::default());
        following.check(&tree);
        let mut holds = Command::new(scratch.join("holds"));
        holds.arg(&tree).stdin(Stdio::piped());
        let mut holds = sys::child::die_with_parent(&mut holds).spawn().unwrap();
        for step in 0..40 {
            let value = format!("value {step}");
            following.during(|| {
                for name in ["pipe", "device", "socket"] {
                    let path = CString::new(tree.join(name).as_os_str().as_bytes()).unwrap();
                    uring::set_attribute(&path, c"trusted.y", value.as_bytes()).unwrap();
                }
            });
            following.check(&tree);
            for name in ["link", "pipe"] {
                let mut sets = Command::new(scratch.join("sets"));
                sets.args([name, &value]).current_dir(&tree);
                let ended = following.during(|| sets.status().unwrap());
                match ended.code() {
                    Some(0) => {}
                    Some(77) => skip(
                        Class::Hardware,
                        "this kernel has no calls of 32-bit programs",
                    ),
                    _ => panic!("{ended}"),
                }
            }
            following.check(&tree);
        }
        drop(holds.stdin.take());
        assert!(holds.wait().unwrap().success());
    });
}

#[test]
fn more_attributes_than_the_kernel_tells_stop_nothing() {
    within(|bed| {
        let Some(tree) = bed.follow(Format::Xfs, "many") else {
            return;
        };
        shell(&tree, "touch file other");
        let mut following = Following::start(&tree, Options::default());
        following.check(&tree);
        for number in 0..300 {
            let name = format!("user.{}{number}", "a".repeat(230));
            setxattr(tree.join("file"), name, b"x", XattrFlags::empty()).unwrap();
        }
        let mut room = vec![0; 1 << 20];
        let list = listxattr(tree.join("file"), room.as_mut_slice());
        assert_eq!(list, Err(Errno::TOOBIG));
        following.catch_up();
        shell(&tree, "echo more >>other");
        let before = following.catch_up().epoch;
        shell(&tree, "rm file; sync");
        let after = following.check(&tree).epoch;
        assert!(after > before);
    });
}
