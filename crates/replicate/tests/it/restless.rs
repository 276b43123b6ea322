//! With programs that never rest, epochs still end and contain the changes of others, and each file
//! is in a state that it had.
#![allow(clippy::print_stdout, reason = "a failed test shows what was done")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use replicate::capture::{Capture, HoldBackOptions, INTERVAL, Options};
use replicate::record::{self, Change, Entry};
use replicate::tree::Tree;

use crate::bed::file_system::{Format, within};
use crate::follow::{Ends, Mirror, shell};

/// How long a program runs. An epoch is overdue after half a second, and may take much longer on a
/// shared machine.
const TIME: Duration = Duration::from_secs(6);
const MIN_EPOCHS: usize = 4;
const PAGE: usize = 4096;

/// The contents of an epoch's files by name.
type Files = BTreeMap<String, Vec<u8>>;

/// The recorded state, and the state of each epoch.
#[derive(Default)]
struct Epochs {
    mirror: Mirror,
    tree: Tree,
    contents: BTreeMap<record::File, Vec<u8>>,
    /// Each with the names of its stale files.
    all: Vec<(Files, BTreeSet<String>)>,
    /// Bytes that were read back, and bytes of the pages that had to be.
    read_back: u64,
    dirty: u64,
}

impl Epochs {
    fn take(&mut self, entry: &Entry) {
        self.mirror.fold(entry);
        self.tree.enter(entry).unwrap();
        if let Entry::Change(change) = entry {
            self.change(change);
        }
        if matches!(entry, Entry::Epoch { .. }) {
            let root = self.tree.root().unwrap();
            let names: Vec<_> = self.tree.children(root).collect();
            let stale: BTreeSet<_> = self.tree.stale().collect();
            let name = |name: &record::Name| String::from_utf8(name.as_bytes().to_vec()).unwrap();
            let contents = names.iter().map(|(of, file)| {
                let bytes = self.contents.get(file).cloned();
                (name(of), bytes.unwrap_or_default())
            });
            let contents = contents.collect();
            let stale = names.iter().filter(|(_, file)| stale.contains(file));
            let stale = stale.map(|(of, _)| name(of)).collect();
            self.all.push((contents, stale));
        }
    }

    fn change(&mut self, change: &Change) {
        let at = |offset: u64| usize::try_from(offset).unwrap();
        match change {
            Change::Data {
                file,
                offset,
                bytes,
                ..
            } => {
                let content = self.contents.entry(*file).or_default();
                let end = at(*offset) + bytes.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[at(*offset)..end].copy_from_slice(bytes);
            }
            Change::Size { file, size } => {
                let content = self.contents.entry(*file).or_default();
                content.resize(at(*size), 0);
            }
            Change::Hole {
                file,
                offset,
                length,
            } => {
                let content = self.contents.entry(*file).or_default();
                let end = content.len().min(at(*offset + *length));
                if at(*offset) < end {
                    content[at(*offset)..end].fill(0);
                }
            }
            Change::Gone { file } => {
                self.contents.remove(file);
            }
            _ => {}
        }
    }
}

/// Follows the tree while `writer` runs and a second program writes a file a few times, and then
/// until everything is quiet.
fn follow(tree: &Path, options: Options, writer: impl Fn(&AtomicBool) + Send + Sync) -> Epochs {
    shell(tree, "echo 0 >other");
    let mut capture = Capture::start(tree, options).unwrap();
    let mut epochs = Epochs::default();
    let limit = Duration::from_secs(60);
    assert!(
        capture
            .catch_up(limit, &mut |entry| epochs.take(&entry))
            .unwrap()
    );
    let first = capture.progress();
    let (done, begun) = (AtomicBool::new(false), Instant::now());
    thread::scope(|scope| {
        let _ends = Ends(&done);
        scope.spawn(|| writer(&done));
        scope.spawn(|| {
            for step in 1..=5 {
                thread::sleep(TIME / 10);
                shell(tree, &format!("echo {step} >other"));
            }
        });
        while begun.elapsed() < TIME {
            capture.poll(&mut |entry| epochs.take(&entry)).unwrap();
            thread::sleep(INTERVAL);
        }
    });
    let before = epochs.all.len();
    assert!(
        before >= MIN_EPOCHS,
        "{before} epochs: {:?}",
        capture.progress()
    );
    let others: BTreeSet<_> = epochs
        .all
        .iter()
        .map(|(files, _)| &files["other"])
        .collect();
    assert!(others.len() > 2, "of another program: {others:?}");
    let all = capture
        .catch_up(limit, &mut |entry| epochs.take(&entry))
        .unwrap();
    assert!(all, "no epoch: {:?}", capture.progress());
    let last = capture.progress();
    assert_eq!(last.stale, 0, "{last:?}");
    epochs.read_back = last.read_back - first.read_back;
    epochs.dirty = last.dirty - first.dirty;
    epochs.mirror.compare(tree);
    epochs
}

