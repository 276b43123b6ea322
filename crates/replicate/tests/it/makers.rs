//! Changes by other means than single system calls of a 64-bit program: 32-bit programs, and calls
//! that do several things at once.
#![allow(clippy::print_stdout, reason = "a failed test shows what was done")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use crate::bed::file_system::{Format, within};
use crate::follow::{Following, shell};
#[cfg(target_arch = "x86_64")]
use nix::libc;
use replicate::capture::Options;
use sys::require::{Class, skip};

/// A 64-bit program that makes 32-bit system calls, with their numbers and registers.
#[cfg(target_arch = "x86_64")]
const OTHER_CALLS: &str = r#"
static long call(long number, long a, long b, long c, long d, long e)
{
	long result;

	asm volatile("push %%rbp; xor %%ebp, %%ebp; int $0x80; pop %%rbp"
		     : "=a"(result)
		     : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
		     : "memory", "r8", "r9", "r10", "r11");
	return result;
}
#define AT(name) ((long)(name))
int main(void)
{
	static char bytes[5000];
	long file = call(5, AT("a"), 0102, 0644, 0, 0);
	char *page;

	if (file < 0)
		return 77;
	for (int i = 0; i < 5000; i++)
		bytes[i] = i;
	call(4, file, AT(bytes), 5000, 0, 0);
	call(93, file, 100, 0, 0, 0);
	call(93, file, 5000, 0, 0, 0);
	page = (char *)call(192, 0, 4096, 3, 1, file);
	page[2000] = 'm';
	call(39, AT("d"), 0755, 0, 0, 0);
	call(38, AT("a"), AT("d/b"), 0, 0, 0);
	call(9, AT("d/b"), AT("c"), 0, 0, 0);
	call(94, file, 0600, 0, 0, 0);
	call(9, AT("c"), AT("e"), 0, 0, 0);
	call(10, AT("d/b"), 0, 0, 0, 0);
	call(38, AT("d"), AT("f"), 0, 0, 0);
	page[2001] = 'n';
	return 0;
}
"#;

#[cfg(target_arch = "x86_64")]
#[test]
fn what_programs_of_32_bits_do_is_said() {
    for format in [Format::Ext4, Format::Xfs, Format::Btrfs, Format::Tmpfs] {
        within(|bed| {
            let source = bed.scratch().join("calls.c");
            std::fs::write(&source, OTHER_CALLS).unwrap();
            shell(
                bed.scratch(),
                "gcc -O1 -static -no-pie -mno-red-zone -o calls calls.c",
            );
            let Some(tree) = bed.follow(format, "tree") else {
                return;
            };
            println!("{format:?}");
            let options = Options {
                look: true,
                ..Options::default()
            };
            let mut following = Following::start(&tree, options);
            following.check(&tree);
            let program = bed.scratch().join("calls");
            let ended = Command::new(program).current_dir(&tree).status().unwrap();
            if ended.code() != Some(0) {
                return skip(
                    Class::Hardware,
                    "this kernel has no calls of 32-bit programs",
                );
            }
            following.check(&tree);
        });
    }
}

/// One call that writes the first page of a file and reads into the second, which is mapped.
const BATCH: &str = r#"
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	static char bytes[4096];
	int file = open(argv[1], O_RDWR), other = open(argv[2], O_RDONLY);
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	struct iocb requests[2], *both[] = { &requests[0], &requests[1] };
	struct io_event done[2];
	aio_context_t context = 0;

	memset(bytes, argv[3][0], sizeof(bytes));
	memset(requests, 0, sizeof(requests));
	requests[0].aio_lio_opcode = IOCB_CMD_PWRITE;
	requests[0].aio_fildes = file;
	requests[0].aio_buf = (uintptr_t)bytes;
	requests[1].aio_lio_opcode = IOCB_CMD_PREAD;
	requests[1].aio_fildes = other;
	requests[1].aio_buf = (uintptr_t)(pages + 4096);
	requests[0].aio_nbytes = requests[1].aio_nbytes = sizeof(bytes);
	puts("mapped");
	fflush(stdout);
	getchar();
	if (syscall(SYS_io_setup, 2, &context) || syscall(SYS_io_submit, context, 2, both) != 2)
		return 1;
	return syscall(SYS_io_getevents, context, 2, 2, done, NULL) != 2;
}
"#;

#[test]
fn what_a_call_reads_into_the_file_that_it_writes_is_said() {
    for format in [Format::Ext4, Format::Xfs, Format::Btrfs] {
        within(|bed| {
            std::fs::write(bed.scratch().join("batch.c"), BATCH).unwrap();
            shell(bed.scratch(), "gcc -O1 -o batch batch.c");
            let Some(tree) = bed.follow(format, "tree") else {
                return;
            };
            println!("{format:?}");
            shell(
                &tree,
                "head -c 4096 /dev/urandom >file; sync; head -c 4096 /dev/urandom >>file; head -c 4096 /dev/urandom >other",
            );
            let mut following = Following::start(&tree, Options::default());
            following.check(&tree);
            for step in ["a", "b"] {
                let mut command = Command::new(bed.scratch().join("batch"));
                command.args(["file", "other", step]).current_dir(&tree);
                command.stdin(Stdio::piped()).stdout(Stdio::piped());
                let mut batch = sys::child::die_with_parent(&mut command).spawn().unwrap();
                let mut said = String::new();
                let mut lines = BufReader::new(batch.stdout.take().unwrap());
                lines.read_line(&mut said).unwrap();
                assert_eq!(said, "mapped\n");
                // The mapped page has been read by now, and is clean.
                following.check(&tree);
                batch.stdin.take().unwrap().write_all(b"\n").unwrap();
                assert!(batch.wait().unwrap().success());
                following.check(&tree);
                shell(&tree, "head -c 4096 /dev/urandom >other");
            }
        });
    }
}

