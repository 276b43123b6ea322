//! Walks two trees side by side in the order of their paths, or one tree alone, and computes
//! hashes.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use super::content::{self, Half};
use super::hash::{Hash, Tree};
use super::name_selection::NameSelection;
use super::report::{Difference, Verdict, What, path_of};
use super::side::{Fault, Metadata, Side};
use super::{Error, Progress, Scope, Summary, Watch};
use crate::record::{Kind, Name};

pub(super) struct Compare<'a, A: Side, B: Side> {
    pub(super) here: Part<A>,
    pub(super) there: Part<B>,
    /// The folders of both, for errors.
    roots: (&'a Path, &'a Path),
    path: Vec<u8>,
    verdict: Verdict,
    progress: Progress,
    watch: Watch<'a>,
    ended: bool,
}

/// One of the trees.
#[derive(Debug)]
pub(super) struct Part<S: Side> {
    pub(super) side: S,
    hash: Tree,
    /// For files that may have several names, the path under which each was seen first.
    first: HashMap<(u64, u64), Box<[u8]>>,
}

/// A directory whose contents are being compared.
struct Level<A, B> {
    here: Option<(A, Metadata)>,
    there: Option<(B, Metadata)>,
    names: std::vec::IntoIter<Name>,
    /// The length of its path.
    length: usize,
}

/// The contents of a directory that is on either side.
type Below<A, B> = Option<Level<<A as Side>::Lookup, <B as Side>::Lookup>>;

/// A file on one side.
struct One<F> {
    found: F,
    seen: Metadata,
    /// The path under which it was seen first, if that is another one.
    first: Option<Box<[u8]>>,
    content: Option<Hash>,
}

impl<'a, A: Side, B: Side> Compare<'a, A, B> {
    pub(super) fn new(
        here: A,
        there: B,
        roots: (&'a Path, &'a Path),
        scope: Scope,
        watch: Watch<'a>,
    ) -> Self {
        Self {
            here: Part::new(here, scope),
            there: Part::new(there, scope),
            roots,
            path: Vec::new(),
            verdict: Verdict::default(),
            progress: Progress::default(),
            watch,
            ended: false,
        }
    }

    /// Compares the selected paths of both.
    pub(super) fn run(&mut self, wanted: &NameSelection) -> Result<(), Error> {
        self.verdict.all = matches!(
            wanted,
            NameSelection::Only(_) | NameSelection::Between { .. }
        );
        let there = self.there.side.root();
        let there = there.map_err(|fault| self.error(fault, false))?;
        self.walk(Some(there), wanted)
    }

    /// Hashes one side alone.
    pub(super) fn hash(&mut self) -> Result<(), Error> {
        self.walk(None, &NameSelection::All)
    }

    fn walk(&mut self, there: Option<B::Lookup>, wanted: &NameSelection) -> Result<(), Error> {
        let here = self.here.side.root();
        let here = here.map_err(|fault| self.error(fault, true))?;
        let mut levels = Vec::new();
        levels.extend(self.entry(Some(here), there)?);
        while let Some(level) = levels.last_mut() {
            if self.ended {
                break;
            }
            self.path.truncate(level.length);
            let Some(name) = level.names.next() else {
                self.leave(level)?;
                levels.pop();
                continue;
            };
            if level.length > 0 {
                self.path.push(b'/');
            }
            self.path.extend(name.as_bytes());
            if !wanted.has(&self.path) {
                continue;
            }
            let below = (level.here.is_some(), level.there.is_some());
            let here = level.here.as_ref().map(|(of, _)| of);
            let here = look(&mut self.here.side, here, &name);
            let there = level.there.as_ref().map(|(of, _)| of);
            let there = look(&mut self.there.side, there, &name);
            let (Some(here), Some(there)) = (self.known(here, true)?, self.known(there, false)?)
            else {
                continue;
            };
            if below == (true, true) {
                self.presence(here.is_some(), there.is_some());
            }
            levels.extend(self.entry(here, there)?);
        }
        Ok(())
    }

