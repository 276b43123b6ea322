//! Histories of trees that no program would produce, with every record that can follow.

use std::path::Path;

use fastrand::Rng;
use replicate::log::{Durability, Options, Writer};
use replicate::record::{Attributes, Change, Entry, File, Kind, Name, Origin};
use replicate::tree::Tree;

pub(crate) const ROOT: File = File {
    inode: 2,
    generation: 0,
};

/// Records, and the tree that they make.
#[derive(Debug)]
pub(crate) struct History {
    rng: Rng,
    pub(crate) entries: Vec<Entry>,
    pub(crate) tree: Tree,
    epoch: u64,
    inode: u64,
    gone: Vec<File>,
}

/// What a directory may contain: among it what programs stumble over.
fn name(rng: &mut Rng) -> Name {
    let long = [b'n'; 255];
    let all: [&[u8]; 8] = [
        b"a",
        b"b",
        b"c",
        b"d",
        b"e",
        b"\xff\xfe",
        b"new\nline",
        &long,
    ];
    Name::new(rng.choice(all).unwrap()).unwrap()
}

impl History {
    pub(crate) fn new(seed: u64) -> Self {
        let mut history = Self {
            rng: Rng::with_seed(seed),
            entries: Vec::new(),
            tree: Tree::default(),
            epoch: 0,
            inode: 10,
            gone: Vec::new(),
        };
        assert!(history.say(Entry::Start { root: ROOT }));
        history.attributes(ROOT);
        history
    }

    /// Makes this many random changes, and ends with an epoch.
    pub(crate) fn go_on(&mut self, things: usize) {
        for _ in 0..things {
            self.thing();
        }
        self.end();
    }

    /// Whether the record can follow; if so, it does.
    pub(crate) fn say(&mut self, entry: Entry) -> bool {
        let can = self.tree.enter(&entry).is_ok();
        if can {
            self.entries.push(entry);
        }
        can
    }

    fn change(&mut self, change: Change) -> bool {
        self.say(Entry::Change(change))
    }

    /// Ends with an epoch. Directories without a name first lose their entries.
    pub(crate) fn end(&mut self) {
        loop {
            let number = self.epoch + 1;
            if self.say(Entry::Epoch { number }) {
                self.epoch = number;
                return;
            }
            let adrift: Vec<File> = self
                .tree
                .files()
                .filter(|(file, node)| {
                    node.kind == Kind::Directory && node.names.is_empty() && *file != self.root()
                })
                .map(|(file, _)| file)
                .collect();
            for directory in adrift {
                let names: Vec<Name> = self
                    .tree
                    .children(directory)
                    .map(|(name, _)| name.clone())
                    .collect();
                for name in names {
                    assert!(self.change(Change::Unlink { directory, name }));
                }
            }
        }
    }

    fn root(&self) -> File {
        self.tree.root().unwrap()
    }

    fn any(&mut self, fits: impl Fn(&Kind) -> bool) -> Option<File> {
        let all: Vec<File> = self
            .tree
            .files()
            .filter(|(_, node)| fits(&node.kind))
            .map(|(file, _)| file)
            .collect();
        self.rng.choice(all)
    }

    fn directory(&mut self) -> File {
        self.any(|kind| *kind == Kind::Directory).unwrap()
    }

    fn thing(&mut self) {
        match self.rng.u8(..100) {
            0..35 => self.make(),
            35..50 => self.write(),
            50..60 => self.attributes_of_any(),
            60..65 => self.exchange(),
            65..75 => self.rename(),
            75..80 => self.hard_link(),
            80..86 => self.unlink(),
            86..96 => self.forget(),
            96..98 => self.end(),
            98 => self.anew(),
            _ => self.extended(),
        }
    }

    fn make(&mut self) {
        let file = match self.gone.pop() {
            Some(gone) if self.rng.bool() => gone,
            _ => {
                self.inode += 1;
                File {
                    inode: self.inode,
                    generation: self.rng.u32(..3),
                }
            }
        };
        let kind = match self.rng.u8(..10) {
            0..3 => Kind::Directory,
            3 => Kind::Symlink(b"../../../etc".to_vec()),
            4 => Kind::Fifo,
            5 => Kind::Socket,
            _ => Kind::Regular,
        };
        if !self.change(Change::New { file, kind }) {
            return;
        }
        self.attributes(file);
        let directory = self.directory();
        let mut name = name(&mut self.rng);
        if self.tree.child(directory, &name).is_some() && self.rng.u8(..4) > 0 {
            name = Name::new(file.inode.to_string().as_bytes()).unwrap();
        }
        self.change(Change::Link {
            directory,
            name,
            file,
        });
        for _ in 0..self.rng.u8(..3) {
            self.write_to(file);
        }
    }

    fn write(&mut self) {
        if let Some(file) = self.any(|kind| *kind == Kind::Regular) {
            self.write_to(file);
        }
    }