fn options() -> Options {
    Options {
        look: true,
        ..Options::default()
    }
}

const FORMATS: [Format; 5] = [
    Format::Ext4,
    Format::Xfs,
    Format::Btrfs,
    Format::Tmpfs,
    Format::Overlay,
];

fn on_each(work: impl Fn(Format, &Path) + Send + Sync) {
    within(|bed| {
        for (number, format) in FORMATS.into_iter().enumerate() {
            if let Some(tree) = bed.follow(format, &format!("tree{number}")) {
                println!("{format:?}");
                work(format, &tree);
            }
        }
    });
}

/// A line, by its number.
fn line(number: usize) -> String {
    format!("{number:015}\n")
}

fn is_beginning(content: &[u8]) -> bool {
    let lines = content.len() / line(0).len();
    let all: String = (0..=lines).map(line).collect();
    all.as_bytes().starts_with(content)
}

#[test]
fn each_epoch_has_a_beginning_of_what_is_appended_without_a_pause() {
    on_each(|format, tree| {
        let epochs = follow(tree, options(), |done| {
            let files = ["one", "two"].map(|name| {
                let mut options = OpenOptions::new();
                options.create(true).append(true);
                options.open(tree.join(name)).unwrap()
            });
            let mut number = 0;
            while !done.load(Ordering::Relaxed) {
                for mut file in &files {
                    file.write_all(line(number).as_bytes()).unwrap();
                }
                number += 1;
                thread::sleep(Duration::from_micros(500));
            }
        });
        let mut sizes = BTreeSet::new();
        for (files, _) in &epochs.all {
            for name in ["one", "two"] {
                let content = files.get(name).map_or(&[][..], Vec::as_slice);
                assert!(is_beginning(content), "{format:?}: {name}");
                sizes.insert(content.len());
            }
        }
        assert!(sizes.len() > MIN_EPOCHS, "{format:?}: {sizes:?}");
    });
}

