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

/// An edge as a service of its own user: it receives over TCP, applies, and answers on its control socket.
const EDGE_SCRIPT: &str = r#"
"$1" replicate keys keys --server 127.0.0.1 --client edge >made
cat >source.toml <<END
[replicate]
control = "source.sock"
[[serve]]
log = "log"
listen = "127.0.0.1:0"
cert = "keys/server.pem"
key = "keys/server.key"
clients_ca = "keys/ca.pem"
END
"$1" replicate --json run --config source.toml >source.said &
source=$!
ready source.said
"$1" replicate --json status --control source.sock >status.json
port=$(grep -o '"listen": "127.0.0.1:[0-9]*' status.json | grep -o '[0-9]*$')
cp keys/ca.pem keys/edge.pem keys/edge.key home
chmod 400 home/edge.key
chmod 444 home/*.pem
chown 65534 home/edge.key
cat >home/replica.toml <<END
[replicate]
control = "replica.sock"
[[receive]]
from = "tcp://127.0.0.1:$port"
log = "log"
cert = "edge.pem"
key = "edge.key"
server_ca = "ca.pem"
[[apply]]
log = "log"
to = "replica"
END
edge="setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all --no-new-privs"
cd home
$edge ../program replicate run --config replica.toml --check
$edge ../program replicate --json run --config replica.toml >edge.said &
edge_pid=$!
ready edge.said
cd ..
echo more >>disk/app/closed/in/f
until test "$(cat home/replica/tree/closed/in/f)" = "$(cat disk/app/closed/in/f)"; do
    sleep 0.05
done
alike
test "$(stat -c %u home/replica/tree/closed/in/f)" = 65534
(cd home && $edge ../program replicate status --control replica.sock) | grep '^apply-1  running'
kill -TERM $edge_pid
wait $edge_pid
kill -TERM $source
wait $source
kill -INT $capture
wait $capture
"#;

#[test]
fn an_edge_needs_no_privileges() {
    if Command::new("setpriv").arg("--version").output().is_err() {
        return skip(Class::Core, "no setpriv: apt install util-linux");
    }
    let folder = tempfile::tempdir().unwrap();
    on_ext4(&format!("{SETUP_SCRIPT}{EDGE_SCRIPT}"), folder.path());
}

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
