//! LMDB, which writes its database through a shared mapping, killed in the middle.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use sys::child::die_with_parent;
use sys::require::{Class, skip};

use super::mirror::{MirrorBed, output_of, scratch};
use crate::bed::file_system::within;

/// The interpreter of the distribution's packages. Another one may come first in the path.
const PYTHON: &str = "/usr/bin/python3";

/// Each transaction moves something from one key to another: the sum stays zero.
const WRITE: &str = r#"
import lmdb, os, random, sys
database = lmdb.open(sys.argv[1], map_size=64 << 20, writemap=True)
words = random.Random(4711)
for number in range(1_000_000):
    with database.begin(write=True) as step:
        value = int(step.get(b"sum", b"0"))
        amount = words.randrange(1000)
        one, other = (f"{words.randrange(500):04}".encode() for _ in range(2))
        step.put(one, str(int(step.get(one, b"0")) + amount).encode())
        step.put(other, str(int(step.get(other, b"0")) - amount).encode())
        step.put(b"padding", os.urandom(words.randrange(6000)))
        step.put(b"count", str(number + 1).encode())
    print(number + 1, flush=True)
"#;

const READ: &str = r#"
import lmdb, sys
database = lmdb.open(sys.argv[1], readonly=True, lock=False)
with database.begin() as step:
    count = int(step.get(b"count"))
    moved = sum(int(value) for key, value in step.cursor() if key.isdigit())
print(count, moved)
"#;

#[test]
fn lmdb_has_what_its_mapping_had() {
    within(|bed| {
        let found = Command::new(PYTHON).args(["-c", "import lmdb"]).output();
        if !found.is_ok_and(|output| output.status.success()) {
            skip(Class::OptIn, "needs LMDB: apt-get install python3-lmdb");
            return;
        }
        let Some(mut mirrored) = MirrorBed::start(bed, "lmdb") else {
            return;
        };
        let database = mirrored.tree.join("database");
        let told = scratch(bed).join("told");
        let mut command = Command::new(PYTHON);
        command.args(["-c", WRITE]).arg(&database);
        command
            .stdout(File::create(&told).unwrap())
            .stderr(Stdio::null());
        let mut writer = die_with_parent(&mut command).spawn().unwrap();
        let steps = || std::fs::read_to_string(&told).unwrap().lines().count();
        mirrored.until("transactions", || steps() >= 200);
        writer.kill().unwrap();
        writer.wait().unwrap();
        let (_, copies) = mirrored.end();
        let found = read(&database);
        let count: usize = found.split(' ').next().unwrap().parse().unwrap();
        assert!(count >= 200 && found.ends_with(" 0"), "{found}");
        for copy in copies {
            assert_eq!(read(&copy.join("database")), found, "{}", copy.display());
        }
    });
}

/// How many transactions a database has, and the sum of what they have moved.
fn read(database: &Path) -> String {
    output_of(Command::new(PYTHON).args(["-c", READ]).arg(database))
}
