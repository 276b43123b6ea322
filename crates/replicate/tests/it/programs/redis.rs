//! Redis with its log of commands and its snapshots, killed in the middle.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sys::child::die_with_parent;
use sys::require::{Class, skip};

use super::mirror::{MirrorBed, kill_all, output_of, scratch, until};
use crate::bed::file_system::{Bed, within};

const KEYS: u64 = 5000;

#[test]
fn redis_has_what_its_log_of_commands_had() {
    for sync in ["everysec", "always"] {
        killed_in_the_middle(
            &["--appendonly", "yes", "--appendfsync", sync],
            "bgrewriteaof",
        );
    }
}

#[test]
fn redis_has_what_its_snapshot_had() {
    killed_in_the_middle(&["--save", "3600 1"], "bgsave");
}

/// `child` is what a process of its own does meanwhile, whose file then takes the name of another.
fn killed_in_the_middle(options: &[&str], child: &str) {
    within(|bed| {
        if !found() {
            return;
        }
        let Some(mut mirrored) = MirrorBed::start(bed, "redis") else {
            return;
        };
        let data = mirrored.tree.join("data");
        fs::create_dir(&data).unwrap();
        let mut server = Server::start(bed, &data, options);
        mirrored.during(|| server.wait());
        let mut load = server.load();
        let saved = || server.info("rdb_saves") + server.info("aof_rewrites");
        mirrored.until("keys", || server.size() >= KEYS);
        let before = saved();
        server.ask(&[child]);
        mirrored.until("a child has written it", || saved() > before);
        // Of the next one some is there, or all.
        let size = server.size();
        server.ask(&[child]);
        mirrored.until("more keys", || server.size() > size);
        mirrored.during(|| {
            kill_all(&mut server.process);
            // Without a server it usually ends by itself, but sometimes spins.
            load.kill().unwrap();
            load.wait().unwrap();
        });
        let (_, copies) = mirrored.end();
        let content = Server::recover(bed, &data, options);
        assert!(content.0 >= KEYS, "{content:?}");
        for copy in copies {
            let copied = Server::recover(bed, &copy.join("data"), options);
            assert_eq!(copied, content, "{}", copy.display());
        }
    });
}

/// Whether the programs are there; the skip is reported.
fn found() -> bool {
    let mut version = Command::new("redis-server");
    let found = version.arg("--version").output().is_ok();
    if !found {
        skip(Class::Core, "needs Redis: apt-get install redis-server");
    }
    found
}

struct Server {
    /// A folder for its socket and its output.
    place: PathBuf,
    process: Child,
}

impl Server {
    /// On the thread that it is to end with.
    fn start(bed: &Bed, data: &Path, options: &[&str]) -> Self {
        let place = scratch(bed);
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            "0",
            "--enable-debug-command",
            "yes",
            "--unixsocket",
        ]);
        command.arg(place.join("socket")).arg("--dir").arg(data);
        command.args(["--save", ""]).args(options);
        command.stdout(File::create(place.join("said")).unwrap());
        let process = die_with_parent(&mut command).spawn().unwrap();
        Self { place, process }
    }

    fn wait(&mut self) {
        until("the server answers", || {
            let ended = self.process.try_wait().unwrap();
            let errors = fs::read_to_string(self.place.join("said")).unwrap();
            assert!(ended.is_none(), "{errors}");
            let answer = self.client("redis-cli").arg("ping").output().unwrap();
            answer.stdout == b"PONG\n"
        });
    }

    /// How many keys a server finds in a folder, and a digest of all that it has.
    fn recover(bed: &Bed, data: &Path, options: &[&str]) -> (u64, String) {
        let mut server = Self::start(bed, data, options);
        server.wait();
        let content = (server.size(), server.ask(&["debug", "digest"]));
        kill_all(&mut server.process);
        content
    }

    /// Commands without end.
    fn load(&self) -> Child {
        let mut command = self.client("redis-benchmark");
        command.args([
            "-t",
            "set,lpush,hset",
            "-r",
            "100000",
            "-d",
            "100",
            // Of one command after the other, again and again: only the first makes keys.
            "-n",
            "5000",
            "-l",
            "-q",
        ]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        die_with_parent(&mut command).spawn().unwrap()
    }

    fn size(&self) -> u64 {
        self.ask(&["dbsize"]).parse().unwrap()
    }

    fn info(&self, name: &str) -> u64 {
        let all = self.ask(&["info", "persistence"]);
        let found = all
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}:")));
        found.unwrap().trim().parse().unwrap()
    }

    fn ask(&self, words: &[&str]) -> String {
        output_of(self.client("redis-cli").args(words))
    }

    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.arg("-s").arg(self.place.join("socket"));
        command
    }
}
