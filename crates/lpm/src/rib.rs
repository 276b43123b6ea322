//! The authoritative set of prefixes and their next hops: a path-compressed binary trie in one
//! array, and a hash table by which known prefixes are found without walking down. It answers what a
//! table for lookup needs to know when a prefix comes or goes.

mod iter;

use std::hash::BuildHasher;
use std::ops::RangeInclusive;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::{Address, NextHop, Prefix};

pub use iter::RibIter;

/// No node.
const NIL: u32 = u32::MAX;
/// The node of the prefix of all addresses, which always exists.
const ROOT: u32 = 0;

/// Prefixes with one next hop each. A node takes 16 bytes for IPv4 and 32 for IPv6, and there are
/// at most two nodes to a prefix, which takes another 6 to 12 bytes.
#[derive(Clone, Debug)]
pub struct Rib<A> {
    nodes: Vec<Node<A>>,
    /// Unused nodes, linked by their first child.
    free: u32,
    /// Finds the nodes that are prefixes by the prefix.
    index: HashTable<u32>,
    hasher: RandomState,
}

/// A prefix, or the point where two part.
#[derive(Clone, Copy, Debug)]
struct Node<A> {
    address: A,
    children: [u32; 2],
    hop: Option<NextHop>,
    len: u8,
}

/// The effect of an insertion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Insertion {
    /// The prefix's next hop before.
    pub(crate) before: Option<NextHop>,
    /// The prefixes within it.
    pub(crate) subtree: Subtree,
}

/// The effect of a removal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Removal {
    /// The prefix's next hop before.
    pub(crate) before: Option<NextHop>,
    /// The length and next hop of the longest shorter prefix that covers it.
    pub(crate) above: Option<(u8, NextHop)>,
    /// The prefixes within it.
    pub(crate) subtree: Subtree,
}

/// The node at the top of a subtree, or none. It is valid until the next change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subtree(u32);

impl<A: Address> Default for Rib<A> {
    fn default() -> Self {
        Self {
            nodes: vec![Node::new(Prefix::DEFAULT, None)],
            free: NIL,
            index: HashTable::new(),
            hasher: RandomState::default(),
        }
    }
}

impl<A: Address> Rib<A> {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a prefix or replaces its next hop; returns the one it had.
    pub fn insert(&mut self, prefix: Prefix<A>, hop: NextHop) -> Option<NextHop> {
        self.insert_route(prefix, hop).before
    }

    /// Withdraws a prefix; returns the next hop it had.
    pub fn remove(&mut self, prefix: Prefix<A>) -> Option<NextHop> {
        self.remove_route(prefix)?.before
    }

    /// The next hop of exactly this prefix.
    pub fn get(&self, prefix: Prefix<A>) -> Option<NextHop> {
        self.node(self.find(prefix)?).hop
    }

    /// The longest prefix that holds the address, and its next hop.
    pub fn lookup(&self, address: A) -> Option<(Prefix<A>, NextHop)> {
        let path = self.path(Prefix::cut(address, A::BITS));
        path.filter_map(|at| self.route(at)).last()
    }

    /// The longest prefix that covers `prefix` and is shorter.
    pub fn parent(&self, prefix: Prefix<A>) -> Option<(Prefix<A>, NextHop)> {
        let path = self.path(prefix).filter_map(|at| self.route(at));
        path.take_while(|(found, _)| found.len() < prefix.len())
            .last()
    }

