//! PostgreSQL under pgbench, killed in the middle.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User};
use sys::child::die_with_parent;
use sys::require::{Class, skip};

use super::mirror::{MirrorBed, kill_all, output_of, scratch, until};
use crate::bed::file_system::{Bed, within};

const TRANSACTIONS: u64 = 500;

#[test]
fn postgresql_recovers_from_replicas_and_from_epochs_in_between() {
    within(|bed| {
        let Some(programs) = Programs::find() else {
            return;
        };
        let Some(mut mirrored) = MirrorBed::start(bed, "postgresql") else {
            return;
        };
        let data = mirrored.tree.join("data");
        mirrored.during(|| programs.init(&data));
        let mut server = Server::start(&programs, bed, &data);
        mirrored.during(|| {
            server.wait();
            output_of(server.client("pgbench").args(["--initialize", "--quiet"]));
        });
        let begun = mirrored.epoch();
        let mut load = server.load();
        mirrored.until("transactions", || {
            server.books().transactions >= TRANSACTIONS
        });
        mirrored.during(|| {
            kill_all(&mut server.process);
            load.wait().unwrap();
        });
        let (ended, copies) = mirrored.end();

        let books = Server::recover(&programs, bed, &data);
        assert!(books.transactions >= TRANSACTIONS, "{books:?}");
        for copy in copies {
            let copied = Server::recover(&programs, bed, &copy.join("data"));
            assert_eq!(copied, books, "{}", copy.display());
        }
        let mut last = 0;
        assert!(ended > begun + 4, "epochs {begun} to {ended}");
        for quarter in 1..4 {
            let epoch = begun + (ended - begun) * quarter / 4;
            let data = mirrored.restored(epoch).join("data");
            let books = Server::recover(&programs, bed, &data);
            assert!(books.transactions >= last, "{books:?} after {last}");
            last = books.transactions;
        }
        assert!((1..=books.transactions).contains(&last), "{last}");
    });
}

/// The path of the programs on Debian, and the user that runs them, because the server refuses
/// root.
struct Programs {
    folder: PathBuf,
    user: User,
}

impl Programs {
    /// The latest; reports the skip where there are none.
    fn find() -> Option<Self> {
        let versions = fs::read_dir("/usr/lib/postgresql");
        let versions = versions.into_iter().flatten().flatten();
        let folder = versions
            .map(|version| version.path().join("bin"))
            .filter(|folder| folder.join("postgres").exists())
            .max();
        let user = User::from_name("postgres").unwrap();
        let found = folder.zip(user);
        if found.is_none() {
            skip(Class::Core, "needs PostgreSQL: apt-get install postgresql");
        }
        found.map(|(folder, user)| Self { folder, user })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.folder.join(program));
        command
            .uid(self.user.uid.as_raw())
            .gid(self.user.gid.as_raw())
            .current_dir("/")
            .env_clear()
            .env("LC_ALL", "C");
        command
    }

    /// Makes a folder that has no databases but its own.
    fn init(&self, data: &Path) {
        fs::create_dir(data).unwrap();
        let (uid, gid) = (self.user.uid.as_raw(), self.user.gid.as_raw());
        std::os::unix::fs::chown(data, Some(uid), Some(gid)).unwrap();
        let mut command = self.command("initdb");
        command.args(["--auth=trust", "--wal-segsize=1", "--no-instructions", "-D"]);
        output_of(command.arg(data));
    }
}

struct Server<'a> {
    programs: &'a Programs,
    /// A folder for its socket and its output.
    place: PathBuf,
    process: Child,
}

/// What all transactions have moved, which is in four places, and how many there were.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Books {
    moved: String,
    transactions: u64,
}

impl<'a> Server<'a> {
    /// On the thread that it is to end with.
    fn start(programs: &'a Programs, bed: &Bed, data: &Path) -> Self {
        let place = scratch(bed);
        let mut command = programs.command("postgres");
        // What several processes share is files in the folder, and nothing that outlives it.
        let options = ["listen_addresses=", "dynamic_shared_memory_type=mmap"];
        for option in options {
            command.args(["-c", option]);
        }
        command.arg("-D").arg(data).arg("-k").arg(&place);
        command.stderr(File::create(place.join("said")).unwrap());
        let process = die_with_parent(&mut command).spawn().unwrap();
        Self {
            programs,
            place,
            process,
        }
    }

    fn wait(&mut self) {
        until("the server answers", || {
            let ended = self.process.try_wait().unwrap();
            assert!(ended.is_none(), "{}", self.errors());
            let mut ready = self.client("pg_isready");
            ready.arg("--quiet").status().unwrap().success()
        });
    }

    /// Recovers what a server that was killed has left: all of it is sound, and these are its books.
    fn recover(programs: &'a Programs, bed: &Bed, data: &Path) -> Books {
        let mut server = Self::start(programs, bed, data);
        server.wait();
        let said_of_it = server.errors();
        assert!(said_of_it.contains("automatic recovery"), "{said_of_it}");
        let books = server.books();
        let mut check = server.client("pg_amcheck");
        output_of(check.args(["--install-missing", "--heapallindexed", "postgres"]));
        // What shares memory with it has to be gone when its folder is.
        let id = i32::try_from(server.process.id()).unwrap();
        kill(Pid::from_raw(id), Signal::SIGINT).unwrap();
        let ended = server.process.wait().unwrap();
        assert!(ended.success(), "{ended}: {}", server.errors());
        books
    }

    /// Transactions without end.
    fn load(&self) -> Child {
        let mut command = self.client("pgbench");
        command.args(["--client=4", "--no-vacuum", "--time=600"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        die_with_parent(&mut command).spawn().unwrap()
    }

    fn books(&self) -> Books {
        let sums = "select (select sum(abalance) from pgbench_accounts),
            (select sum(tbalance) from pgbench_tellers), (select sum(bbalance) from pgbench_branches),
            (select coalesce(sum(delta), 0) from pgbench_history), (select count(*) from pgbench_history)";
        let mut ask = self.client("psql");
        let row = output_of(ask.args(["-AtqX", "-F", " ", "-c", sums]));
        let columns: Vec<_> = row.split(' ').collect();
        let [accounts, tellers, branches, history, transactions] = columns[..] else {
            panic!("{row}");
        };
        assert_eq!([tellers, branches, history], [accounts; 3]);
        Books {
            moved: accounts.to_owned(),
            transactions: transactions.parse().unwrap(),
        }
    }

    fn client(&self, program: &str) -> Command {
        let mut command = self.programs.command(program);
        command.arg("-h").arg(&self.place);
        command
    }

    fn errors(&self) -> String {
        fs::read_to_string(self.place.join("said")).unwrap()
    }
}
