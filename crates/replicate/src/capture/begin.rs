//! Begins to follow a tree: with a log of its own, or with one that a capture has left.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::errno::Errno;

use super::derive::Deriver;
use super::order::Order;
use super::pace::Pace;
use super::pin::Label;
use super::place::Place;
use super::program::{Programs, Scope};
use super::rescan::{Comparison, Known, Rescan};
use super::source::Source;
use super::{Capture, Error, Options, Progress, Reading, mounts};
use crate::patterns::Filter;
use crate::record::{Entry, File, Part};

impl Capture {
    /// Attaches to the tree below `root`. The first records say what the tree
    /// has already.
    ///
    /// # Errors
    /// [`Error`] says what is missing.
    pub fn start(root: &Path, options: Options) -> Result<Self, Error> {
        Self::check(root, &options)?;
        let capture = Self::attach(root, options)?;
        capture.deriver.source.check(&capture.options)?;
        Ok(capture)
    }

    /// Whatever the file system says nothing of.
    pub(crate) fn attach(root: &Path, options: Options) -> Result<Self, Error> {
        let (mut capture, label) = Self::connect(root, options)?;
        let start = Entry::Start {
            root: capture.deriver.source.name(),
        };
        capture.begin(start);
        capture.narrow();
        capture.doubt_root();
        capture.keep(label, &[])?;
        Ok(capture)
    }

    /// Attaches to the tree below `root`, to go on with the log that says what is `known`. The first
    /// records say what has become of the tree since; epochs are numbered on. A log of another root, or
    /// of none, says the whole tree anew.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn resume(root: &Path, options: Options, known: Known) -> Result<Self, Error> {
        Self::check(root, &options)?;
        let (mut capture, mut label) = Self::connect(root, options)?;
        capture.deriver.source.check(&capture.options)?;
        let file = capture.deriver.source.name();
        let Known { tree, contents } = known;
        capture.epoch = tree.epoch();
        let same = tree.root() == Some(file);
        // A journal says what has changed, not what has come to belong.
        let alike = *tree.patterns() == capture.options.patterns;
        capture.deriver.tree = tree;
        let left = match (&capture.options.pin, &label) {
            (Some(pin), Some(label)) if same && alike => pin.left(label, capture.epoch),
            _ => None,
        };
        if same {
            capture.deriver.comparison = Some(Comparison::new(contents));
            capture.unscanned = left.is_none();
            capture.progress.rescan = Some(Rescan {
                journal: left.is_some(),
                ..Rescan::default()
            });
            // The log has these doubts already, and nobody to settle them.
            for (file, part) in capture.deriver.tree.in_doubt() {
                capture.deriver.doubts.entry(file).or_default().add(&part);
            }
        } else {
            capture.begin(Entry::Start { root: file });
        }
        capture.narrow();
        capture.doubt_root();
        if let Some(left) = &left {
            label = label.map(|label| label.since(capture.epoch));
            capture.rescanned(|rescan| rescan.files = left.len() as u64);
            for file in left {
                capture.deriver.doubt_all(*file);
            }
            capture.doubt_nameless();
        }
        capture.keep(label, left.as_deref().unwrap_or_default())?;
        Ok(capture)
    }

    /// Whether the tree is one that can be followed, as far as that shows before.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn check(root: &Path, options: &Options) -> Result<(), Error> {
        if !nix::unistd::geteuid().is_root() {
            return Err(Error::Privileges);
        }
        Source::open(root)?.check(options)
    }

    /// Where other file systems are mounted below a tree: they are no part of it.
    ///
    /// # Errors
    /// When the kernel's list cannot be read.
    pub fn mounted_below(root: &Path) -> io::Result<Vec<PathBuf>> {
        mounts::below(root)
    }

    /// Attached, and the label of a journal if there is to be one.
    fn connect(root: &Path, options: Options) -> Result<(Self, Option<Label>), Error> {
        let filter = Filter::new(&options.patterns)?;
        let mut source = Source::open(root)?;
        let failed = |cause| Error::Tree {
            path: root.to_owned(),
            cause,
        };
        let device = mounts::device(source.root()).map_err(failed)?;
        let device = device.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let scope = Scope {
            device,
            root: source.name(),
            format: source.format(),
        };
        let place = Place::of(root).map_err(failed)?;
        let programs = Programs::attach(&scope, &options)?;
        source.attach(&programs)?;
        let pin = options.pin.as_ref();
        let label = pin.map(|pin| Label::new(pin, root, &source, &scope, place.mounts()));
        let label = label.transpose()?;
        // A page that is dirty already would tell nothing of further stores.
        nix::unistd::syncfs(source.root()).map_err(|errno: Errno| failed(errno.into()))?;
        let capture = Self {
            programs,
            place,
            pinned: None,
            looks: options.look && source.format().silent(),
            called: false,
            deriver: Deriver::new(source, filter),
            order: Order::new(0),
            reading: Reading::Idle,
            listed: BTreeMap::new(),
            pace: Pace::new(options.rate_limit),
            progress: Progress::default(),
            accounted: 0,
            forgotten: 0,
            epoch: 0,
            wanted: false,
            unscanned: false,
            last_event: Instant::now(),
            ended: Instant::now(),
            passed: Instant::now(),
            bytes: 0,
            options,
            last_reading: Instant::now(),
            looked: Instant::now(),
            hooks: 0,
        };
        Ok((capture, label))
    }

    /// These follow anything: a start, and what the log is to have after one.
    fn begin(&mut self, entry: Entry) {
        let _always = self.deriver.tree.enter(&entry);
        self.deriver.out.push(entry);
    }

    /// Says what the log is to have, where it does not say so already.
    fn narrow(&mut self) {
        if *self.deriver.tree.patterns() != self.options.patterns {
            self.begin(Entry::Patterns(self.options.patterns.clone()));
        }
    }

    fn keep(&mut self, label: Option<Label>, left: &[File]) -> Result<(), Error> {
        if let Some((pin, label)) = self.options.pin.as_ref().zip(label) {
            self.pinned = Some(pin.keep(&mut self.programs, label, left)?);
        }
        Ok(())
    }

    /// Until it is settled there is no epoch.
    fn doubt_root(&mut self) {
        let root = self.deriver.source.name();
        self.deriver.doubt(root, Part::Names);
        self.deriver.doubt(root, Part::Attributes);
    }
}
