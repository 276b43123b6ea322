//! Runs of `lowroad replicate`: beside a test, and in a script with a tree of its own.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use replicate::log::{Error, Reader};
use replicate::record::Record;
use serde_json::Value;
use sys::require::{Class, skip};

pub(crate) const LOWROAD: &str = env!("CARGO_BIN_EXE_lowroad");

/// `lowroad` with these arguments, to its end.
pub(crate) fn lowroad(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(LOWROAD);
    command.args(arguments).current_dir(folder);
    command.output().unwrap()
}

/// The one line that it says on standard error where it ends with this code.
pub(crate) fn refused(arguments: &[&str], code: i32, folder: &Path) -> String {
    let output = lowroad(arguments, folder);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    said
}

/// A program, which is killed when the test ends.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) child: Child,
    said: BufReader<ChildStdout>,
}

impl Program {
    /// `lowroad replicate --json` with these arguments.
    pub(crate) fn start(arguments: &[&str], folder: &Path) -> Self {
        let mut child = Command::new(LOWROAD)
            .args(["replicate", "--json"])
            .args(arguments)
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    /// The next line that has this member, and what it is.
    pub(crate) fn says(&mut self, member: &str) -> Value {
        loop {
            let mut line = String::new();
            let count = self.said.read_line(&mut line).unwrap();
            assert_ne!(count, 0, "it ends without {member}");
            let value: Value = serde_json::from_str(&line).unwrap();
            if let Some(found) = value.get(member) {
                return found.clone();
            }
        }
    }

    /// Ends it by SIGTERM; what it says then.
    pub(crate) fn end(mut self) -> Value {
        let pid = i32::try_from(self.child.id()).unwrap();
        kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
        let ended = self.says("ended");
        assert!(self.child.wait().unwrap().success());
        ended
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a log has; nothing while it is not there, or begun afresh.
pub(crate) fn records(folder: &Path) -> Vec<Record> {
    let Ok(mut reader) = Reader::open(folder) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    loop {
        match reader.read() {
            Ok(Some(located)) => all.push(located.record),
            Ok(None) => return all,
            Err(Error::Replaced(_)) => return Vec::new(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Before each script: ext4 of its own in `disk`, a tree with a file in `disk/app`, and what it starts is killed when
/// it ends. `$1` is the program.
const BED: &str = r#"
truncate -s 64M image
mkfs.ext4 -q image
mkdir disk
mount -o loop image disk
mkdir disk/app
echo before >disk/app/before
started=
trap 'kill $started 2>/dev/null || true' EXIT
# ready FILE: waits until the last command in the background has written "ready" to FILE, its standard output. An earlier
# command may have written to the same file: it counts only once the new command has opened and truncated it.
ready() {
    started="$started $!"
    until test "/proc/$!/fd/1" -ef "$1" && grep -qs ready "$1"; do
        kill -0 $!
        sleep 0.01
    done
}
# same DIR DIR
same() {
    (cd "$1" && find . -printf '%P %y %m %U:%G %n %T@ %l\n' | sort) >one.list
    (cd "$2" && find . -printf '%P %y %m %U:%G %n %T@ %l\n' | sort) >other.list
    diff one.list other.list
    diff -r --no-dereference "$1" "$2"
}
"#;

/// Runs a script in a mount namespace of its own, so that nothing stays mounted. False: it cannot run here.
pub(crate) fn on_ext4(script: &str, folder: &Path) -> bool {
    if !sys::require::root() {
        return false;
    }
    let mkfs = ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"];
    if !mkfs.iter().any(|path| Path::new(path).exists()) {
        skip(Class::Core, "no mkfs.ext4: apt install e2fsprogs");
        return false;
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let script = format!("{BED}{script}");
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private"])
        .args(["bash", "-euc", &script, "test", LOWROAD])
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .current_dir(folder)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{errors}");
    true
}
