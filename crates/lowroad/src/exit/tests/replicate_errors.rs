//! Errors of `lowroad replicate`. The same error of a log has another class in another command.

use replicate::log;

use super::*;

fn no_epoch() -> log::Error {
    log::Error::NoEpoch {
        folder: path(),
        epoch: 7,
    }
}

const NO_EPOCH: &str = "p has no epoch 7: `lowroad replicate epochs` lists those it has";

pub(super) fn damaged() -> log::Error {
    log::Error::Damaged {
        path: path(),
        offset: 9,
        what: "no checksum".to_owned(),
    }
}

pub(super) const DAMAGE_ERROR: &str =
    "p is damaged at byte 9: no checksum; take the log again from its source";

fn no_log() -> log::Error {
    log::Error::Io {
        path: path(),
        source: absent(),
    }
}

/// The message of an I/O error has its source, which the chain of sources adds once more.
const NO_LOG: &str = "p: absent: absent";

const NO_LOG_YET: &str =
    "p: there is no log yet; start `lowroad replicate capture --to` or `receive --to` first";
const NO_EPOCHS: &str =
    "p has no epoch yet; wait until its `capture` or `receive` has the whole tree";

#[test]
fn log_errors() {
    use log::Error;
    check([
        (no_epoch().into(), input(NO_EPOCH)),
        (
            Error::Written { epoch: 7 }.into(),
            input("epoch 7 is in the segment that is still written: compact up to an earlier one"),
        ),
        (
            Error::Compact { epoch: 7 }.into(),
            input("records up to epoch 7 are as few as they can be: nothing to compact"),
        ),
        (damaged().into(), input(DAMAGE_ERROR)),
        (
            Error::NotALog(path()).into(),
            input(
                "p is not a log: it has no segments; name a folder that `lowroad replicate capture --to` or `receive --to` writes",
            ),
        ),
        (Error::NoLog(path()).into(), input(NO_LOG_YET)),
        (
            Error::Occupied(path()).into(),
            input(
                "p has other files in it and is not a log; name a new or an empty folder for the log",
            ),
        ),
        (Error::NoEpochs(path()).into(), input(NO_EPOCHS)),
        (no_log().into(), input("p: absent")),
        (
            Error::Io {
                path: path(),
                source: full(),
            }
            .into(),
            failed("p: full: full"),
        ),
        (
            Error::Busy(path()).into(),
            failed("p: another program writes this log or compacts it; stop that one first"),
        ),
        (
            Error::Missing {
                folder: path(),
                number: 3,
            }
            .into(),
            failed("p: record 3 is missing; take the log again from its source"),
        ),
        (
            Error::Interrupted(path()).into(),
            failed("p: the compaction was ended; the log is as it was"),
        ),
    ]);
}

#[test]
fn restore_errors() {
    use replicate::restore::Error;
    check([
        (
            Error::Log(log::Error::NoEpochs(path())).into(),
            input(NO_EPOCHS),
        ),
        (Error::Log(no_epoch()).into(), input(NO_EPOCH)),
        (Error::Log(damaged()).into(), input(DAMAGE_ERROR)),
        (Error::Log(no_log()).into(), failed(NO_LOG)),
        (
            Error::Occupied(path()).into(),
            input("p is there already and not an empty directory: name another"),
        ),
        (
            Error::Io {
                path: path(),
                cause: full(),
            }
            .into(),
            failed("p: full"),
        ),
    ]);
}

