//! Who is not root applies a log: what has to be opened to its owner to be changed is closed again.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod replicating;

use std::process::Command;

use replicating::on_ext4;
use sys::require::{Class, skip};

const APPLIED: &str = r#"
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

#[test]
fn directories_that_are_closed_stay_closed() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip(Class::Core, "no strace: apt install strace");
    }
    let folder = tempfile::tempdir().unwrap();
    on_ext4(APPLIED, folder.path());
}