    fn write_to(&mut self, file: File) {
        let offset = self.rng.u64(..20_000);
        let change = match self.rng.u8(..6) {
            0 => Change::Size { file, size: offset },
            1 => Change::Hole {
                file,
                offset,
                length: self.rng.u64(..9000),
            },
            _ => {
                let mut bytes = vec![0; self.rng.usize(..6000)];
                self.rng.fill(&mut bytes);
                Change::Data {
                    file,
                    offset,
                    bytes,
                    origin: Origin::Exact,
                }
            }
        };
        let written = self.change(change);
        if written && self.rng.bool() {
            self.attributes(file);
        }
    }

    fn attributes_of_any(&mut self) {
        let file = self.any(|_| true).unwrap();
        self.attributes(file);
    }

    fn attributes(&mut self, file: File) {
        let root = rustix::process::geteuid().is_root();
        let owner = |rng: &mut Rng| if root { rng.u32(..3) * 500 } else { 0 };
        let modes = [0o644, 0o600, 0o755, 0o500, 0o000, 0o1777];
        let attributes = Attributes {
            mode: self.rng.choice(modes).unwrap(),
            uid: owner(&mut self.rng),
            gid: owner(&mut self.rng),
            modified_ns: self.rng.i64(-2..4) * 1_000_000_007,
        };
        let attributes = if root {
            attributes
        } else {
            Attributes {
                uid: rustix::process::getuid().as_raw(),
                gid: rustix::process::getgid().as_raw(),
                ..attributes
            }
        };
        self.change(Change::Attributes { file, attributes });
    }

    fn extended(&mut self) {
        let fits = |kind: &Kind| matches!(kind, Kind::Regular | Kind::Directory);
        let file = self.any(fits).unwrap();
        let mut all = Vec::new();
        for name in [&b"user.one"[..], b"user.two"] {
            if self.rng.bool() {
                all.push((name.to_vec(), vec![self.rng.u8(..); 9]));
            }
        }
        self.change(Change::Extended { file, all });
    }

    fn entry(&mut self) -> Option<(File, Name, File)> {
        let mut all = Vec::new();
        for (file, node) in self.tree.files() {
            let names = node.names.iter();
            all.extend(names.map(|(directory, name)| (*directory, name.clone(), file)));
        }
        self.rng.choice(all)
    }

    fn rename(&mut self) {
        let Some((from, old, file)) = self.entry() else {
            return;
        };
        let (directory, name) = (self.directory(), name(&mut self.rng));
        if self.tree.child(directory, &name) == Some(file) {
            return;
        }
        let moved = self.change(Change::Link {
            directory,
            name,
            file,
        });
        if moved && self.tree.child(from, &old) == Some(file) {
            self.change(Change::Unlink {
                directory: from,
                name: old,
            });
        }
    }

    fn exchange(&mut self) {
        let (Some(one), Some(other)) = (self.entry(), self.entry()) else {
            return;
        };
        let link = |(directory, name, _): &(File, Name, File), file| Change::Link {
            directory: *directory,
            name: name.clone(),
            file,
        };
        if self.change(link(&one, other.2)) {
            self.change(link(&other, one.2));
        }
    }

    fn hard_link(&mut self) {
        if let Some(file) = self.any(|kind| *kind != Kind::Directory) {
            // A file that lost its last name never gets another.
            if self.tree.get(file).unwrap().names.is_empty() {
                return;
            }
            let (directory, name) = (self.directory(), name(&mut self.rng));
            self.change(Change::Link {
                directory,
                name,
                file,
            });
        }
    }

    fn unlink(&mut self) {
        if let Some((directory, name, _)) = self.entry() {
            self.change(Change::Unlink { directory, name });
        }
    }

    fn forget(&mut self) {
        let file = self.any(|_| true).unwrap();
        if self.change(Change::Gone { file }) {
            self.gone.push(file);
        }
    }

    /// The whole tree once more, as a capture that begins does.
    fn anew(&mut self) {
        self.end();
        let was = self.tree.clone();
        self.say(Entry::Start { root: self.root() });
        for (file, node) in was.files() {
            let kind = node.kind.clone();
            let reached = was.path(file).is_some();
            if !reached {
                continue;
            }
            self.change(Change::New { file, kind });
            self.attributes(file);
            if node.kind == Kind::Regular {
                self.write_to(file);
            }
        }
        for (file, node) in was.files() {
            for (directory, name) in &node.names {
                let (directory, name) = (*directory, name.clone());
                assert!(self.change(Change::Link {
                    directory,
                    name,
                    file,
                }));
            }
        }
    }
}

/// Appends to the log.
pub(crate) fn write(folder: &Path, entries: &[Entry]) {
    let options = Options {
        durability: Durability::OnRequest,
        segment: 20_000,
    };
    let mut writer = Writer::open(folder, options).unwrap();
    for entry in entries {
        writer.append(5, entry.clone()).unwrap();
    }
    writer.sync().unwrap();
}
