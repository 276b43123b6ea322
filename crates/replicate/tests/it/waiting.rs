//! Waiting calls, and calls whose end is not seen in the usual way, do not keep an epoch from
//! ending.
#![allow(clippy::print_stdout, reason = "a failed test shows what was done")]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use replicate::capture::Options;
use rustix::fs::sendfile;
use sys::require::{Class, skip};

use crate::bed::file_system::{Format, within};
use crate::follow::{Following, shell};

#[test]
fn a_file_is_sent_to_who_does_not_read() {
    for format in [Format::Ext4, Format::Xfs] {
        within(|bed| {
            let Some(tree) = bed.follow(format, "tree") else {
                return;
            };
            println!("{format:?}");
            shell(&tree, "echo small >small");
            let mut following = Following::start(&tree, Options::default());
            following.check(&tree);
            shell(&tree, "head -c 8388608 /dev/urandom >large");
            let large = File::open(tree.join("large")).unwrap();
            let (to, nobody) = UnixStream::pair().unwrap();
            thread::scope(|scope| {
                let sending = scope.spawn(|| {
                    let mut sent = 1;
                    while sent > 0 {
                        sent = sendfile(&to, &large, None, 8 << 20).unwrap_or(0);
                    }
                });
                for step in 0..5 {
                    shell(
                        &tree,
                        &format!("echo {step} >>small; mv small other; mv other small"),
                    );
                    following.check(&tree);
                }
                assert!(!sending.is_finished());
                drop(nobody);
            });
            following.check(&tree);
        });
    }
}

/// It stores the first of what it is sent in the file by its mapping, within the call, and waits for more.
const RECEIVES: &str = "import mmap, os, socket, sys, threading, time
memory = mmap.mmap(os.open(\"f\", os.O_RDWR), 8192)
one, other = socket.socketpair()
print(\"mapped\", flush=True)
sys.stdin.readline()
receive = lambda: one.recv_into(memoryview(memory), 8192, socket.MSG_WAITALL)
thread = threading.Thread(target=receive)
thread.start()
other.sendall(b\"x\" * 4096)
while memory[4095] != ord(\"x\"):
    time.sleep(0.01)
print(\"received\", flush=True)
sys.stdin.readline()
other.sendall(b\"y\" * 4096)
thread.join()";

#[test]
fn what_a_call_has_stored_that_waits_for_more_is_told_though_nothing_else_happens() {
    if Command::new("python3").arg("--version").output().is_err() {
        return skip(
            Class::Hardware,
            "no Python here, as in a guest of a kernel alone",
        );
    }
    within(|bed| {
        let Some(tree) = bed.follow(Format::Ext4, "tree") else {
            return;
        };
        shell(&tree, "head -c 8192 /dev/zero >f");
        let mut following = Following::start(&tree, Options::default());
        following.check(&tree);
        let mut command = Command::new("python3");
        command.args(["-c", RECEIVES]).current_dir(&tree);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = Ends(sys::child::die_with_parent(&mut command).spawn().unwrap());
        let mut asks = program.0.stdin.take().unwrap();
        let mut said = BufReader::new(program.0.stdout.take().unwrap()).lines();
        for word in ["mapped", "received"] {
            let line = following.during(|| said.next().unwrap().unwrap());
            assert_eq!(line, word);
            following.check(&tree);
            asks.write_all(b"\n").unwrap();
        }
        following.during(|| assert!(program.0.wait().unwrap().success()));
        following.check(&tree);
    });
}

/// Ends it with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Opens a FIFO for reading, and waits in the kernel for a writer.
fn reader(tree: &Path, name: &str) -> Ends {
    let mut command = Command::new("cat");
    command.arg(name).current_dir(tree);
    let reader = Ends(sys::child::die_with_parent(&mut command).spawn().unwrap());
    let waits_in = format!("/proc/{}/wchan", reader.0.id());
    while !fs::read_to_string(&waits_in)
        .unwrap()
        .contains("wait_for_partner")
    {
        thread::yield_now();
    }
    reader
}

#[test]
fn a_pipe_is_opened_by_a_link_to_it_and_nobody_writes() {
    within(|bed| {
        let Some(tree) = bed.follow(Format::Ext4, "tree") else {
            return;
        };
        shell(&tree, "mkfifo pipe; ln -s pipe link");
        let mut following = Following::start(&tree, Options::default());
        following.check(&tree);
        // So that to follow it makes it younger.
        shell(&tree, "touch --no-dereference -a -d 2001-02-03 link");
        following.catch_up();
        let reader = reader(&tree, "link");
        for step in 0..20 {
            shell(&tree, &format!("echo {step} >file"));
            following.check(&tree);
        }
        drop(reader);
        shell(&tree, "echo last >file");
        following.check(&tree);
    });
}

/// A 32-bit program that ends at once: its ELF header, a program header, and `exit(0)`.
#[cfg(target_arch = "x86_64")]
fn small_program() -> Vec<u8> {
    let mut bytes = b"\x7fELF\x01\x01\x01".to_vec();
    bytes.resize(16, 0);
    for half in [2_u16, 3] {
        bytes.extend(half.to_le_bytes());
    }
    for word in [1_u32, 0x0804_8054, 52, 0, 0] {
        bytes.extend(word.to_le_bytes());
    }
    for half in [52_u16, 32, 1, 0, 0, 0] {
        bytes.extend(half.to_le_bytes());
    }
    for word in [1_u32, 0, 0x0804_8000, 0x0804_8000, 0x5d, 0x5d, 5, 0x1000] {
        bytes.extend(word.to_le_bytes());
    }
    // mov eax, 1; xor ebx, ebx; int 0x80
    bytes.extend([0xb8, 1, 0, 0, 0, 0x31, 0xdb, 0xcd, 0x80]);
    bytes
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_program_of_32_bits_is_begun_by_one_of_64() {
    within(|bed| {
        let Some(tree) = bed.follow(Format::Ext4, "tree") else {
            return;
        };
        let program = tree.join("program");
        let mut file = File::create(&program).unwrap();
        file.write_all(&small_program()).unwrap();
        drop(file);
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mut following = Following::start(&tree, Options::default());
        following.check(&tree);
        // Older than the file itself, so that to read it makes it younger.
        shell(&tree, "touch -a -d 2001-02-03 program");
        let ended = Command::new(&program).status();
        let Ok(ended) = ended else {
            return skip(Class::Hardware, "this kernel runs no 32-bit programs");
        };
        assert!(ended.success(), "{ended}");
        for step in 0..20 {
            shell(&tree, &format!("echo {step} >file"));
            following.check(&tree);
        }
    });
}