    pub(super) fn verdict(mut self) -> Verdict {
        let whole = !self.ended && self.verdict.undecided_count == 0;
        self.verdict.hashes = whole.then(|| (self.here.hash.finish(), self.there.hash.finish()));
        self.verdict.partial = self.ended;
        self.verdict.names = self.progress.names;
        self.verdict.bytes = self.progress.bytes;
        self.verdict
    }

    pub(super) fn summary(self, epoch: Option<u64>) -> Result<Summary, Error> {
        if self.ended {
            return Err(Error::Ended);
        }
        if let Some(first) = self.verdict.undecided.into_iter().next() {
            return Err(Error::Undecided {
                path: self.roots.0.join(first.path),
                why: first.why,
            });
        }
        Ok(Summary {
            hash: self.here.hash.finish(),
            epoch,
            names: self.progress.names,
            bytes: self.progress.bytes,
        })
    }

    /// Reports a name that only one of the trees has.
    fn presence(&mut self, here: bool, there: bool) {
        match (here, there) {
            (true, false) => self.differ(What::Missing, String::new(), String::new()),
            (false, true) => self.differ(What::Extra, String::new(), String::new()),
            _ => {}
        }
    }

    /// Compares the entry at the path. For a directory, returns the level whose contents come next.
    fn entry(
        &mut self,
        here: Option<A::Lookup>,
        there: Option<B::Lookup>,
    ) -> Result<Below<A, B>, Error> {
        if here.is_none() && there.is_none() {
            return Ok(None);
        }
        self.progress.names += 1;
        self.watch();
        let here = self.here.one(here, &self.path);
        let there = self.there.one(there, &self.path);
        let (Some(mut here), Some(mut there)) =
            (self.known(here, true)?, self.known(there, false)?)
        else {
            return Ok(None);
        };
        let before = (self.verdict.differences.len(), self.verdict.differing);
        if let (Some(here), Some(there)) = (&here, &there) {
            self.compare(&here.seen, &there.seen);
            self.links(here.first.as_deref(), there.first.as_deref());
        }
        let read = self.contents(here.as_mut(), there.as_mut());
        if self.known(read, false)?.is_none() {
            return Ok(None);
        }
        let changed = self.changed(here.as_ref(), there.as_ref());
        let Some(changed) = self.known(changed, false)? else {
            return Ok(None);
        };
        if changed {
            // The file changed meanwhile, so neither its differences nor its equal parts belong to
            // one moment.
            self.verdict.differences.truncate(before.0);
            self.verdict.differing = before.1;
            let why = "it changed while it was read".to_owned();
            self.verdict.undecide(&self.path, why);
        }
        self.here.put(here.as_ref(), &self.path);
        self.there.put(there.as_ref(), &self.path);
        self.descend(here, there)
    }

    fn descend(
        &mut self,
        here: Option<One<A::Lookup>>,
        there: Option<One<B::Lookup>>,
    ) -> Result<Below<A, B>, Error> {
        let here = here.filter(|one| one.seen.kind == Kind::Directory);
        let there = there.filter(|one| one.seen.kind == Kind::Directory);
        if here.is_none() && there.is_none() {
            return Ok(None);
        }
        let ours = here.as_ref().map(|one| self.here.side.names(&one.found));
        let theirs = there.as_ref().map(|one| self.there.side.names(&one.found));
        let (Some(ours), Some(theirs)) = (
            self.known(ours.transpose(), true)?,
            self.known(theirs.transpose(), false)?,
        ) else {
            return Ok(None);
        };
        let mut names: BTreeSet<Name> = ours.into_iter().flatten().collect();
        names.extend(theirs.into_iter().flatten());
        Ok(Some(Level {
            here: here.map(|one| (one.found, one.seen)),
            there: there.map(|one| (one.found, one.seen)),
            names: names.into_iter().collect::<Vec<_>>().into_iter(),
            length: self.path.len(),
        }))
    }

