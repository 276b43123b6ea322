//! Iterates over a subtree of the trie in order.

use super::{NIL, Rib};
use crate::{Address, NextHop, Prefix};

/// Iterates over prefixes by address, shorter before longer.
#[derive(Clone, Debug)]
pub struct RibIter<'a, A> {
    rib: &'a Rib<A>,
    /// Nodes still to visit, the next one last.
    stack: Vec<u32>,
}

impl<'a, A: Address> RibIter<'a, A> {
    pub(super) fn new(rib: &'a Rib<A>, from: u32) -> Self {
        let stack = if from == NIL { vec![] } else { vec![from] };
        Self { rib, stack }
    }
}

impl<A: Address> Iterator for RibIter<'_, A> {
    type Item = (Prefix<A>, NextHop);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let at = self.stack.pop()?;
            let [left, right] = self.rib.node(at).children;
            self.stack
                .extend([right, left].iter().filter(|&&child| child != NIL));
            if let Some(route) = self.rib.route(at) {
                return Some(route);
            }
        }
    }
}
