//! Integer trees, which userspace and the kernel evaluate with equal results.
//!
//! Inputs are 64-bit integers, thresholds lie between them, and leaves are fixed-point numbers with a common scale. The
//! sums are exact, so the order of the trees does not matter.

use serde::{Deserialize, Serialize};

/// The value of a missing input.
pub const MISSING: i64 = i64::MIN;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntegerForest {
    /// An integer n represents n / 2^scale.
    pub scale: u32,
    pub base: Vec<i64>,
    /// With two classes, a sum above this is the second class.
    pub bound: i64,
    pub trees: Vec<IntegerTree>,
    /// The values that leaves add. Each leaf has as many as its tree has outputs.
    pub values: Vec<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntegerTree {
    /// The first output to which its leaves add.
    pub output: u32,
    pub width: u32,
    pub nodes: Vec<IntegerNode>,
}

/// Children are stored after their parents, so every walk ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum IntegerNode {
    Split {
        input: u32,
        /// Values up to this one go left.
        threshold: i64,
        missing_left: bool,
        left: u32,
        right: u32,
    },
    /// The index of its values.
    Leaf(u32),
}

impl IntegerForest {
    /// Returns the class of these inputs, and stores the sums of the outputs in `sums`.
    pub fn decide(&self, inputs: &[i64], sums: &mut Vec<i64>) -> usize {
        sums.clear();
        sums.extend_from_slice(&self.base);
        for tree in &self.trees {
            let at = tree.leaf(inputs);
            let values = &self.values[at..at + index(tree.width)];
            for (sum, value) in sums[index(tree.output)..].iter_mut().zip(values) {
                *sum += value;
            }
        }
        self.class(sums)
    }

    /// The class for these sums of the outputs.
    pub(crate) fn class(&self, sums: &[i64]) -> usize {
        match sums {
            [sum] => usize::from(*sum > self.bound),
            many => first_of_greatest(many),
        }
    }

    /// The number of splits on the longest path from a root to a leaf.
    pub fn depth(&self) -> usize {
        self.trees.iter().map(IntegerTree::depth).max().unwrap_or(0)
    }

    pub fn nodes(&self) -> usize {
        self.trees.iter().map(|tree| tree.nodes.len()).sum()
    }

    /// Checks that the trees can be evaluated. The error describes the defect.
    pub(super) fn check(&self, inputs: usize) -> Result<(), String> {
        for tree in &self.trees {
            let end = index(tree.output) + index(tree.width);
            if tree.width == 0 || end > self.base.len() || tree.nodes.is_empty() {
                return Err("a tree for outputs that are not there".to_owned());
            }
            for (at, node) in tree.nodes.iter().enumerate() {
                self.check_node(tree, at, *node, inputs)?;
            }
        }
        let most = self.trees.iter().map(|tree| self.greatest(tree));
        let base = self.base.iter().map(|base| base.unsigned_abs()).max();
        let sum: u128 = most.chain(base).map(u128::from).sum();
        if sum > u128::from(i64::MAX.unsigned_abs()) {
            return Err("sums of leaves that are beyond 64 bits".to_owned());
        }
        Ok(())
    }

    fn check_node(
        &self,
        tree: &IntegerTree,
        at: usize,
        node: IntegerNode,
        inputs: usize,
    ) -> Result<(), String> {
        let is_there = |child: u32| index(child) > at && index(child) < tree.nodes.len();
        let fine = match node {
            IntegerNode::Split {
                input, left, right, ..
            } => index(input) < inputs && is_there(left) && is_there(right),
            IntegerNode::Leaf(values) => {
                index(values).saturating_add(index(tree.width)) <= self.values.len()
            }
        };
        if fine {
            Ok(())
        } else {
            Err(format!("node {at} names what is not there"))
        }
    }

    fn greatest(&self, tree: &IntegerTree) -> u64 {
        let leaves = tree.nodes.iter().filter_map(|node| match node {
            IntegerNode::Leaf(at) => Some(index(*at)..index(*at) + index(tree.width)),
            IntegerNode::Split { .. } => None,
        });
        let values = leaves.flat_map(|leaf| self.values[leaf].iter());
        values.map(|value| value.unsigned_abs()).max().unwrap_or(0)
    }
}

impl IntegerTree {
    pub fn leaves(&self) -> usize {
        let leaf = |node: &&IntegerNode| matches!(node, IntegerNode::Leaf(_));
        self.nodes.iter().filter(leaf).count()
    }

    /// The index of the values of the leaf for these inputs.
    fn leaf(&self, inputs: &[i64]) -> usize {
        let mut at = 0;
        loop {
            match self.nodes[at] {
                IntegerNode::Leaf(values) => return index(values),
                IntegerNode::Split {
                    input,
                    threshold,
                    missing_left,
                    left,
                    right,
                } => {
                    let value = inputs[index(input)];
                    let goes_left = if value == MISSING {
                        missing_left
                    } else {
                        value <= threshold
                    };
                    at = index(if goes_left { left } else { right });
                }
            }
        }
    }

    fn depth(&self) -> usize {
        let mut depths = vec![0; self.nodes.len()];
        let mut deepest = 0;
        for (at, node) in self.nodes.iter().enumerate() {
            deepest = deepest.max(depths[at]);
            if let IntegerNode::Split { left, right, .. } = *node {
                let below = depths[at] + 1;
                for child in [left, right] {
                    let depth = &mut depths[index(child)];
                    *depth = below.max(*depth);
                }
            }
        }
        deepest
    }
}

fn first_of_greatest(sums: &[i64]) -> usize {
    let mut best = 0;
    for (at, sum) in sums.iter().enumerate() {
        if *sum > sums[best] {
            best = at;
        }
    }
    best
}

pub(super) fn index(number: u32) -> usize {
    number as usize
}
