//! Who is not root applies a log: what has to be opened to its owner to be changed is closed again.

use std::process::Command;

use sys::require::{Class, skip};

use crate::replicate_command::on_ext4;

/// Prepares the replica, the program and the log, and defines the command that applies it.
const SETUP_SCRIPT: &str = r#"
chmod 711 .
mkdir -m 777 home
cp "$1" program
chmod 755 program
mkdir -p disk/app/closed/in disk/app/closed/more
echo f >disk/app/closed/in/f
chmod 400 disk/app/closed/in/f
chmod 555 disk/app/closed
"$1" replicate --json capture --tree disk/app --to log >said &
capture=$!
ready said
run() {
    chmod -R go+rX log
    setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
}
apply="./program replicate apply log --to home/replica"
# As it is there, but for owners.
alike() {
    (cd disk/app && find . -printf '%P %y %m %n %T@\n' | sort) >one.list
    (cd home/replica/tree && find . -printf '%P %y %m %n %T@\n' | sort) >other.list
    diff one.list other.list
    run diff -r disk/app/closed/more home/replica/tree/closed/more
}
epoch() {
    sync disk/app/closed/in/f
    until "$1" replicate verify log --against disk/app | grep -q '^equal'; do
        sleep 0.05
    done
}
epoch "$1"
"#;

const APPLY_SCRIPT: &str = r#"
run $apply
alike
# A step of nothing but what is below it.
chmod 700 disk/app/closed/in
epoch "$1"
run $apply
alike
# Cut off wherever it gives itself what it needs, and takes that back.
for at in 1 2 3 4; do
    chmod 75$at disk/app/closed/in
    echo more >>disk/app/closed/in/f
    epoch "$1"
    code=0
    run strace -f -o home/calls -e inject=fchmodat:signal=KILL:when=$at $apply || code=$?
    test $code = 137 || test $code = 0
    run $apply
    alike
done
kill -INT $capture
wait $capture
"#;

/// Attributes of what may not be written to.
const ATTRIBUTES: &str = r#"
# attribute FILE NAME VALUE: none takes it away
attribute() {
    python3 - "$@" <<END
import os, sys
path, name, value = sys.argv[1:]
if value == "none":
    os.removexattr(path, name)
else:
    os.setxattr(path, name, value.encode())
END
}
applied() {
    run $apply | tee applied
    test $(grep -c 'extended attributes' applied) = 0
    alike
    "$1" replicate verify log --against home/replica/tree --no-owners | grep '^equal'
}
applied "$1"
attribute disk/app/closed/in/f user.a 1
attribute disk/app/closed/in user.a 1
epoch "$1"
applied "$1"
attribute disk/app/closed/in/f user.a none
attribute disk/app/closed/in user.b 2
attribute disk/app/closed/in user.a 2
chmod 500 disk/app/closed/in
epoch "$1"
applied "$1"
attribute disk/app/closed/in user.a none
attribute disk/app/closed/in/f user.c 3
epoch "$1"
applied "$1"
# One that an earlier run could not take away.
attribute home/replica/tree/closed/in/f user.d 4
attribute home/replica/tree user.d 4
applied "$1"
kill -INT $capture
wait $capture
"#;

/// Moves directories that their owner may not write to.
const MOVE_SCRIPT: &str = r#"
chmod 555 disk/app
epoch "$1"
run $apply
alike
run $apply --fresh
alike
# One that is in its place, which nobody has said yet, is taken out again.
for at in 1 2 3; do
    chmod 755 disk/app
    mkdir disk/app/new$at
    echo f >disk/app/new$at/f
    chmod 555 disk/app/new$at disk/app
    epoch "$1"
    code=0
    run strace -f -o home/calls -e inject=syncfs:signal=KILL:when=$at $apply || code=$?
    test $code = 137 || test $code = 0
    echo $code >>codes
    run $apply
    alike
done
grep -q 137 codes
kill -INT $capture
wait $capture
"#;

#[test]
fn attributes_of_what_is_read_only_are_those_of_the_source() {
    if Command::new("python3").arg("--version").output().is_err() {
        return skip(Class::Core, "no python3: apt install python3");
    }
    let folder = tempfile::tempdir().unwrap();
    on_ext4(&format!("{SETUP_SCRIPT}{ATTRIBUTES}"), folder.path());
}

#[test]
fn directories_that_are_closed_stay_closed() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip(Class::Core, "no strace: apt install strace");
    }
    let folder = tempfile::tempdir().unwrap();
    on_ext4(&format!("{SETUP_SCRIPT}{APPLY_SCRIPT}"), folder.path());
}

#[test]
fn directories_that_may_not_be_written_to_are_moved() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip(Class::Core, "no strace: apt install strace");
    }
    let folder = tempfile::tempdir().unwrap();
    on_ext4(&format!("{SETUP_SCRIPT}{MOVE_SCRIPT}"), folder.path());
}
