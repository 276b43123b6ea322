//! A replica that is kept up to date is the tree that a restore of its epoch makes.

use replicate::apply::{Options, Replica};
use replicate::record::Kind;

use crate::applying::{differ, folder};
use crate::common::{epoch, link, mode, new, start, unlink};
use crate::histories::{self, History};

#[test]
fn any_history_in_any_steps_ends_where_a_restore_does() {
    if !sys::require::root() {
        return;
    }
    for seed in 0..150 {
        let folder = folder();
        let (log, to) = (folder.path().join("log"), folder.path().join("replica"));
        let mut history = History::new(seed);
        let mut rng = fastrand::Rng::with_seed(seed);
        let options = Options {
            in_place: (seed % 3 == 0).then_some(3000),
            ..Options::default()
        };
        let mut open: Option<Replica> = None;
        let mut written = 0;
        for _ in 0..12 {
            history.go_on(rng.usize(1..40));
            histories::write(&log, &history.entries[written..]);
            written = history.entries.len();
            let mut replica = open
                .take()
                .unwrap_or_else(|| Replica::open(&log, &to, options.clone()).unwrap());
            let applied = replica.apply(None).unwrap().unwrap();
            assert_eq!(applied.epoch, history.tree.epoch());
            let all = differ(&log, applied.epoch, &to.join("tree"));
            let epoch = applied.epoch;
            assert!(all.is_empty(), "seed {seed} epoch {epoch}: {all:#?}");
            assert!(replica.apply(None).unwrap().is_none());
            match rng.u8(..3) {
                0 => replica.end().unwrap(),
                1 => drop(replica),
                _ => open = Some(replica),
            }
        }
    }
}

#[test]
fn device_nodes_that_a_step_leaves_out_are_counted() {
    let folder = folder();
    let (log, to) = (folder.path().join("log"), folder.path().join("replica"));
    let mut replica = None;
    for (entries, left) in [
        (vec![start(), mode(2, 0o755), epoch(1)], 0),
        (
            vec![
                new(10, Kind::CharacterDevice(0x103)),
                mode(10, 0o600),
                link(2, "null", 10),
                link(2, "zero", 10),
                epoch(2),
            ],
            2,
        ),
        (vec![mode(10, 0o644), unlink(2, "zero"), epoch(3)], 0),
    ] {
        histories::write(&log, &entries);
        let open = || Replica::open(&log, &to, Options::default()).unwrap();
        let applied = replica.get_or_insert_with(open).apply(None).unwrap();
        assert_eq!(applied.unwrap().left.devices, left);
    }
}
