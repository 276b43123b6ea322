//! A mail spool as Maildir and as mbox, with concurrent delivery, reading and expunging.

use std::path::Path;
use std::process::Command;

use sys::require::{Class, requested, skip};

use super::mirror::{MirrorBed, output_of, script};
use crate::bed::file_system::{Format, within};

/// `$1` has the mailboxes. Maildir renames each message into its place. mbox appends under a lock,
/// and expunging writes the remaining messages to a new file that takes the name.
const WORK: &str = r#"
cat >spool.py <<'END'
import contextlib, fcntl, mailbox
@contextlib.contextmanager
def spool(tree):
    with open(tree + "/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        box = mailbox.mbox(tree + "/spool")
        yield box
        box.close()
END
cat >deliver.py <<'END'
import mailbox, random, sys
from spool import spool
tree, who = sys.argv[1], int(sys.argv[2])
words = random.Random(who)
folder = mailbox.Maildir(tree + "/Maildir", create=False)
for number in range(60):
    message = mailbox.mboxMessage()
    message["From"] = f"{who}@example.net"
    message["Subject"] = f"{who} {number}"
    message.set_payload("".join(words.choices("abc def\n", k=words.randrange(9000))))
    folder.add(message)
    with spool(tree) as box:
        box.add(message)
END
cat >read.py <<'END'
import mailbox, os, sys
from spool import spool
tree = sys.argv[1]
folder = mailbox.Maildir(tree + "/Maildir", create=False)
while not os.path.exists("enough"):
    for at, key in enumerate(folder.keys()):
        if at % 3 == 0:
            folder.discard(key)
            continue
        try:
            message = folder[key]
        except KeyError:
            continue
        message.set_subdir("cur")
        message.add_flag("S")
        folder[key] = message
    with spool(tree) as box:
        for key in list(box.keys())[::2]:
            box.remove(key)
END
trap 'touch enough' EXIT
python3 -c 'import mailbox, sys; mailbox.Maildir(sys.argv[1] + "/Maildir")' "$1"
pids=
for one in 1 2 3; do
    python3 deliver.py "$1" $one &
    pids="$pids $!"
done
python3 read.py "$1" &
reader=$!
for one in $pids; do
    wait $one
done
touch enough
wait $reader
# Somebody has mail that nobody has read.
python3 deliver.py "$1" 4
"#;

/// How many messages each has, and each subject in it.
const LIST: &str = r#"
import mailbox, sys
tree = sys.argv[1]
for box in mailbox.Maildir(tree + "/Maildir", create=False), mailbox.mbox(tree + "/spool"):
    print(len(box), sorted(message["Subject"] for message in box))
"#;

#[test]
fn a_mail_spool_is_mirrored() {
    mirrored_on(Format::Ext4);
}

#[test]
fn a_mail_spool_is_mirrored_on_other_file_systems() {
    if requested("follows a mail spool on xfs, btrfs, tmpfs and an overlay") {
        for format in [Format::Xfs, Format::Btrfs, Format::Tmpfs, Format::Overlay] {
            mirrored_on(format);
        }
    }
}

fn mirrored_on(format: Format) {
    within(|bed| {
        if Command::new("python3").arg("--version").output().is_err() {
            skip(Class::Core, "needs Python: apt-get install python3");
            return;
        }
        let Some(mut mirrored) = MirrorBed::start_on(bed, format, "mail") else {
            return;
        };
        let tree = mirrored.tree.clone();
        mirrored.during(|| script(bed, WORK, &tree));
        let (_, copies) = mirrored.end();
        let listed = list(&tree);
        assert!(listed.contains("4 59"), "{listed}");
        for copy in copies {
            assert_eq!(list(&copy), listed, "{}", copy.display());
        }
    });
}

fn list(tree: &Path) -> String {
    output_of(Command::new("python3").args(["-c", LIST]).arg(tree))
}
