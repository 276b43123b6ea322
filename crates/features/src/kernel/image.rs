//! A compiled model as the kernel's programs read it: tree.h's `struct model`.

use std::collections::VecDeque;
use std::mem::offset_of;

use super::skel::Plain;
use super::skel::flow::types;
use crate::model::{Action, Error, IntegerNode, IntegerTree, Model};

/// The schema whose columns the kernel has.
const SCHEMA: &str = "tree.v1";
/// The limits of tree.h.
const DEPTH: usize = 16;
const TREES: usize = 32;
const NODES: usize = 16_384;
const VALUES: usize = 16_384;
pub(super) const CLASSES: usize = 8;
/// `enum tree_load`.
const PLAIN: u8 = 0;
const LEAF: u8 = 1;
const BOTH: u8 = 2;
const SPAN: u8 = 3;
const MEAN_LENGTH: u8 = 4;
const MEAN_TIME: u8 = 5;
const SOURCE_PORT: u8 = 6;
const DESTINATION_PORT: u8 = 7;

/// A model that the kernel can evaluate.
#[derive(Clone, Debug)]
pub struct Image(Box<types::model>);

impl PartialEq for Image {
    fn eq(&self, other: &Self) -> bool {
        self.0.bytes() == other.0.bytes()
    }
}

impl Eq for Image {}

impl Image {
    /// Refuses what is beyond the kernel's program, and says what is not.
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
        Ok(Self(image))
    }

    /// The whole of it, for one map entry.
    pub(super) fn record(&self, account: u32, shadow: bool, generation: u16) -> Box<types::model> {
        let mut model = self.0.clone();
        model.head.account = account;
        model.head.shadow = shadow.into();
        model.head.generation = generation;
        model
    }
}

fn check(model: &Model) -> Result<(), Error> {
    if model.schema != SCHEMA {
        return Err(Error::Rows(format!(
            "the model {} asks for columns of {}, and the kernel has those of {SCHEMA}: train on rows of it",
            model.name, model.schema
        )));
    }
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
    /// Level by level, each split's children side by side.
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

    /// That of a tree that is alone is a class, another for one output its value.
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

/// A node that is not passed without a question.
enum Step {
    /// Where its values start.
    Leaf(usize),
    Split {
        load: Load,
        threshold: u64,
        children: [usize; 2],
    },
}

impl Step {
    /// The node at this place, or the one that every flow comes to from there: no value is below 0, and
    /// none above the greatest.
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
            let id = &model.columns[input as usize].id;
            let load = load(id).ok_or_else(|| Error::Rows(format!("the kernel has no {id}")))?;
            at = match u64::try_from(threshold) {
                Err(_) => right,
                Ok(all) if all >= load.greatest() => left,
                Ok(threshold) => {
                    return Ok(Self::Split {
                        load,
                        threshold: load.threshold(threshold),
                        children: [left, right],
                    });
                }
            };
        }
    }
}

/// How the kernel reads a column.
#[derive(Clone, Copy)]
struct Load {
    kind: u8,
    place: usize,
    shift: u8,
}

impl Load {
    /// The greatest value there can be.
    fn greatest(self) -> u64 {
        let most = i64::MAX.unsigned_abs();
        match self.kind {
            PLAIN => most.min(u64::MAX >> self.shift),
            _ => most,
        }
    }

    /// As the kernel compares it: below a plain column are bits of others, which may be anything.
    fn threshold(self, threshold: u64) -> u64 {
        match self.kind {
            PLAIN => threshold << self.shift | ((1 << self.shift) - 1),
            _ => threshold,
        }
    }
}

/// The 64 bits that end where the column does.
fn plain(offset: usize, bits: u8) -> Load {
    Load {
        kind: PLAIN,
        place: offset + usize::from(bits / 8) - size_of::<u64>(),
        shift: 64 - bits,
    }
}

