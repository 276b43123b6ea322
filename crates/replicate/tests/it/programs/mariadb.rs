//! MariaDB with its two engines that recover, killed in the middle.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sys::child::die_with_parent;
use sys::require::{Class, skip};

use super::mirror::{MirrorBed, kill_all, output_of, scratch, until};
use crate::bed::file_system::{Bed, within};

const TRANSACTIONS: u64 = 300;

const TABLES: &str = "
    create database shop;
    create table shop.moved (id int auto_increment primary key, amount int) engine = InnoDB;
    create table shop.padding (id int auto_increment primary key, bytes blob) engine = InnoDB;
    create table shop.noted (id int auto_increment primary key, at int) engine = Aria transactional = 1;
    delimiter //
    create procedure shop.work()
    begin
        loop
            set @amount = floor(rand() * 1000);
            start transaction;
            insert into shop.moved (amount) values (@amount), (-@amount);
            insert into shop.padding (bytes) values (repeat(char(rand() * 256), rand() * 9000));
            delete from shop.padding where id % 3 = 0 limit 2;
            commit;
            insert into shop.noted (at) values (@amount);
        end loop;
    end//";

#[test]
fn mariadb_recovers_from_replicas() {
    within(|bed| {
        let found = ["mariadbd", "mariadb", "mariadb-install-db"]
            .iter()
            .all(|name| Command::new(name).arg("--help").output().is_ok());
        if !found {
            let reason = "needs MariaDB: apt-get install mariadb-server-core mariadb-client-core";
            skip(Class::OptIn, reason);
            return;
        }
        let Some(mut mirrored) = MirrorBed::start(bed, "mariadb") else {
            return;
        };
        let data = mirrored.tree.join("data");
        mirrored.during(|| install(&data));
        let mut server = Server::start(bed, &data);
        mirrored.during(|| {
            server.wait();
            server.ask(TABLES);
        });
        let mut loads = [server.load(), server.load(), server.load()];
        mirrored.until("transactions", || {
            server.books().transactions >= TRANSACTIONS
        });
        mirrored.epoch();
        let before = server.books().transactions;
        mirrored.until("more transactions", || server.books().transactions > before);
        mirrored.during(|| {
            kill_all(&mut server.process);
            for load in &mut loads {
                load.wait().unwrap();
            }
        });
        let (_, copies) = mirrored.end();
        let books = Server::recover(bed, &data);
        assert!(books.transactions >= TRANSACTIONS, "{books:?}");
        for copy in copies {
            let copied = Server::recover(bed, &copy.join("data"));
            assert_eq!(copied, books, "{}", copy.display());
        }
    });
}

fn install(data: &Path) {
    let mut command = Command::new("mariadb-install-db");
    command.args(["--no-defaults", "--user=root", "--skip-test-db"]);
    command.arg("--auth-root-authentication-method=normal");
    command.arg(format!("--datadir={}", data.display()));
    output_of(&mut command);
}

struct Server {
    /// A folder for its socket and its output.
    place: PathBuf,
    process: Child,
}

/// How many transactions there were, and what all have moved, padded and noted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Books {
    transactions: u64,
    rest: String,
}

impl Server {
    /// On the thread that it is to end with.
    fn start(bed: &Bed, data: &Path) -> Self {
        let place = scratch(bed);
        let mut command = Command::new("mariadbd");
        command.args(["--no-defaults", "--user=root", "--skip-networking"]);
        command.args(["--innodb-log-file-size=8M", "--innodb-buffer-pool-size=16M"]);
        command.arg("--datadir").arg(data);
        command.arg("--socket").arg(place.join("socket"));
        command.stdout(Stdio::null());
        command.stderr(File::create(place.join("said")).unwrap());
        let process = die_with_parent(&mut command).spawn().unwrap();
        Self { place, process }
    }

    fn wait(&mut self) {
        until("the server answers", || {
            let ended = self.process.try_wait().unwrap();
            let errors = fs::read_to_string(self.place.join("said")).unwrap();
            assert!(ended.is_none(), "{errors}");
            let output = self.client().args(["-e", "select 1"]).output().unwrap();
            output.status.success()
        });
    }

    /// Recovers what a server that was killed has left: all of it is sound, and these are its books.
    fn recover(bed: &Bed, data: &Path) -> Books {
        let mut server = Self::start(bed, data);
        server.wait();
        let checked = server.ask("check table shop.moved, shop.padding, shop.noted extended");
        let sound = checked
            .lines()
            .filter(|line| line.ends_with("\tstatus\tOK"));
        assert_eq!(sound.count(), 3, "{checked}");
        let books = server.books();
        kill_all(&mut server.process);
        books
    }

    /// Transactions without end.
    fn load(&self) -> Child {
        let mut command = self.client();
        command.args(["-e", "call shop.work()"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        die_with_parent(&mut command).spawn().unwrap()
    }

    fn books(&self) -> Books {
        let row = self.ask(
            "select count(*) div 2, sum(amount), (select count(*) from shop.padding),
                 (select coalesce(sum(crc32(bytes)), 0) from shop.padding),
                 (select count(*) from shop.noted) from shop.moved",
        );
        let (transactions, rest) = row.split_once('\t').unwrap();
        assert!(rest.starts_with("0\t") || transactions == "0", "{row}");
        Books {
            transactions: transactions.parse().unwrap(),
            rest: rest.to_owned(),
        }
    }

    fn ask(&self, words: &str) -> String {
        output_of(self.client().args(["-N", "-B", "-e", words]))
    }

    fn client(&self) -> Command {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "--user=root", "--socket"]);
        command.arg(self.place.join("socket"));
        command
    }
}