    /// Ends a directory. Its contents belong to one moment only if its names did not change
    /// meanwhile.
    fn leave(&mut self, level: &Level<A::Lookup, B::Lookup>) -> Result<(), Error> {
        let mut changed = Ok(false);
        if let Some((found, seen)) = &level.here {
            changed = self.here.side.changed(found, seen);
        }
        if let Some((found, seen)) = &level.there {
            changed = changed.and_then(|one| Ok(self.there.side.changed(found, seen)? || one));
        }
        if self.known(changed, false)? == Some(true) {
            let why = "its names changed while they were read".to_owned();
            self.verdict.undecide(&self.path, why);
        }
        Ok(())
    }

    fn compare(&mut self, here: &Metadata, there: &Metadata) {
        if std::mem::discriminant(&here.kind) != std::mem::discriminant(&there.kind) {
            self.differ(What::Kind, here.kind.to_string(), there.kind.to_string());
            return;
        }
        let (a, b) = (&here.attributes, &there.attributes);
        self.say(What::Mode, a.mode, b.mode, |mode| format!("{mode:04o}"));
        let owners = ((a.uid, a.gid), (b.uid, b.gid));
        self.say(What::Owner, owners.0, owners.1, |(uid, gid)| {
            format!("{uid}:{gid}")
        });
        self.say(What::Modified, a.modified_ns, b.modified_ns, |ns| {
            let seconds = ns.div_euclid(1_000_000_000);
            format!("{seconds}.{:09}", ns.rem_euclid(1_000_000_000))
        });
        self.say(What::Extended, &here.extended, &there.extended, |all| {
            let names = all
                .iter()
                .map(|(name, value)| format!("{}={}", name.escape_ascii(), value.escape_ascii()));
            names.collect::<Vec<_>>().join(" ")
        });
        self.say(What::Size, here.size, there.size, |size| size.to_string());
        let what = match here.kind {
            Kind::Symlink(_) => What::Target,
            _ => What::Device,
        };
        self.say(what, &here.kind, &there.kind, Kind::to_string);
    }

    fn links(&mut self, here: Option<&[u8]>, there: Option<&[u8]>) {
        let text = |first: Option<&[u8]>| match first {
            Some(first) => format!("another name of {}", first.escape_ascii()),
            None => "a name of its own".to_owned(),
        };
        self.say(What::Links, here, there, text);
    }

    /// Compares the bytes of regular files, once for all names of a file.
    fn contents(
        &mut self,
        here: Option<&mut One<A::Lookup>>,
        there: Option<&mut One<B::Lookup>>,
    ) -> Result<(), Fault> {
        let here = here.filter(|one| one.seen.kind == Kind::Regular);
        let there = there.filter(|one| one.seen.kind == Kind::Regular);
        let Self {
            here: ours,
            there: theirs,
            progress,
            watch,
            ended,
            ..
        } = self;
        let mut read = |bytes: u64| {
            progress.bytes += bytes;
            *ended |= watch(progress).is_break();
            match *ended {
                true => Err(Fault::Ended),
                false => Ok(()),
            }
        };
        match (here, there) {
            // The result is known from their first names.
            (Some(here), Some(there)) if here.first.is_some() && here.first == there.first => {}
            (Some(here), Some(there)) => {
                let (a, b) = (ours.half(here), theirs.half(there));
                let (one, other, found) = content::both(a, b, &mut read)?;
                (here.content, there.content) = (Some(one), Some(other));
                self.verdict.holes += u64::from(found.holes > 0);
                if !found.ranges.is_empty() {
                    self.differing_bytes(found.ranges);
                }
            }
            (Some(here), None) if here.first.is_none() => {
                here.content = Some(content::alone(ours.half(here), &mut read)?);
            }
            (None, Some(there)) if there.first.is_none() => {
                there.content = Some(content::alone(theirs.half(there), &mut read)?);
            }
            _ => {}
        }
        Ok(())
    }

