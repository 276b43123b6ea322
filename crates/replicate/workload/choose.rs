//! Which step comes next: a seed's own sequence of operations on what the tree contains by then.
//!
//! The tree is looked through again after each step: an operation that failed, or did half, leaves
//! no wrong idea of it.

use std::io;
use std::path::{Path, PathBuf};

use fastrand::Rng;

use crate::carry::Hands;
use crate::names;
use crate::operation::{
    Allocation, Area, Copying, Creation, Node, Operation, Renaming, Resizing, Syncing, Way,
};
use crate::tree::Tree;

/// Directories nest no deeper: names of 255 bytes must still fit a path.
const MAX_DEPTH: usize = 6;
/// A tree larger than this only shrinks.
const MAX_FILES: usize = 120;
/// Most writes end below.
const USUAL_SIZE: u64 = 192 * 1024;
/// A few reach so far, and leave a hole.
const SPARSE: u64 = 16 << 20;
const BLOCK: u64 = 4096;

/// A tree, and the steps that a seed takes on it.
#[derive(Debug)]
pub(crate) struct Fuzz {
    random: Rng,
    root: PathBuf,
    tree: Tree,
    hands: Hands,
}

type Choice = fn(&mut Fuzz) -> Option<Operation>;

/// How often each kind of step is tried, against each other.
const CHOICES: &[(u32, Choice)] = &[
    (8, Fuzz::create),
    (2, Fuzz::nameless),
    (30, Fuzz::write),
    (2, Fuzz::race),
    (6, Fuzz::copy),
    (6, Fuzz::resize),
    (10, Fuzz::allocate),
    (7, Fuzz::store),
    (3, Fuzz::hold),
    (8, Fuzz::held),
    (3, Fuzz::map),
    (6, Fuzz::mapped),
    (6, Fuzz::mkdir),
    (3, Fuzz::mknod),
    (3, Fuzz::symlink),
    (5, Fuzz::link),
    (14, Fuzz::rename),
    (7, Fuzz::unlink),
    (2, Fuzz::unlink_open),
    (3, Fuzz::rmdir),
    (4, Fuzz::chmod),
    (4, Fuzz::chown),
    (4, Fuzz::times),
    (6, Fuzz::set_extended),
    (2, Fuzz::remove_extended),
    (5, Fuzz::sync),
];

const WAYS: &[Way] = &[
    Way::Positioned,
    Way::Positioned,
    Way::Sequential,
    Way::Appending,
    Way::PositionedAppending,
    Way::Vectored,
    Way::AppendedOnce,
    Way::Synchronous,
    Way::Direct,
    Way::Untouched,
    Way::Unread,
    Way::Flipped,
    Way::Spliced,
    Way::Ring,
    Way::RingWorker,
    Way::RingPolled,
    Way::RingDirect,
    Way::Inherited,
    Way::Passed,
];

impl Fuzz {
    pub(crate) fn new(seed: u64, root: &Path) -> io::Result<Self> {
        Ok(Self {
            random: Rng::with_seed(seed),
            tree: Tree::scan(root)?,
            root: root.to_owned(),
            hands: Hands::new(root),
        })
    }

    /// Takes a step; what it did or the error it met.
    pub(crate) fn step(&mut self) -> io::Result<(Operation, io::Result<u64>)> {
        let operation = self.choose();
        let result = self.hands.carry_out(&operation);
        self.tree = Tree::scan(&self.root)?;
        Ok((operation, result))
    }

    fn choose(&mut self) -> Operation {
        let all: u32 = CHOICES.iter().map(|(weight, _)| weight).sum();
        loop {
            let mut at = self.random.u32(0..all);
            let chosen = CHOICES.iter().find(|(weight, _)| {
                let here = at < *weight;
                at = at.saturating_sub(*weight);
                here
            });
            let operation = chosen.and_then(|(_, choice)| choice(self));
            if let Some(operation) = operation.filter(|operation| self.fits(operation)) {
                return operation;
            }
        }
    }

    fn fits(&self, operation: &Operation) -> bool {
        let grows = matches!(
            operation,
            Operation::Create { .. }
                | Operation::Nameless { .. }
                | Operation::Mkdir { .. }
                | Operation::Mknod { .. }
                | Operation::Symlink { .. }
                | Operation::Link { .. }
        );
        !grows || self.tree.len() < MAX_FILES
    }

    fn create(&mut self) -> Option<Operation> {
        let how = [Creation::Open, Creation::Exclusive, Creation::Truncating];
        Some(Operation::Create {
            path: self.free_or_regular()?,
            mode: self.mode(),
            how: self.random.choice(how)?,
        })
    }

    fn nameless(&mut self) -> Option<Operation> {
        Some(Operation::Nameless {
            path: self.name(),
            area: self.area(),
        })
    }

    fn write(&mut self) -> Option<Operation> {
        let path = self.regular()?;
        let how = *self.random.choice(WAYS)?;
        let mut area = self.area();
        if matches!(how, Way::Direct | Way::RingDirect) {
            area.offset -= area.offset % BLOCK;
            area.length = area.length.next_multiple_of(4096);
        }
        Some(Operation::Write { path, area, how })
    }

