//! Trees as trained: floating-point splits, with the comparison of the training program.

use serde::{Deserialize, Serialize};

use super::Error;

/// A classifier made of trees.
#[derive(Clone, Debug, PartialEq)]
pub struct Forest {
    /// The names of the inputs, in order; `None` if the model has none.
    pub names: Option<Vec<String>>,
    pub inputs: usize,
    /// The names of the classes; `None` if the model has none.
    pub labels: Option<Vec<String>>,
    pub classes: usize,
    pub compare: Compare,
    pub link: Link,
    /// The initial value of each output. For two classes there is one output, for the second class.
    pub base: Vec<f64>,
    pub trees: Vec<Tree>,
}

/// The comparison of a value with a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Left if `single(value) <= threshold`: scikit-learn.
    SingleAtMost,
    /// Left if `single(value) < single(threshold)`: XGBoost.
    SingleBelow,
    /// Left if `value <= threshold`: LightGBM, and scikit-learn's histogram trees.
    DoubleAtMost,
}

/// Converts the sums of the outputs to probabilities. All are monotone, so decisions are made on sums.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    /// The sum divided by the number of trees.
    Mean(u32),
    /// `1 / (1 + exp(-slope * sum))`, for each output separately.
    Sigmoid(f64),
    Softmax,
}

/// The nodes, root first.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    /// The output to which a leaf's first value is added.
    pub output: usize,
    pub nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    Split(Split),
    /// The values for one output, or for all outputs.
    Leaf(Vec<f64>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    pub feature: usize,
    pub threshold: f64,
    pub missing: Missing,
    pub left: usize,
    pub right: usize,
}

/// The direction of a missing value at a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The model does not define a direction.
    Unknown,
    Left,
    Right,
    /// A missing value counts as zero.
    Zero,
    /// Zero counts as missing, and both go left.
    ZeroLeft,
    ZeroRight,
}

impl Compare {
    /// Whether the value goes left.
    pub fn is_left(self, value: f64, threshold: f64) -> bool {
        match self {
            Self::SingleAtMost => f64::from(single(value)) <= threshold,
            Self::SingleBelow => single(value) < single(threshold),
            Self::DoubleAtMost => value <= threshold,
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "these programs keep their inputs in single precision"
)]
fn single(value: f64) -> f32 {
    value as f32
}

impl Link {
    /// The sum at which the second of two classes has this probability.
    pub fn sum_at(self, probability: f64) -> f64 {
        match self {
            Self::Mean(trees) => probability * f64::from(trees),
            Self::Sigmoid(slope) => (probability / (1.0 - probability)).ln() / slope,
            Self::Softmax => (probability / (1.0 - probability)).ln(),
        }
    }

    /// The probability of one output, given all sums.
    pub fn probability(self, sums: &[f64], output: usize) -> f64 {
        let sum = sums[output];
        match self {
            Self::Mean(trees) => sum / f64::from(trees),
            Self::Sigmoid(slope) => 1.0 / (1.0 + (-slope * sum).exp()),
            Self::Softmax => 1.0 / sums.iter().map(|other| (other - sum).exp()).sum::<f64>(),
        }
    }
}

impl Forest {
    /// Checks the structure of the trees. After it, every walk ends at a leaf. The error describes the defect.
    pub fn check(&self) -> Result<(), String> {
        let outputs = self.base.len();
        if outputs != outputs_of(self.classes) {
            return Err(format!("{} classes with {outputs} outputs", self.classes));
        }
        for (names, size) in [(&self.names, self.inputs), (&self.labels, self.classes)] {
            if let Some(names) = names
                && names.len() != size
            {
                return Err(format!("{} names for {size}", names.len()));
            }
        }
        if self.base.iter().any(|base| !base.is_finite()) {
            return Err("a base score that is no number".to_owned());
        }
        for (at, tree) in self.trees.iter().enumerate() {
            tree.check(self.inputs, outputs)
                .map_err(|why| format!("tree {at}: {why}"))?;
        }
        Ok(())
    }
}

/// The number of outputs: one for two classes, which belongs to the second.
pub(super) fn outputs_of(classes: usize) -> usize {
    if classes == 2 { 1 } else { classes }
}

/// The number of outputs, for a file with `trees` trees. A file may claim any number of classes, and each output needs
/// memory. Training programs save no output without trees, so a larger number is rejected.
pub(super) fn outputs_of_trees(classes: usize, trees: usize) -> Result<usize, Error> {
    let outputs = outputs_of(classes);
    if outputs > trees.max(1) {
        return Err(Error::model(&format!(
            "claims {classes} classes and has {trees} trees: each class has its own; save the whole model again"
        )));
    }
    Ok(outputs)
}

impl Tree {
    fn check(&self, inputs: usize, outputs: usize) -> Result<(), String> {
        if self.nodes.is_empty() {
            return Err("is empty".to_owned());
        }
        let mut seen = vec![false; self.nodes.len()];
        let mut waiting = vec![0];
        while let Some(at) = waiting.pop() {
            let node = self.nodes.get(at).ok_or("a child that is not there")?;
            if std::mem::replace(&mut seen[at], true) {
                return Err("a node with two parents".to_owned());
            }
            match node {
                Node::Split(split) if split.feature >= inputs => {
                    return Err(format!("asks for input {} of {inputs}", split.feature));
                }
                Node::Split(split) if split.threshold.is_nan() => {
                    return Err("a threshold that is no number".to_owned());
                }
                Node::Split(split) => waiting.extend([split.left, split.right]),
                Node::Leaf(values) => {
                    let last = self.output.saturating_add(values.len());
                    if values.is_empty() || last > outputs {
                        return Err("a leaf for outputs that are not there".to_owned());
                    }
                    if values.iter().any(|value| !value.is_finite()) {
                        return Err("a leaf that is no number".to_owned());
                    }
                }
            }
        }
        Ok(())
    }
}