/// Pages are written one after the other, all with the number of the round.
fn write_rounds(tree: &Path, done: &AtomicBool) {
    let file = File::create(tree.join("rounds")).unwrap();
    let mut round = 0_u64;
    while !done.load(Ordering::Relaxed) {
        round += 1;
        for page in 0..8 {
            let bytes = round.to_le_bytes().repeat(PAGE / 8);
            file.write_all_at(&bytes, page * PAGE as u64).unwrap();
            thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Whether pages have the number of one round up to some page, and from there on that of the round before.
fn is_round(content: &[u8]) -> bool {
    let mut rounds = Vec::new();
    for page in content.chunks(PAGE) {
        let (numbers, _) = page.as_chunks::<8>();
        let number = numbers
            .first()
            .map_or(0, |number| u64::from_le_bytes(*number));
        if numbers.iter().any(|one| u64::from_le_bytes(*one) != number) {
            return false;
        }
        rounds.push(number);
    }
    // A file that grows has pages of the first round alone.
    let (first, last) = (rounds.first(), rounds.last());
    let falls = rounds.windows(2).filter(|pair| pair[0] != pair[1]).count();
    match (first, last) {
        (Some(first), Some(last)) => falls <= 1 && (first == last || *first == last + 1),
        _ => true,
    }
}

#[test]
fn each_epoch_has_what_a_file_was_that_is_overwritten_in_a_loop() {
    on_each(|format, tree| {
        let epochs = follow(tree, options(), |done| write_rounds(tree, done));
        for (files, _) in &epochs.all {
            if let Some(content) = files.get("rounds") {
                assert!(is_round(content), "{format:?}: {:?}", summary(content));
            }
        }
    });
}

#[test]
fn epochs_go_on_while_a_file_changes_that_is_too_large_for_memory() {
    within(|bed| {
        let Some(tree) = bed.follow(Format::Xfs, "tree") else {
            return;
        };
        let options = Options {
            // What functions copy is not read.
            journal: true,
            hold_back: HoldBackOptions {
                memory: PAGE,
                folder: Some(bed.scratch().to_owned()),
            },
            ..Options::default()
        };
        let mut capture = Capture::start(&tree, options).unwrap();
        let mut epochs = Epochs::default();
        let limit = Duration::from_secs(60);
        let caught_up = |capture: &mut Capture, epochs: &mut Epochs| {
            capture
                .catch_up(limit, &mut |entry| epochs.take(&entry))
                .unwrap()
        };
        assert!(caught_up(&mut capture, &mut epochs));
        let (done, begun) = (AtomicBool::new(false), Instant::now());
        let stale = |epochs: &Epochs| {
            epochs
                .all
                .iter()
                .filter(|(_, stale)| !stale.is_empty())
                .count()
        };
        thread::scope(|scope| {
            let _ends = Ends(&done);
            scope.spawn(|| write_rounds(&tree, &done));
            while stale(&epochs) < 3 && begun.elapsed() < limit {
                capture.poll(&mut |entry| epochs.take(&entry)).unwrap();
                thread::sleep(INTERVAL);
            }
        });
        assert!(stale(&epochs) >= 3, "{:?}", capture.progress());
        assert!(caught_up(&mut capture, &mut epochs));
        for (files, _) in &epochs.all {
            if let Some(content) = files.get("rounds") {
                assert!(is_round(content), "{:?}", summary(content));
            }
        }
        epochs.mirror.compare(&tree);
    });
}

/// More than this is not read for each byte of a page that is dirty.
const MAX_AMPLIFICATION: u64 = 4;

#[test]
fn no_more_is_read_than_four_times_the_pages_that_are_dirty() {
    if !sys::require::requested("writes for 6 s in four ways on each of five file systems") {
        return;
    }
    let append = |tree: &Path, done: &AtomicBool, pause: Duration| {
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).open(tree.join("log"));
        let mut file = file.unwrap();
        while !done.load(Ordering::Relaxed) {
            file.write_all(&[b'x'; 100]).unwrap();
            thread::sleep(pause);
        }
    };
    let overwrite = |tree: &Path, done: &AtomicBool, pause: Duration| {
        let file = File::create(tree.join("blocks")).unwrap();
        file.set_len(100 << 20).unwrap();
        let mut number = 0;
        while !done.load(Ordering::Relaxed) {
            number += 1;
            let at = number * 7919 % 12_800 * 8192;
            file.write_all_at(&[b'x'; 8192], at).unwrap();
            thread::sleep(pause);
        }
    };
    on_each(|format, tree| {
        for ms in [1, 10] {
            let pause = Duration::from_millis(ms);
            let appended = follow(tree, options(), |done| append(tree, done, pause));
            let overwritten = follow(tree, options(), |done| overwrite(tree, done, pause));
            for (what, epochs) in [("appended", appended), ("overwritten", overwritten)] {
                let Epochs {
                    read_back, dirty, ..
                } = epochs;
                println!("{format:?}: {what} each {ms} ms: {read_back} B read, {dirty} B dirty");
                assert!(read_back <= MAX_AMPLIFICATION * dirty, "{format:?}: {what}");
            }
        }
    });
}

fn summary(content: &[u8]) -> Vec<&[u8]> {
    content.chunks(PAGE).map(|page| &page[..8]).collect()
}

/// Stores to each page of a file in turn through a mapping, with the number of the round, and never rests.
const STORES: &str = r#"
import mmap, sys, time
PAGES, PAGE = 64, 4096
with open("stored", "r+b") as f:
    memory = mmap.mmap(f.fileno(), PAGES * PAGE)
end, number = time.monotonic() + float(sys.argv[1]), 0
while time.monotonic() < end:
    at = number % PAGES * PAGE
    memory[at:at + 8] = (number // PAGES + 1).to_bytes(8, "little")
    number += 1
    time.sleep(0.001)
"#;

#[test]
fn a_file_that_is_stored_to_through_memory_all_the_time_is_stale_and_named() {
    on_each(|format, tree| {
        if matches!(format, Format::Tmpfs) {
            // Its stores are not reported. They are found by reading the mapped files.
            return;
        }
        shell(tree, "head -c 262144 /dev/zero >stored");
        let epochs = follow(tree, options(), |_| {
            let seconds = TIME.as_secs().to_string();
            crate::follow::run(
                std::process::Command::new("python3")
                    .args(["-c", STORES, &seconds])
                    .current_dir(tree),
            );
        });
        let mut states = BTreeSet::new();
        for (files, _) in &epochs.all {
            let content = &files["stored"];
            let rounds: Vec<_> = content
                .chunks(PAGE)
                .map(|page| u64::from_le_bytes(page[..8].try_into().unwrap()))
                .collect();
            let falls = rounds.windows(2).filter(|pair| pair[0] != pair[1]).count();
            let in_turn = falls <= 1 && rounds[0].abs_diff(rounds[63]) <= 1;
            assert!(in_turn && rounds[0] >= rounds[63], "{format:?}: {rounds:?}");
            states.insert(rounds);
        }
        let named = epochs
            .all
            .iter()
            .filter(|(_, stale)| stale.contains("stored"));
        assert!(named.count() > 0, "{format:?}: it is in no epoch stale");
        assert!(
            states.len() > MIN_EPOCHS,
            "{format:?}: {} states",
            states.len()
        );
    });
}