/// Whether core dumps go elsewhere. The test is then skipped.
fn keeps_cores_elsewhere() -> bool {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    let elsewhere = pattern.starts_with(['|', '/']);
    if elsewhere {
        skip(
            Class::Hardware,
            "this machine keeps what programs leave elsewhere",
        );
    }
    elsewhere
}

/// A program that dumps core in its working directory.
const DIES: &str = "import os, resource\n\
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2)\n\
    memory = bytes(range(1, 251)) * 100_000\n\
    os.abort()\n";

#[test]
fn what_the_kernel_writes_of_a_program_that_dies_is_said() {
    if keeps_cores_elsewhere() {
        return;
    }
    for format in [
        Format::Ext4,
        Format::Xfs,
        Format::Btrfs,
        Format::Tmpfs,
        Format::Overlay,
    ] {
        within(|bed| {
            let Some(tree) = bed.follow(format, "tree") else {
                return;
            };
            println!("{format:?}");
            let options = Options {
                look: true,
                ..Options::default()
            };
            let mut following = Following::start(&tree, options);
            following.check(&tree);
            for _ in 0..2 {
                let status = following.during(|| {
                    let mut python = Command::new("python3");
                    python.args(["-c", DIES]).current_dir(&tree);
                    python.stderr(Stdio::null()).status().unwrap()
                });
                assert!(status.core_dumped(), "{status}");
                following.check(&tree);
            }
        });
    }
}

#[test]
fn what_two_files_exchange_is_said() {
    within(|bed| {
        let Some(tree) = bed.follow(Format::Xfs, "tree") else {
            return;
        };
        shell(
            &tree,
            "head -c 65536 /dev/urandom >one; head -c 65536 /dev/urandom >other; sync",
        );
        let mut following = Following::start(&tree, Options::default());
        following.check(&tree);
        shell(&tree, "xfs_io -c 'swapext other' one");
        following.check(&tree);
    });
}

/// A program that is killed when one of its calls returns `ENOSYS`, or soon after.
const ASKS_FOR_NOTHING: &str = r"
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>
int main(void)
{
	struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };
	pid_t program = getpid();

	setrlimit(RLIMIT_CORE, &all);
	if (!fork()) {
		usleep(20000);
		return kill(program, SIGABRT);
	}
	for (;;)
		syscall(9999);
}
";

/// Its core is written while it appears to be in a call that never ends.
#[test]
fn a_program_that_dies_after_a_call_that_there_is_not_holds_up_no_epoch() {
    if keeps_cores_elsewhere() {
        return;
    }
    within(|bed| {
        std::fs::write(bed.scratch().join("nothing.c"), ASKS_FOR_NOTHING).unwrap();
        shell(bed.scratch(), "gcc -O1 -o nothing nothing.c");
        let Some(tree) = bed.follow(Format::Ext4, "tree") else {
            return;
        };
        let mut following = Following::start(&tree, Options::default());
        for _ in 0..16 {
            let program = bed.scratch().join("nothing");
            let ended = Command::new(program).current_dir(&tree).status().unwrap();
            assert!(ended.core_dumped(), "{ended}");
            following.check(&tree);
        }
    });
}

/// A program whose tracer sets the result of a call before the call has begun.
#[cfg(target_arch = "x86_64")]
const IS_TRACED: &str = r"
#include <signal.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char **arguments)
{
	struct user_regs_struct registers;
	int status, call = atoi(arguments[1]), stops = 0;
	pid_t program = fork();

	if (!program) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		_exit(syscall(call, arguments[2], arguments[3]) != 0);
	}
	waitpid(program, &status, 0);
	for (;;) {
		ptrace(PTRACE_SYSCALL, program, 0, 0);
		waitpid(program, &status, 0);
		if (!WIFSTOPPED(status))
			return !WIFEXITED(status) || WEXITSTATUS(status) || stops != 2;
		ptrace(PTRACE_GETREGS, program, 0, &registers);
		if ((int)registers.orig_rax != call || stops++)
			continue;
		registers.rax = 0;
		ptrace(PTRACE_SETREGS, program, 0, &registers);
	}
}
";

#[cfg(target_arch = "x86_64")]
#[test]
fn what_a_program_does_whose_tracer_sets_results_is_said() {
    let calls: [(_, &[_]); 5] = [
        (libc::SYS_rename, &["one", "d/moved"]),
        (libc::SYS_link, &["d/moved", "link"]),
        (libc::SYS_symlink, &["link", "symlink"]),
        (libc::SYS_unlink, &["link"]),
        (libc::SYS_rename, &["d", "moved"]),
    ];
    for format in [Format::Ext4, Format::Xfs, Format::Btrfs, Format::Tmpfs] {
        within(|bed| {
            std::fs::write(bed.scratch().join("traced.c"), IS_TRACED).unwrap();
            shell(bed.scratch(), "gcc -O1 -o traced traced.c");
            let Some(tree) = bed.follow(format, "tree") else {
                return;
            };
            shell(&tree, "echo 1 >one; mkdir d; sync");
            let options = Options {
                look: true,
                ..Options::default()
            };
            let mut following = Following::start(&tree, options);
            following.check(&tree);
            for (call, arguments) in calls {
                println!("{format:?}: {call} {arguments:?}");
                let mut traced = Command::new(bed.scratch().join("traced"));
                traced.arg(call.to_string()).args(arguments);
                let ended = traced.current_dir(&tree).status().unwrap();
                assert!(ended.success(), "{ended}");
                following.check(&tree);
            }
        });
    }
}