/// Where a column of `tree.v1` is in struct flow.
fn load(id: &str) -> Option<Load> {
    let name = id.strip_prefix("tree.v1/")?;
    let forward = offset_of!(types::flow, directions);
    let backward = forward + size_of::<types::direction>();
    if let Some(name) = name.strip_prefix("fwd_") {
        return of_direction(name, forward);
    }
    if let Some(name) = name.strip_prefix("bwd_") {
        return of_direction(name, backward);
    }
    let key = offset_of!(types::flow, key);
    let kind = |kind, place| Load {
        kind,
        place,
        shift: 0,
    };
    Some(match name {
        "ip_version" => plain(key + offset_of!(types::flow_key, version), 8),
        "protocol" => plain(key + offset_of!(types::flow_key, protocol), 8),
        "src_port" => kind(SOURCE_PORT, 0),
        "dst_port" => kind(DESTINATION_PORT, 0),
        "duration_ns" => kind(SPAN, offset_of!(types::flow, first_ns)),
        "idle_count" => plain(
            offset_of!(types::flow, periods)
                + offset_of!(types::periods, idle)
                + offset_of!(types::times, count),
            64,
        ),
        "subflow_gaps" => plain(
            offset_of!(types::flow, periods) + offset_of!(types::periods, subflow_gaps),
            64,
        ),
        "out_of_order" => plain(offset_of!(types::flow, out_of_order), 64),
        "packets" | "bytes" | "payload_bytes" | "fin_packets" | "syn_packets" | "rst_packets"
        | "psh_packets" | "ack_packets" | "urg_packets" | "ece_packets" | "cwr_packets" => Load {
            kind: BOTH,
            ..of_direction(name, forward)?
        },
        _ => of_gaps(name, offset_of!(types::flow, gaps))?,
    })
}

fn of_direction(name: &str, direction: usize) -> Option<Load> {
    let bulks = direction + offset_of!(types::direction, bulks);
    let wire = direction + offset_of!(types::direction, wire);
    let payload = direction + offset_of!(types::direction, payload);
    let (offset, bits) = match name {
        "packets" => (wire + offset_of!(types::lengths, count), 64),
        "bytes" => (wire + offset_of!(types::lengths, sum), 64),
        "payload_bytes" => (payload + offset_of!(types::lengths, sum), 64),
        "ip_bytes" => (direction + offset_of!(types::direction, ip_bytes), 64),
        "payload_packets" => (
            direction + offset_of!(types::direction, payload_packets),
            64,
        ),
        "bulks" => (bulks + offset_of!(types::bulks, count), 64),
        "bulk_packets" => (bulks + offset_of!(types::bulks, packets), 64),
        "ttl_min" => (direction + offset_of!(types::direction, min_ttl), 8),
        "ttl_max" => (direction + offset_of!(types::direction, max_ttl), 8),
        "tos" => (direction + offset_of!(types::direction, tos), 8),
        "first_window" => (direction + offset_of!(types::direction, first_window), 16),
        "last_window" => (direction + offset_of!(types::direction, last_window), 16),
        "duration_ns" => {
            return Some(Load {
                kind: SPAN,
                place: direction + offset_of!(types::direction, first_ns),
                shift: 0,
            });
        }
        _ => {
            let flags = direction + offset_of!(types::direction, flags);
            let gaps = direction + offset_of!(types::direction, gaps);
            return of_flags(name, flags)
                .or_else(|| of_lengths(name.strip_prefix("frame_")?, wire))
                .or_else(|| of_lengths(name.strip_prefix("payload_")?, payload))
                .or_else(|| of_gaps(name, gaps));
        }
    };
    Some(plain(offset, bits))
}

/// Packets with a TCP flag, in the order of the bits.
fn of_flags(name: &str, flags: usize) -> Option<Load> {
    const FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];
    let flag = name.strip_suffix("_packets")?;
    let bit = FLAGS.iter().position(|name| *name == flag)?;
    Some(plain(flags + bit * size_of::<u32>(), 32))
}

fn of_lengths(name: &str, lengths: usize) -> Option<Load> {
    Some(match name {
        "min" => plain(lengths + offset_of!(types::lengths, min), 32),
        "max" => plain(lengths + offset_of!(types::lengths, max), 32),
        "mean_q8" => Load {
            kind: MEAN_LENGTH,
            place: lengths,
            shift: 0,
        },
        _ => return None,
    })
}

fn of_gaps(name: &str, gaps: usize) -> Option<Load> {
    Some(match name {
        "iat_min_ns" => plain(gaps + offset_of!(types::times, min), 64),
        "iat_max_ns" => plain(gaps + offset_of!(types::times, max), 64),
        "iat_mean_ns" => Load {
            kind: MEAN_TIME,
            place: gaps,
            shift: 0,
        },
        _ => return None,
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;

    #[test]
    fn the_kernel_has_every_column() {
        for column in schema::find(SCHEMA).unwrap().columns() {
            let id = format!("{SCHEMA}/{}", column.name);
            let load = load(&id).unwrap_or_else(|| panic!("{id}"));
            assert!(load.place + size_of::<u64>() <= size_of::<types::flow>());
            assert!(load.place < 1024, "{id}");
        }
    }
}
