//! A tree is read at the requested rate. Changes that programs make meanwhile are neither lost nor
//! held in memory without limit.

use std::fs::File;
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use replicate::capture::{Capture, Error, Listener, Options, Progress};
use replicate::record::{Change, Entry, Origin};

use crate::bed::file_system::{Format, within};
use crate::follow::{Following, Mirror, shell};

fn at(rate: u64) -> Options {
    Options {
        rate_limit: NonZeroU64::new(rate),
        ..Options::default()
    }
}

fn on_ext4(work: impl FnOnce(&Path) + Send) {
    within(|bed| {
        if let Some(tree) = bed.mount(Format::Ext4, "ext4") {
            work(&tree);
        }
    });
}

#[test]
fn a_tree_is_read_no_faster_than_asked_while_its_programs_go_on() {
    on_ext4(|tree| {
        shell(
            tree,
            "head -c 1000000 /dev/urandom >one; mkdir many; for i in $(seq 100); do head -c 5000 /dev/urandom >many/$i; done",
        );
        let begun = Instant::now();
        let mut following = Following::start(tree, at(1_000_000));
        following.during(|| {
            shell(tree, "for i in $(seq 50); do echo $i >>one; mv many/$i many/x$i; rm many/$((i + 50)); sleep 0.01; done");
        });
        let progress = following.check(tree);
        let least = Duration::from_nanos(progress.read_back.min(1_000_000) * 1000);
        assert!(
            begun.elapsed() >= least,
            "{:?}: {progress:?}",
            begun.elapsed()
        );
        assert!(progress.read_back >= 1_000_000, "{progress:?}");
        assert_eq!(progress.dropped, 0, "its ring is read meanwhile");
    });
}

/// Ranges of dropped events are read back at the same rate.
#[test]
fn what_found_no_room_is_read_no_faster_either() {
    on_ext4(|tree| {
        let small = Options {
            ring_bytes: 64 << 10,
            ..at(1_000_000)
        };
        let mut following = Following::start(tree, small);
        following.check(tree);
        let before = following.capture.progress();
        shell(
            tree,
            "for i in $(seq 20); do head -c 50000 /dev/urandom >$i; done",
        );
        let begun = Instant::now();
        let progress = following.check(tree);
        let read = progress.read_back - before.read_back;
        assert!(progress.dropped > 0 && read > 0, "{progress:?}");
        // The last bytes may have been recorded before their time was over.
        let least = Duration::from_micros(read.saturating_sub(50_000));
        assert!(
            begun.elapsed() >= least,
            "{read} bytes in {:?}",
            begun.elapsed()
        );
    });
}

/// Says its tree to a mirror; breaks off once it has heard so much.
struct Patient {
    mirror: Mirror,
    left: u64,
    shown: Vec<Progress>,
}

impl Listener for Patient {
    fn take(&mut self, entry: Entry) {
        self.mirror.fold(&entry);
    }

    fn meanwhile(&mut self, progress: &Progress) -> ControlFlow<()> {
        self.shown.push(*progress);
        if progress.read_back >= self.left {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn it_tells_how_far_it_is_and_can_be_broken_off() {
    on_ext4(|tree| {
        shell(
            tree,
            "for i in $(seq 100); do head -c 10000 /dev/urandom >$i; done",
        );
        let mut capture = Capture::start(tree, Options::default()).unwrap();
        let mut patient = Patient {
            mirror: Mirror::default(),
            left: 500_000,
            shown: Vec::new(),
        };
        let limit = Duration::from_secs(60);
        let ended = capture.catch_up(limit, &mut patient).unwrap_err();
        assert!(matches!(ended, Error::Ended), "{ended}");
        let reading: Vec<_> = patient
            .shown
            .iter()
            .filter(|now| now.read_back > 0)
            .collect();
        assert!(reading.len() >= 50, "{}", reading.len());
        for now in reading {
            assert!(now.doubtful > 0 && now.epoch == 0, "{now:?}");
        }
        let last = patient.shown.last().unwrap();
        assert!((500_000..600_000).contains(&last.read_back), "{last:?}");
        assert!((50..=61).contains(&last.files), "{last:?}");
    });
}

#[test]
fn a_directory_of_empty_files_can_be_broken_off_too() {
    on_ext4(|tree| {
        shell(
            tree,
            "for i in $(seq 30); do mkdir -p $i; touch $i/one $i/two; done",
        );
        let mut capture = Capture::start(tree, Options::default()).unwrap();
        let mut asked = 0;
        struct Counting<'a>(&'a mut u32);
        impl Listener for Counting<'_> {
            fn take(&mut self, _: Entry) {}

            fn meanwhile(&mut self, now: &Progress) -> ControlFlow<()> {
                *self.0 += u32::from(now.files > 10);
                match now.files > 40 {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            }
        }
        let ended = capture.catch_up(Duration::from_secs(60), &mut Counting(&mut asked));
        assert!(matches!(ended, Err(Error::Ended)), "{ended:?}");
        assert!(asked >= 2, "{asked}");
    });
}

/// Writes to a file each time it is asked whether to continue.
struct Writing {
    mirror: Mirror,
    file: File,
    left: u8,
    exact: usize,
}

impl Listener for Writing {
    fn take(&mut self, entry: Entry) {
        if let Entry::Change(Change::Data { bytes, origin, .. }) = &entry
            && *origin == Origin::Exact
        {
            self.exact += bytes.len();
        }
        self.mirror.fold(&entry);
    }

    fn meanwhile(&mut self, now: &Progress) -> ControlFlow<()> {
        // In the middle of the copy.
        if (10..95).contains(&now.files) && self.left > 0 {
            self.left -= 1;
            self.file
                .write_all_at(&vec![self.left; WRITE_BYTES], 0)
                .unwrap();
        }
        ControlFlow::Continue(())
    }
}

const WRITE_BYTES: usize = 2 << 20;

#[test]
fn what_is_written_while_it_reads_fills_no_memory() {
    on_ext4(|tree| {
        shell(
            tree,
            "for i in $(seq 100); do head -c 1000 /dev/urandom >$i; done",
        );
        let mut writing = Writing {
            mirror: Mirror::default(),
            file: File::create(tree.join("written")).unwrap(),
            left: 60,
            exact: 0,
        };
        let mut capture = Capture::start(tree, Options::default()).unwrap();
        assert!(
            capture
                .catch_up(Duration::from_secs(60), &mut writing)
                .unwrap()
        );
        writing.mirror.compare(tree);
        assert_eq!(writing.left, 0, "all of it was written while it read");
        // The first of it is kept, and of the rest where it was.
        assert!(
            (WRITE_BYTES..=64 << 20).contains(&writing.exact),
            "{}",
            writing.exact
        );
        assert_eq!(capture.progress().dropped, 0);
    });
}