    fn changed(
        &mut self,
        here: Option<&One<A::Lookup>>,
        there: Option<&One<B::Lookup>>,
    ) -> Result<bool, Fault> {
        let mut changed = false;
        if let Some(one) = here {
            changed |= self.here.side.changed(&one.found, &one.seen)?;
        }
        if let Some(one) = there {
            changed |= self.there.side.changed(&one.found, &one.seen)?;
        }
        Ok(changed)
    }

    fn differing_bytes(&mut self, ranges: Vec<(u64, u64)>) {
        self.progress.differences += 1;
        self.verdict.differ(Difference {
            path: path_of(&self.path),
            what: What::Bytes,
            log: String::new(),
            folder: String::new(),
            ranges,
        });
    }

    fn say<T: PartialEq + Copy>(&mut self, what: What, a: T, b: T, text: impl Fn(T) -> String) {
        if a != b {
            self.differ(what, text(a), text(b));
        }
    }

    fn differ(&mut self, what: What, log: String, folder: String) {
        self.progress.differences += 1;
        self.verdict.differ(Difference {
            path: path_of(&self.path),
            what,
            log,
            folder,
            ranges: Vec::new(),
        });
    }

    fn watch(&mut self) {
        self.ended |= (self.watch)(&self.progress).is_break();
    }

    /// The value from a side. If a file cannot be read, notes that and returns `None`.
    fn known<T>(&mut self, said: Result<T, Fault>, here: bool) -> Result<Option<T>, Error> {
        match said {
            Ok(said) => Ok(Some(said)),
            Err(Fault::Ended) => Ok(None),
            Err(Fault::Io(cause)) if !self.path.is_empty() => {
                self.verdict.undecide(&self.path, cause.to_string());
                Ok(None)
            }
            Err(fault) => Err(self.error(fault, here)),
        }
    }

    fn error(&self, fault: Fault, here: bool) -> Error {
        let root = if here { self.roots.0 } else { self.roots.1 };
        match fault {
            Fault::Log(error) => error.into(),
            Fault::Nothing => Error::Nothing,
            Fault::Ended => Error::Ended,
            Fault::Io(cause) => Error::Io {
                path: root.to_owned(),
                cause,
            },
        }
    }
}

/// Looks up a name in a directory, if the directory exists.
fn look<S: Side>(
    side: &mut S,
    directory: Option<&S::Lookup>,
    name: &Name,
) -> Result<Option<S::Lookup>, Fault> {
    directory.map_or(Ok(None), |directory| side.find(directory, name))
}

impl<S: Side> Part<S> {
    fn new(side: S, scope: Scope) -> Self {
        Self {
            side,
            hash: Tree::new(scope),
            first: HashMap::new(),
        }
    }

    fn one(
        &mut self,
        found: Option<S::Lookup>,
        path: &[u8],
    ) -> Result<Option<One<S::Lookup>>, Fault> {
        let Some(found) = found else {
            return Ok(None);
        };
        let seen = self.side.seen(&found)?;
        let first = seen.shared.and_then(|file| {
            let first = self.first.entry(file).or_insert_with(|| path.into());
            (**first != *path).then(|| first.clone())
        });
        Ok(Some(One {
            found,
            seen,
            first,
            content: None,
        }))
    }

    fn half<'a>(&'a mut self, one: &'a mut One<S::Lookup>) -> Half<'a, S> {
        Half {
            side: &mut self.side,
            found: &mut one.found,
            size: one.seen.size,
        }
    }

    fn put(&mut self, one: Option<&One<S::Lookup>>, path: &[u8]) {
        match one {
            Some(One {
                first: Some(first), ..
            }) => self.hash.again(path, first),
            Some(one) => self.hash.entry(path, &one.seen, one.content),
            None => {}
        }
    }
}