    fn race(&mut self) -> Option<Operation> {
        Some(Operation::Race {
            path: self.regular()?,
            threads: self.random.u8(2..=4),
            writes: self.random.u8(5..=40),
            length: self.random.usize(1..=300),
        })
    }

    fn copy(&mut self) -> Option<Operation> {
        let how = [Copying::Sendfile, Copying::Range, Copying::Clone];
        Some(Operation::Copy {
            from: self.regular()?,
            to: self.regular()?,
            source: self.offset(),
            offset: self.offset(),
            length: self.length(),
            how: self.random.choice(how)?,
        })
    }

    fn resize(&mut self) -> Option<Operation> {
        let how = [Resizing::Ftruncate, Resizing::Truncate, Resizing::Opened];
        let how = self.random.choice(how)?;
        let size = self.offset();
        Some(Operation::Resize {
            path: self.regular()?,
            size: if how == Resizing::Opened { 0 } else { size },
            how,
        })
    }

    fn allocate(&mut self) -> Option<Operation> {
        let how = self.random.choice(Allocation::ALL)?;
        let whole = matches!(how, Allocation::Collapse | Allocation::Insert);
        let (offset, length) = if whole || self.random.bool() {
            let blocks = if whole { 3 } else { 16 };
            let start = self.random.u64(0..blocks);
            (start * BLOCK, self.random.u64(1..4) * BLOCK)
        } else {
            (self.random.u64(0..USUAL_SIZE), self.random.u64(1..40_000))
        };
        Some(Operation::Allocate {
            path: self.regular()?,
            offset,
            length,
            how,
        })
    }

    fn store(&mut self) -> Option<Operation> {
        Some(Operation::Store {
            path: self.regular()?,
            area: self.area(),
            closed: self.random.bool(),
            synced: self.random.bool(),
        })
    }

    fn hold(&mut self) -> Option<Operation> {
        let path = self.regular()?;
        self.hands.holds_more().then_some(Operation::Hold { path })
    }

    fn held(&mut self) -> Option<Operation> {
        let slot = self.hands.held(&mut self.random)?;
        Some(match self.random.u8(0..8) {
            0 => Operation::Release { slot },
            1 => Operation::HeldResize {
                slot,
                size: self.offset(),
            },
            2 => Operation::HeldMode {
                slot,
                mode: self.mode(),
            },
            _ => Operation::HeldWrite {
                slot,
                area: self.area(),
                append: self.random.bool(),
            },
        })
    }

    fn map(&mut self) -> Option<Operation> {
        let path = self.regular()?;
        let length = self.random.usize(1..=16) * 4096;
        self.hands
            .maps_more()
            .then_some(Operation::Map { path, length })
    }

    fn mapped(&mut self) -> Option<Operation> {
        let slot = self.hands.mapped(&mut self.random)?;
        Some(match self.random.u8(0..8) {
            0 => Operation::Unmap { slot },
            1 => Operation::MappedSync { slot },
            _ => Operation::MappedStore {
                slot,
                area: Area {
                    offset: self.random.u64(0..65_536),
                    length: self.random.usize(1..9000),
                    seed: self.seed(),
                },
            },
        })
    }

    fn mkdir(&mut self) -> Option<Operation> {
        let path = self.name();
        let deep = path.components().count() >= MAX_DEPTH;
        let mode = self.mode();
        (!deep).then_some(Operation::Mkdir { path, mode })
    }

    fn mknod(&mut self) -> Option<Operation> {
        let what = [Node::Fifo, Node::Socket, Node::Character, Node::Block];
        Some(Operation::Mknod {
            path: self.name(),
            mode: self.mode(),
            what: self.random.choice(what)?,
        })
    }

    fn symlink(&mut self) -> Option<Operation> {
        let target = match self.random.u8(0..4) {
            0 => PathBuf::from("/etc/passwd"),
            1 => PathBuf::from("../../.."),
            2 => PathBuf::from("t".repeat(self.random.usize(50..1000))),
            _ => self.anything()?,
        };
        Some(Operation::Symlink {
            path: self.name(),
            target,
        })
    }

    fn link(&mut self) -> Option<Operation> {
        let from = match self.random.u8(0..4) {
            0 => self.other()?,
            _ => self.regular()?,
        };
        let to = self.name();
        Some(Operation::Link { from, to })
    }

    fn rename(&mut self) -> Option<Operation> {
        let how = self.random.choice([
            Renaming::Replace,
            Renaming::Replace,
            Renaming::NoReplace,
            Renaming::Exchange,
            Renaming::Ring,
        ])?;
        let from = self.anything()?;
        let taken = how == Renaming::Exchange || self.random.u8(0..3) == 0;
        let to = if taken { self.anything()? } else { self.name() };
        let depth = self.tree.depth_below(&from) + to.components().count();
        (depth <= MAX_DEPTH).then_some(Operation::Rename { from, to, how })
    }