#[test]
fn verify_errors() {
    use replicate::patterns;
    use replicate::verify::Error;
    let why = "it changes".to_owned();
    check([
        (
            Error::Log(log::Error::NoLog(path())).into(),
            input(NO_LOG_YET),
        ),
        (Error::Log(no_epoch()).into(), input(NO_EPOCH)),
        (Error::Log(damaged()).into(), input(DAMAGE_ERROR)),
        (Error::Log(no_log()).into(), failed(NO_LOG)),
        (
            Error::Patterns(pattern()).into(),
            input("what the log leaves out: pattern \"[\": no end"),
        ),
        (
            Error::Io {
                path: path(),
                cause: absent(),
            }
            .into(),
            input("p: absent"),
        ),
        (
            Error::Room {
                path: path(),
                has: 1,
                names: 2,
                needs: 3,
                files: 4,
            }
            .into(),
            input(
                "p has room for 1 bytes and 2 more files, and the tree takes 3 and 4: name another place",
            ),
        ),
        (
            Error::Inside {
                path: path(),
                inside: "q".into(),
            }
            .into(),
            input("p is in q, which is read: name another place"),
        ),
        (
            Error::Nothing.into(),
            input("the log has no tree: nothing was written to it yet"),
        ),
        (
            Error::Make {
                path: path(),
                cause: full(),
            }
            .into(),
            failed("p: making the tree: full"),
        ),
        (
            Error::Undecided { path: path(), why }.into(),
            failed("p: it changes; a hash needs a tree that rests and can be read"),
        ),
        (
            Error::Ended.into(),
            failed("ended before it was done: nothing is known of the whole tree"),
        ),
    ]);

    fn pattern() -> patterns::Error {
        patterns::Error::Pattern {
            pattern: "[".to_owned(),
            why: "no end".to_owned(),
        }
    }
}

#[test]
fn apply_errors() {
    use replicate::apply::Error;
    check([
        (
            Error::Log(log::Error::NoLog(path())).into(),
            input(NO_LOG_YET),
        ),
        (
            Error::Deletion {
                to: path(),
                epoch: 7,
                removed: 101,
                files: 200,
                interrupted: false,
            }
            .into(),
            input(
                "epoch 7 would remove 101 of the 200 files of p; nothing was changed: check the source, then allow the step with --allow-delete (in a run: `lowroad replicate allow-delete`)",
            ),
        ),
        (
            Error::Room {
                to: path(),
                epoch: 7,
                needs: 3,
                files: 4,
                has: 1,
                names: 2,
            }
            .into(),
            failed(
                "p: epoch 7 needs room for 3 bytes and 4 files, and there is room for 1 bytes and 2 files; nothing was changed: make room",
            ),
        ),
        (
            Error::Ended(path()).into(),
            failed(
                "p: ended in the middle of a step; the next `apply` puts the replica right and goes on",
            ),
        ),
        (Error::Log(damaged()).into(), input(DAMAGE_ERROR)),
        (Error::Log(no_epoch()).into(), failed(NO_EPOCH)),
        (Error::Log(no_log()).into(), failed(NO_LOG)),
        (
            Error::Occupied(path()).into(),
            input("p is there already and no replica: name another, or an empty directory"),
        ),
        (
            Error::OtherLog {
                to: path(),
                log: "q".into(),
            }
            .into(),
            input("p is a replica of another log than q: --fresh makes it one of this"),
        ),
        (
            Error::Behind {
                log: path(),
                epoch: 7,
            }
            .into(),
            input(
                "p does not have epoch 7 any more, of which the replica is: --fresh makes it anew",
            ),
        ),
        (
            Error::Short {
                log: path(),
                epoch: 7,
            }
            .into(),
            input(
                "p ends before epoch 7, of which the replica is: wait until its source has sent that again, or --fresh makes it anew",
            ),
        ),
        (
            Error::Quota {
                epoch: 7,
                what: "bytes",
                has: 9,
                limit: 8,
            }
            .into(),
            input("epoch 7 has 9 bytes, more than 8: raise --max-bytes, or replicate less"),
        ),
        (
            Error::Case(path()).into(),
            input("p: names are the same there whatever their case; put the replica elsewhere"),
        ),
        (
            Error::Busy(path()).into(),
            failed("p: another program applies to this replica; stop that one first"),
        ),
        (
            Error::Privileged {
                to: path(),
                made: true,
            }
            .into(),
            failed(
                "p was made with --privileged, which changes what its files have: apply as before, or --fresh makes it anew",
            ),
        ),
        (
            Error::Changed {
                path: path(),
                names: 1,
            }
            .into(),
            failed(
                "p is not as it was applied: somebody else changed the replica, in 1 place(s); --repair puts it right",
            ),
        ),
        (
            Error::Full(path()).into(),
            failed("p: no room; make some, and apply again: nothing is lost"),
        ),
        (
            Error::Io {
                path: path(),
                cause: full(),
            }
            .into(),
            failed("p: full"),
        ),
    ]);
}

