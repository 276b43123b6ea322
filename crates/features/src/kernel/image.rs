//! A compiled model in the layout that the kernel's programs read: `struct model` of tree.h.

use std::collections::VecDeque;

use super::columns::{LEAF, Load, Source};
use super::skel::Plain;
use super::skel::flow::types;
use crate::model::{Action, Column, Error, IntegerNode, IntegerTree, Model};
use crate::schema::{self, Rules};

/// The limits of tree.h.
const DEPTH: usize = 16;
const TREES: usize = 32;
const NODES: usize = 16_384;
const VALUES: usize = 16_384;
pub(super) const CLASSES: usize = 8;

/// A model that the kernel can evaluate.
#[derive(Clone, Debug)]
pub struct Image {
    model: Box<types::model>,
    name: String,
    classes: Vec<String>,
    /// The rules for flows in the model's training data.
    rules: Rules,
}

impl PartialEq for Image {
    fn eq(&self, other: &Self) -> bool {
        self.model.bytes() == other.model.bytes() && self.classes == other.classes
    }
}

impl Eq for Image {}

impl Image {
    /// Compiles a model.
    ///
    /// # Errors
    /// The model exceeds the limits of the kernel's program. The error names the limit.
    pub fn of(model: &Model) -> Result<Self, Error> {
        check(model)?;
        let mut layout = Layout::default();
        let trees = model.forest.trees.iter();
        let roots = trees.map(|tree| layout.tree(model, tree));
        let roots = roots.collect::<Result<Vec<_>, _>>()?;
        let mut image = types::model::zeroed();
        image.head = head(model);
        image.trees[..roots.len()].copy_from_slice(&roots);
        image.nodes[..layout.nodes.len()].copy_from_slice(&layout.nodes);
        image.values[..layout.values.len()].copy_from_slice(&layout.values);
        Ok(Self {
            model: image,
            name: model.name.clone(),
            classes: model
                .classes
                .iter()
                .map(|class| class.name.clone())
                .collect(),
            rules: schema::find(&model.schema).map_or(Rules::Own, |schema| schema.rules),
        })
    }

    /// The class names, in the order of the class numbers.
    pub(super) fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Checks that flows are made by the rules of the training data.
    pub(super) fn check_rules(&self, rules: Rules) -> Result<(), datapath::Error> {
        if self.rules == Rules::Own || self.rules == rules {
            return Ok(());
        }
        Err(datapath::Error::Plan(format!(
            "the model {} was trained on flows that end and are told apart as in nfstream.v1: use --schema nfstream.v1",
            self.name
        )))
    }

    /// The complete record for a map entry.
    pub(super) fn record(&self, account: u32, shadow: bool, generation: u16) -> Box<types::model> {
        let mut model = self.model.clone();
        model.head.account = account;
        model.head.shadow = shadow.into();
        model.head.generation = generation;
        model
    }
}

fn check(model: &Model) -> Result<(), Error> {
    let forest = &model.forest;
    let wide = forest.trees.iter().filter(|tree| tree.width > 1);
    let values = wide.map(|tree| tree.leaves() * tree.width as usize).sum();
    for (what, has, most) in [
        ("trees", forest.trees.len(), TREES),
        ("splits in a row", forest.depth(), DEPTH),
        ("nodes", forest.nodes(), NODES),
        ("numbers in its leaves", values, VALUES),
        ("classes", model.classes.len(), CLASSES),
    ] {
        if has > most {
            return Err(Error::Rows(format!(
                "the model {} has {has} {what}, and the kernel evaluates at most {most}; lowroad features score has no such limit",
                model.name
            )));
        }
    }
    Ok(())
}

fn head(model: &Model) -> types::model_head {
    let mut base = [0; CLASSES];
    base[..model.forest.base.len()].copy_from_slice(&model.forest.base);
    let mut classes = [types::tree_class::default(); CLASSES];
    for (to, class) in classes.iter_mut().zip(&model.classes) {
        let argument = match class.action {
            Action::Pass | Action::Drop => 0,
            Action::Sample { one_in } => one_in,
            Action::Mark { dscp } => dscp.into(),
        };
        to.action = small(class.action.number());
        to.argument = argument;
    }
    types::model_head {
        base,
        bound: model.forest.bound,
        outputs: number(model.forest.base.len()),
        trees: number(model.forest.trees.len()),
        first_packet: model.packets.first,
        last_packet: model.packets.last,
        classes,
        ..types::model_head::default()
    }
}

