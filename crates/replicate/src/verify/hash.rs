//! The hash of a tree, for two sides that never see each other's bytes. It is defined in
//! docs/src/replicate-verify.md. Any change here results in another hash, so it must come with a
//! new number in [`TREE`].

use std::fmt;
use std::sync::LazyLock;

use super::side::Metadata;
use super::{BLOCK, Scope};
use crate::record::Kind;

/// The key derivation context for the hashes of nodes.
const NODE: &str = "lowroad replicate node 1";
/// The key derivation context for the hash of a tree.
const TREE: &str = "lowroad replicate tree 1";
/// The levels of nodes in a file of the largest size.
const LEVELS: usize = 48;

/// 32 bytes that are the same for equal trees. Displayed in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hash([u8; 32]);

/// The hashes of subtrees of 2^n blocks of zeros.
static ZEROS: LazyLock<[Hash; LEVELS]> = LazyLock::new(|| {
    let mut level = leaf(&vec![0; BLOCK]);
    std::array::from_fn(|_| {
        let above = node(level, level);
        std::mem::replace(&mut level, above)
    })
});

/// The hash of a block's bytes.
pub(super) fn leaf(bytes: &[u8]) -> Hash {
    Hash(*blake3::hash(bytes).as_bytes())
}

fn node(left: Hash, right: Hash) -> Hash {
    let mut hasher = blake3::Hasher::new_derive_key(NODE);
    hasher.update(&left.0).update(&right.0);
    Hash(*hasher.finalize().as_bytes())
}

/// The hash of a file's bytes, block by block. It is a binary tree: the left half has the largest
/// power of two of blocks that leaves at least one for the right half.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// The hashes of complete subtrees and their numbers of blocks. Each has fewer blocks than the
    /// one before.
    above: Vec<(u64, Hash)>,
    blocks: u64,
}

impl Content {
    pub(super) fn push(&mut self, leaf: Hash) {
        self.put(1, leaf);
    }

    /// Adds whole blocks of zeros.
    pub(super) fn zeros(&mut self, mut blocks: u64) {
        while blocks > 0 {
            let fits = blocks.ilog2().min(self.blocks.trailing_zeros());
            let Some(hash) = ZEROS.get(fits as usize) else {
                return;
            };
            self.put(1 << fits, *hash);
            blocks -= 1 << fits;
        }
    }

    pub(super) fn finish(mut self) -> Hash {
        let Some((_, mut right)) = self.above.pop() else {
            return leaf(&[]);
        };
        while let Some((_, left)) = self.above.pop() {
            right = node(left, right);
        }
        right
    }

    fn put(&mut self, mut blocks: u64, mut hash: Hash) {
        self.blocks += blocks;
        while let Some((_, left)) = self.above.pop_if(|(before, _)| *before == blocks) {
            hash = node(left, hash);
            blocks *= 2;
        }
        self.above.push((blocks, hash));
    }
}

/// The hash of a tree, entry by entry in the order of their paths.
#[derive(Debug)]
pub(super) struct Tree {
    hasher: blake3::Hasher,
    scope: Scope,
}

impl Tree {
    pub(super) fn new(scope: Scope) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(TREE);
        hasher.update(&[u8::from(scope.owners) | u8::from(scope.privileged) << 1]);
        Self { hasher, scope }
    }

    /// Adds a file under its only or first name. `content` is the hash of a regular file.
    pub(super) fn entry(&mut self, path: &[u8], seen: &Metadata, content: Option<Hash>) {
        self.bytes(path);
        self.hasher.update(&[number_of(&seen.kind)]);
        let attributes = &seen.attributes;
        self.hasher.update(&attributes.mode.to_le_bytes());
        if self.scope.owners {
            self.hasher.update(&attributes.uid.to_le_bytes());
            self.hasher.update(&attributes.gid.to_le_bytes());
        }
        self.hasher.update(&attributes.modified_ns.to_le_bytes());
        self.count(seen.extended.len());
        for (name, value) in &seen.extended {
            self.bytes(name);
            self.bytes(value);
        }
        match &seen.kind {
            Kind::Regular => {
                self.hasher.update(&seen.size.to_le_bytes());
                self.hasher.update(&content.unwrap_or_else(|| leaf(&[])).0);
            }
            Kind::Symlink(target) => self.bytes(target),
            Kind::CharacterDevice(device) | Kind::BlockDevice(device) => {
                self.hasher.update(&device.to_le_bytes());
            }
            Kind::Directory | Kind::Fifo | Kind::Socket => {}
        }
    }

    /// Adds another name of a file that was added before.
    pub(super) fn again(&mut self, path: &[u8], first: &[u8]) {
        self.bytes(path);
        self.hasher.update(&[0]);
        self.bytes(first);
    }

    pub(super) fn finish(&self) -> Hash {
        Hash(*self.hasher.finalize().as_bytes())
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.hasher.update(bytes);
    }

    fn count(&mut self, count: usize) {
        self.hasher.update(&(count as u64).to_le_bytes());
    }
}

fn number_of(kind: &Kind) -> u8 {
    match kind {
        Kind::Regular => 1,
        Kind::Directory => 2,
        Kind::Symlink(_) => 3,
        Kind::Fifo => 4,
        Kind::Socket => 5,
        Kind::CharacterDevice(_) => 6,
        Kind::BlockDevice(_) => 7,
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, implemented literally.
    fn plain(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => leaf(&[]),
            [one] => *one,
            more => {
                let left = more.len().next_power_of_two() / 2;
                node(plain(&more[..left]), plain(&more[left..]))
            }
        }
    }

    #[test]
    fn content_is_hashed_as_it_is_defined_with_zeros_skipped_or_not() {
        for blocks in 0..70u64 {
            for zeros in [0..0, 0..blocks, blocks / 3..blocks, 1..blocks / 2] {
                let mut content = Content::default();
                let mut leaves = Vec::new();
                for block in 0..blocks {
                    let hash = if zeros.contains(&block) {
                        ZEROS[0]
                    } else {
                        leaf(&block.to_le_bytes())
                    };
                    leaves.push(hash);
                }
                let mut at = 0;
                while at < blocks {
                    if zeros.contains(&at) {
                        content.zeros(zeros.end - at);
                        at = zeros.end;
                    } else {
                        content.push(leaf(&at.to_le_bytes()));
                        at += 1;
                    }
                }
                assert_eq!(content.finish(), plain(&leaves), "{blocks} {zeros:?}");
            }
        }
    }
}
