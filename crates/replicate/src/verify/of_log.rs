//! Reads the tree of a log.

use super::Scope;
use super::side::{Fault, Metadata, Side};
use crate::contents::{Contents, Source};
use crate::record::{Attributes, File, Kind, Name};
use crate::tree::{Node, Tree};

/// The mode bits with which a program runs as the file's owner or group.
const SET_ID: u16 = 0o6000;
const HARMLESS: &[u8] = b"user.";
const NOTHING: Attributes = Attributes {
    mode: 0,
    uid: 0,
    gid: 0,
    modified_ns: 0,
};

#[derive(Debug)]
pub(super) struct OfLog<'a> {
    tree: &'a Tree,
    contents: &'a Contents,
    scope: Scope,
    source: Source,
}

impl<'a> OfLog<'a> {
    pub(super) fn new(tree: &'a Tree, contents: &'a Contents, scope: Scope) -> Self {
        Self {
            tree,
            contents,
            scope,
            source: Source::default(),
        }
    }

    fn node(&self, file: File) -> Result<&'a Node, Fault> {
        self.tree.get(file).ok_or(Fault::Nothing)
    }
}

impl Side for OfLog<'_> {
    type Lookup = File;

    fn root(&mut self) -> Result<File, Fault> {
        self.tree.root().ok_or(Fault::Nothing)
    }

    fn names(&mut self, directory: &File) -> Result<Vec<Name>, Fault> {
        let children = self.tree.children(*directory);
        Ok(children.map(|(name, _)| name.clone()).collect())
    }

    fn find(&mut self, directory: &File, name: &Name) -> Result<Option<File>, Fault> {
        let Some(file) = self.tree.child(*directory, name) else {
            return Ok(None);
        };
        Ok(self.scope.has(&self.node(file)?.kind).then_some(file))
    }

    fn seen(&mut self, file: &File) -> Result<Metadata, Fault> {
        let node = self.node(*file)?;
        let shared = node.names.len() > 1;
        let seen = Metadata {
            kind: node.kind.clone(),
            attributes: node.attributes.unwrap_or(NOTHING),
            extended: node.extended.clone(),
            size: node.size,
            shared: shared.then_some((file.inode, file.generation.into())),
            changed_ns: 0,
        };
        Ok(self.scope.narrow(seen))
    }

    fn data_from(&mut self, file: &mut File, at: u64) -> Result<Option<u64>, Fault> {
        let extents = self.contents.get(*file);
        Ok(extents.and_then(|extents| extents.data_from(at)))
    }

    fn read(&mut self, file: &mut File, at: u64, into: &mut [u8]) -> Result<(), Fault> {
        into.fill(0);
        match self.contents.get(*file) {
            Some(extents) => Ok(extents.fill(&mut self.source, at, into)?),
            None => Ok(()),
        }
    }

    fn changed(&mut self, _: &File, _: &Metadata) -> Result<bool, Fault> {
        Ok(false)
    }
}

impl Scope {
    /// Whether files of this kind are part of the tree.
    pub(super) fn has(self, kind: &Kind) -> bool {
        let device = matches!(kind, Kind::CharacterDevice(_) | Kind::BlockDevice(_));
        self.privileged || !device
    }

    /// Whether an extended attribute with this name is compared.
    pub(super) fn compares(self, name: &[u8]) -> bool {
        self.privileged || name.starts_with(HARMLESS)
    }

    /// Removes what is not compared.
    pub(super) fn narrow(self, mut seen: Metadata) -> Metadata {
        if !self.privileged && seen.kind != Kind::Directory {
            seen.attributes.mode &= !SET_ID;
        }
        seen.extended.retain(|(name, _)| self.compares(name));
        if matches!(seen.kind, Kind::Symlink(_)) {
            // A symbolic link has no mode on Linux, and no call sets one.
            seen.attributes.mode = 0;
        }
        if !self.owners {
            (seen.attributes.uid, seen.attributes.gid) = (0, 0);
        }
        seen
    }
}