#[test]
fn capture_and_coverage_errors() {
    use capture::Error;
    use replicate::{capture, coverage};
    check([
        (
            Error::Privileges.into(),
            missing("capture  needs root  run with sudo"),
        ),
        (
            Error::Silent { format: "XFS" }.into(),
            missing(
                "capture  XFS does not report stores through shared mappings  --allow mmap: files that are mapped are read before each epoch, and each second",
            ),
        ),
        (
            Error::Pin {
                folder: path(),
                cause: "no bpffs".to_owned(),
            }
            .into(),
            missing("capture  a journal in p: no bpffs  run without --pin"),
        ),
        (
            Error::Kernel {
                format: "XFS",
                event: "xfs_iomap".to_owned(),
                since: "6.2",
            }
            .into(),
            missing(
                "capture  following XFS needs Linux 6.2 or later: this one has no event xfs_iomap  run a newer kernel, or follow a tree on ext4",
            ),
        ),
        (
            Error::Preempted {
                format: "XFS",
                event: "xfs_iomap",
                why: "preemption",
            }
            .into(),
            missing(
                "capture  following XFS: this kernel has no event xfs_iomap, and a function cannot stand in: preemption  boot with preempt=voluntary",
            ),
        ),
        (
            Error::Tree {
                path: path(),
                cause: absent(),
            }
            .into(),
            input("p: absent"),
        ),
        (
            Error::OtherTree {
                log: path(),
                tree: "q".into(),
                differs: "the roots differ".to_owned(),
            }
            .into(),
            input(
                "p is the log of another tree than q: the roots differ; mount or name the tree that the log is of, or begin the log anew with --fresh",
            ),
        ),
        (
            Error::FileSystem {
                path: path(),
                on: "tmpfs".to_owned(),
            }
            .into(),
            input("p is on tmpfs"),
        ),
        (
            Error::Patterns(replicate::patterns::Error::Pattern {
                pattern: "[".to_owned(),
                why: "no end".to_owned(),
            })
            .into(),
            input("pattern \"[\": no end"),
        ),
        (
            Error::Io {
                action: "a thread",
                cause: full(),
            }
            .into(),
            failed("a thread: full"),
        ),
        (Error::Log(damaged()).into(), failed(DAMAGE_ERROR)),
        (
            Error::Unknown.into(),
            failed("the programs tell what nobody understands: they are of another version"),
        ),
        (
            Error::Ended.into(),
            failed("ended while it read the tree: the next capture goes on with what the log has"),
        ),
        (
            coverage::Error::Capture(Error::Privileges).into(),
            missing("capture  needs root  run with sudo"),
        ),
        (
            coverage::Error::Place {
                path: path(),
                cause: full(),
            }
            .into(),
            input("p: cannot make a folder to try operations in: full"),
        ),
        (
            coverage::Error::Late {
                operation: "rename",
            }
            .into(),
            failed("rename: no epoch within 30 s"),
        ),
    ]);
}

#[test]
fn epochs_and_diff_errors() {
    use replicate::{diff, epochs};
    use units::Timestamp;
    let [at, begins] = [0, 60_000_000_000].map(Timestamp);
    check([
        (epochs::Error::Log(no_epoch()).into(), input(NO_EPOCH)),
        (
            epochs::Error::Later {
                folder: path(),
                at,
                first: 1,
                begins,
            }
            .into(),
            input(
                "p begins with epoch 1 at 1970-01-01T00:01:00Z, after 1970-01-01T00:00:00Z: name a later time",
            ),
        ),
        (
            epochs::Error::Future {
                at: begins,
                now: at,
            }
            .into(),
            input("1970-01-01T00:01:00Z lies in the future: it is 1970-01-01T00:00:00Z now"),
        ),
        (diff::Error::Log(damaged()).into(), input(DAMAGE_ERROR)),
        (
            diff::Error::Order { from: 3, to: 2 }.into(),
            input("--from 3 is after --to 2: exchange them"),
        ),
        (
            diff::Error::Last {
                folder: path(),
                from: 3,
            }
            .into(),
            input("p has no epoch after 3: wait for one, or name an earlier --from"),
        ),
    ]);
}