    fn unlink(&mut self) -> Option<Operation> {
        let path = match self.random.u8(0..4) {
            0 => self.other()?,
            _ => self.regular()?,
        };
        let ring = self.random.u8(0..4) == 0;
        Some(Operation::Unlink { path, ring })
    }

    fn unlink_open(&mut self) -> Option<Operation> {
        Some(Operation::UnlinkOpen {
            path: self.regular()?,
            area: self.area(),
        })
    }

    fn rmdir(&mut self) -> Option<Operation> {
        let path = self.directory();
        (!path.as_os_str().is_empty()).then_some(Operation::Rmdir { path })
    }

    fn chmod(&mut self) -> Option<Operation> {
        let path = match self.random.u8(0..3) {
            0 => self.directory(),
            _ => self.regular()?,
        };
        let mode = self.mode();
        Some(Operation::Chmod { path, mode })
    }

    fn chown(&mut self) -> Option<Operation> {
        let path = self.anything()?;
        let who = [None, Some(0), Some(1), Some(1000), Some(4_000_000_000)];
        Some(Operation::Chown {
            path,
            uid: self.random.choice(who)?,
            gid: self.random.choice(who)?,
        })
    }

    fn times(&mut self) -> Option<Operation> {
        let path = self.anything()?;
        let modified = match self.random.u8(0..4) {
            0 => None,
            1 => Some((self.random.i64(-1_000_000_000..0), 999_999_999)),
            2 => Some((self.random.i64(0..1_000_000_000), 0)),
            _ => Some((
                self.random.i64(1_000_000_000..5_000_000_000),
                self.random.u32(0..1_000_000_000),
            )),
        };
        Some(Operation::Times { path, modified })
    }

    fn set_extended(&mut self) -> Option<Operation> {
        let length = match self.random.u8(0..8) {
            0 => 0,
            1 => self.random.usize(500..3000),
            _ => self.random.usize(1..100),
        };
        let (path, name) = self.extended()?;
        Some(Operation::SetExtended {
            path,
            name,
            length,
            seed: self.seed(),
        })
    }

    fn remove_extended(&mut self) -> Option<Operation> {
        let (path, name) = self.extended()?;
        Some(Operation::RemoveExtended { path, name })
    }

    fn extended(&mut self) -> Option<(PathBuf, String)> {
        let names = ["user.a", "user.b", "user.a longer name", "trusted.c"];
        let path = match self.random.u8(0..4) {
            0 => self.directory(),
            _ => self.regular()?,
        };
        Some((path, self.random.choice(names)?.to_owned()))
    }

    fn sync(&mut self) -> Option<Operation> {
        let how = [Syncing::File, Syncing::Data, Syncing::System, Syncing::Ring];
        Some(Operation::Sync {
            path: self.regular()?,
            how: self.random.choice(how)?,
        })
    }

    fn regular(&mut self) -> Option<PathBuf> {
        self.random.choice(&self.tree.regular).cloned()
    }

    fn other(&mut self) -> Option<PathBuf> {
        self.random.choice(&self.tree.others).cloned()
    }

    fn directory(&mut self) -> PathBuf {
        let chosen = self.random.choice(&self.tree.directories);
        chosen.cloned().unwrap_or_default()
    }

    /// Any entry but the root.
    fn anything(&mut self) -> Option<PathBuf> {
        let below = self.tree.directories.iter().skip(1);
        let all = below.chain(&self.tree.regular).chain(&self.tree.others);
        self.random.choice(all.collect::<Vec<_>>()).cloned()
    }

    /// A name that may be free or taken.
    fn name(&mut self) -> PathBuf {
        self.directory().join(names::name(&mut self.random))
    }

    /// A name to open for writing. Other kinds of files would block or belong to other steps.
    fn free_or_regular(&mut self) -> Option<PathBuf> {
        let name = self.name();
        let taken = self.tree.directories.contains(&name) || self.tree.others.contains(&name);
        (!taken).then_some(name)
    }

    fn mode(&mut self) -> u32 {
        match self.random.u8(0..4) {
            0 => 0o644,
            1 => 0o755,
            _ => self.random.u32(0..=0o7777),
        }
    }

    fn area(&mut self) -> Area {
        Area {
            offset: self.offset(),
            length: self.length(),
            seed: self.seed(),
        }
    }

    fn seed(&mut self) -> u64 {
        match self.random.u8(0..8) {
            0 => 0,
            _ => self.random.u64(1..1_000_000),
        }
    }

    fn offset(&mut self) -> u64 {
        match self.random.u8(0..16) {
            0..4 => 0,
            4..8 => self.random.u64(0..USUAL_SIZE / BLOCK) * BLOCK,
            8..14 => self.random.u64(0..USUAL_SIZE),
            14 => self.random.u64(0..100),
            _ => self.random.u64(0..SPARSE),
        }
    }

    fn length(&mut self) -> usize {
        match self.random.u8(0..16) {
            0..5 => self.random.usize(1..100),
            5..8 => self.random.usize(4095..=4097),
            8..13 => self.random.usize(1..20_000),
            13..15 => self.random.usize(1..100_000),
            _ => self.random.usize(1..400_000),
        }
    }
}