    /// All prefixes, by address, shorter before longer.
    pub fn iter(&self) -> RibIter<'_, A> {
        RibIter::new(self, ROOT)
    }

    /// The prefixes that `prefix` covers, itself included, in the order of `iter`.
    pub fn covered(&self, prefix: Prefix<A>) -> RibIter<'_, A> {
        RibIter::new(self, self.subtree(prefix).0)
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node<A>>() + self.index.allocation_size()
    }

    /// Calls `visit` with each prefix within whose length is in `lens` and that no other such one
    /// covers, in order.
    pub(crate) fn outermost(
        &self,
        subtree: Subtree,
        lens: RangeInclusive<u8>,
        visit: &mut impl FnMut(Prefix<A>),
    ) {
        if subtree.0 == NIL {
            return;
        }
        let node = self.node(subtree.0);
        if node.len > *lens.end() {
            return;
        }
        if node.hop.is_some() && node.len >= *lens.start() {
            return visit(node.prefix());
        }
        for child in node.children {
            self.outermost(Subtree(child), lens.clone(), visit);
        }
    }

    /// Whether a prefix longer than `prefix` lies within it.
    pub(crate) fn is_divided(&self, prefix: Prefix<A>) -> bool {
        let Subtree(at) = self.subtree(prefix);
        at != NIL && {
            let node = self.node(at);
            node.len > prefix.len() || node.children != [NIL; 2]
        }
    }

    /// The topmost node within a prefix.
    pub(crate) fn subtree(&self, prefix: Prefix<A>) -> Subtree {
        let Some(last) = self.path(prefix).last() else {
            return Subtree(NIL);
        };
        let node = self.node(last);
        if node.len == prefix.len() {
            return Subtree(last);
        }
        let child = node.children[usize::from(prefix.first().bit(node.len))];
        let inside = child != NIL && prefix.covers(self.node(child).prefix());
        Subtree(if inside { child } else { NIL })
    }

    /// As `insert`.
    pub(crate) fn insert_route(&mut self, prefix: Prefix<A>, hop: NextHop) -> Insertion {
        if let Some(at) = self.find(prefix) {
            let before = self.nodes[at as usize].hop.replace(hop);
            let subtree = Subtree(at);
            return Insertion { before, subtree };
        }
        let mut at = ROOT;
        loop {
            let node = self.node(at);
            if node.len == prefix.len() {
                return self.assign(at, hop);
            }
            let side = usize::from(prefix.first().bit(node.len));
            let child = node.children[side];
            if child == NIL {
                let leaf = self.allocate(Node::new(prefix, None));
                self.nodes[at as usize].children[side] = leaf;
                return self.assign(leaf, hop);
            }
            let below = self.node(child).prefix();
            let shared = prefix.first().common(below.first());
            if below.len() <= shared.min(prefix.len()) {
                at = child;
                continue;
            }
            let fork = Prefix::cut(prefix.first(), shared.min(prefix.len()));
            let mut node = Node::new(fork, None);
            node.children[usize::from(below.first().bit(fork.len()))] = child;
            let new = self.allocate(node);
            self.nodes[at as usize].children[side] = new;
            at = new;
        }
    }

    /// As `remove`; nothing when there is no such prefix.
    pub(crate) fn remove_route(&mut self, prefix: Prefix<A>) -> Option<Removal> {
        let mut above = None;
        let (mut grandparent, mut parent, mut at) = (NIL, NIL, ROOT);
        loop {
            let node = self.node(at);
            if node.len == prefix.len() {
                break;
            }
            above = node.hop.map(|hop| (node.len, hop)).or(above);
            (grandparent, parent) = (parent, at);
            at = node.children[usize::from(prefix.first().bit(node.len))];
            if at == NIL || !self.node(at).prefix().covers(prefix) {
                return None;
            }
        }
        let before = self.nodes[at as usize].hop.take();
        before?;
        self.unindex(at, prefix);
        let subtree = self.prune(parent, at);
        if subtree == NIL {
            self.prune(grandparent, parent);
        }
        Some(Removal {
            before,
            above,
            subtree: Subtree(subtree),
        })
    }

    /// Makes a node that was none a prefix.
    fn assign(&mut self, at: u32, hop: NextHop) -> Insertion {
        let before = self.nodes[at as usize].hop.replace(hop);
        let (nodes, hasher) = (&self.nodes, &self.hasher);
        let hash = |at: &u32| hasher.hash_one(nodes[*at as usize].key());
        self.index.insert_unique(hash(&at), at, hash);
        let subtree = Subtree(at);
        Insertion { before, subtree }
    }

    /// The node of exactly this prefix.
    fn find(&self, prefix: Prefix<A>) -> Option<u32> {
        let key = (prefix.first(), prefix.len());
        let is_it = |at: &u32| self.node(*at).key() == key;
        self.index.find(self.hasher.hash_one(key), is_it).copied()
    }

    fn unindex(&mut self, at: u32, prefix: Prefix<A>) {
        let hash = self.hasher.hash_one((prefix.first(), prefix.len()));
        if let Ok(entry) = self.index.find_entry(hash, |node| *node == at) {
            entry.remove();
        }
    }

    /// Takes a node out that stands for nothing; returns the topmost node that is left there.
    fn prune(&mut self, parent: u32, at: u32) -> u32 {
        let node = self.node(at);
        let [left, right] = node.children;
        if node.hop.is_some() || parent == NIL || (left != NIL && right != NIL) {
            return at;
        }
        let rest = if left == NIL { right } else { left };
        let siblings = &mut self.nodes[parent as usize].children;
        let side = usize::from(siblings[1] == at);
        siblings[side] = rest;
        self.nodes[at as usize].children[0] = self.free;
        self.free = at;
        rest
    }

    fn allocate(&mut self, node: Node<A>) -> u32 {
        if self.free != NIL {
            let at = self.free;
            self.free = self.node(at).children[0];
            self.nodes[at as usize] = node;
            return at;
        }
        self.nodes.push(node);
        u32::try_from(self.nodes.len() - 1).expect("fewer prefixes than would fill 64 GiB")
    }

    /// The nodes that cover a prefix, from the root on.
    fn path(&self, prefix: Prefix<A>) -> impl Iterator<Item = u32> {
        let below = move |&at: &u32| {
            let node = self.node(at);
            if node.len == prefix.len() {
                return None;
            }
            let child = node.children[usize::from(prefix.first().bit(node.len))];
            (child != NIL && self.node(child).prefix().covers(prefix)).then_some(child)
        };
        std::iter::successors(Some(ROOT), below)
    }

    fn node(&self, at: u32) -> &Node<A> {
        &self.nodes[at as usize]
    }

    fn route(&self, at: u32) -> Option<(Prefix<A>, NextHop)> {
        let node = self.node(at);
        Some((node.prefix(), node.hop?))
    }
}

impl<A: Address> Node<A> {
    fn new(prefix: Prefix<A>, hop: Option<NextHop>) -> Self {
        Self {
            address: prefix.first(),
            children: [NIL; 2],
            hop,
            len: prefix.len(),
        }
    }

    fn key(&self) -> (A, u8) {
        (self.address, self.len)
    }

    fn prefix(&self) -> Prefix<A> {
        Prefix::cut(self.address, self.len)
    }
}

impl<A: Address> FromIterator<(Prefix<A>, NextHop)> for Rib<A> {
    /// If a prefix comes twice, the later next hop counts.
    fn from_iter<I: IntoIterator<Item = (Prefix<A>, NextHop)>>(routes: I) -> Self {
        let mut rib = Self::new();
        for (prefix, hop) in routes {
            rib.insert(prefix, hop);
        }
        rib
    }
}

impl<'a, A: Address> IntoIterator for &'a Rib<A> {
    type Item = (Prefix<A>, NextHop);
    type IntoIter = RibIter<'a, A>;

    fn into_iter(self) -> RibIter<'a, A> {
        self.iter()
    }
}

#[cfg(test)]
mod tests;