#[derive(Default)]
struct Layout {
    nodes: Vec<types::tree_node>,
    values: Vec<i64>,
}

impl Layout {
    /// Lays out a tree level by level, with the children of each split side by side.
    fn tree(&mut self, model: &Model, tree: &IntegerTree) -> Result<types::tree, Error> {
        let root = self.nodes.len();
        let mut pending = VecDeque::from([(0, root)]);
        self.nodes.push(types::tree_node::default());
        while let Some((from, to)) = pending.pop_front() {
            self.nodes[to] = match Step::from(model, tree, from)? {
                Step::Leaf(values) => types::tree_node {
                    threshold: self.leaf(model, tree, values).cast_unsigned(),
                    load: LEAF,
                    ..types::tree_node::default()
                },
                Step::Split {
                    load,
                    threshold,
                    children,
                } => {
                    let left = self.nodes.len();
                    pending.extend(children.into_iter().zip(left..));
                    self.nodes.extend([types::tree_node::default(); 2]);
                    types::tree_node {
                        threshold,
                        place: place(load.place),
                        load: load.kind,
                        shift: load.shift,
                        left: number(left * size_of::<types::tree_node>()),
                    }
                }
            };
            if self.nodes.len() > NODES {
                return Err(Error::Rows(format!(
                    "the trees of the model {} have nodes with several parents, and more than {NODES} nodes without",
                    model.name
                )));
            }
            if self.values.len() > VALUES {
                return Err(Error::Rows(format!(
                    "the trees of the model {} have leaves with several parents, and more than {VALUES} numbers without",
                    model.name
                )));
            }
        }
        Ok(types::tree {
            root: place(root),
            output: small(tree.output as usize),
            width: small(tree.width as usize),
        })
    }

    /// The content of a leaf: the class if the model has a single tree, the value if there is only one, else the index
    /// of the values.
    fn leaf(&mut self, model: &Model, tree: &IntegerTree, at: usize) -> i64 {
        let forest = &model.forest;
        let values = &forest.values[at..at + tree.width as usize];
        if forest.trees.len() == 1 {
            let mut sums = forest.base.clone();
            for (sum, value) in sums[tree.output as usize..].iter_mut().zip(values) {
                *sum += value;
            }
            return number(forest.class(&sums)).into();
        }
        if let [one] = values {
            return *one;
        }
        let at = self.values.len();
        self.values.extend_from_slice(values);
        number(at).into()
    }
}

/// A node that depends on the flow.
enum Step {
    /// The index of its values.
    Leaf(usize),
    Split {
        load: Load,
        threshold: u64,
        children: [usize; 2],
    },
}

impl Step {
    /// The node at this index. A split whose outcome is the same for all loadable values is skipped.
    fn from(model: &Model, tree: &IntegerTree, mut at: usize) -> Result<Self, Error> {
        loop {
            let (input, threshold, left, right) = match tree.nodes[at] {
                IntegerNode::Leaf(values) => return Ok(Self::Leaf(values as usize)),
                IntegerNode::Split {
                    input,
                    threshold,
                    left,
                    right,
                    ..
                } => (input, threshold, left as usize, right as usize),
            };
            let source = source(model, &model.columns[input as usize])?;
            at = match source.greatest_at_most(threshold) {
                None => right,
                Some(all) if all >= source.load.greatest() => left,
                Some(threshold) => {
                    return Ok(Self::Split {
                        load: source.load,
                        threshold: source.load.threshold(threshold),
                        children: [left, right],
                    });
                }
            };
        }
    }
}

/// The source in the kernel of the column that a split tests.
fn source(model: &Model, column: &Column) -> Result<Source, Error> {
    let Column { id, null, .. } = column;
    let name = &model.name;
    let source = Source::of(id).ok_or_else(|| {
        Error::Rows(format!(
            "the model {name} asks for {id}, which the kernel does not have: train without it, or on tree.v1"
        ))
    })?;
    if source.may_be_null && *null != Some(0) {
        return Err(Error::Rows(format!(
            "the model {name} asks for {id}, which the kernel has as 0 where rows have null: train with 0 in its place, and name the column {{ id = \"{id}\", null = 0 }}"
        )));
    }
    Ok(source)
}

fn number(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn place(value: usize) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

fn small(value: usize) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}
