//! `TreeEnsembleClassifier`: what tract takes on trust is looked at first, and a base score that it does not
//! read goes into the first tree's leaves.

use std::collections::{HashMap, HashSet};

use tract_onnx::pb::NodeProto;

use crate::plain::attribute;

/// A node's tree and number, as the file has them.
type Id = (i64, i64);

/// Where a walk goes on; nowhere from a leaf.
type Children = Option<[i64; 2]>;

/// Errors go on after the operator's name.
pub(crate) fn mend(node: &mut NodeProto) -> Result<(), String> {
    if attribute(node, "nodes_values_as_tensor").is_some() {
        return Err("has double precision: export it with inputs of single precision".to_owned());
    }
    let nodes = nodes(node)?;
    walk(&nodes)?;
    let leaves = ids(node, "class_treeids", "class_nodeids")?;
    let classes = ints(node, "classlabels_int64s").len();
    let class_of = ints(node, "class_ids");
    let weights = attribute(node, "class_weights").map_or(0, |weights| weights.floats.len());
    if leaves.len() != class_of.len() || leaves.len() != weights {
        return Err("has leaves without all of their parts".to_owned());
    }
    let is_class = |class: &i64| usize::try_from(*class).is_ok_and(|class| class < classes);
    let is_leaf = |leaf: &Id| nodes.get(leaf) == Some(&None);
    if !class_of.iter().all(is_class) || !leaves.iter().all(is_leaf) {
        return Err("has a leaf or a class that is not there".to_owned());
    }
    if classes == 2 && class_of.windows(2).all(|two| two[0] == two[1]) {
        let is_first = |(id, children): &(&Id, &Children)| id.0 == 0 && children.is_none();
        let first = nodes.iter().filter(is_first).count();
        return second_alone(node, &leaves, first);
    }
    let base = attribute(node, "base_values").map_or(classes, |base| base.floats.len());
    if base != classes {
        return Err(format!("has {base} base values for {classes} classes"));
    }
    Ok(())
}

/// Of two classes the leaves may speak of the second alone: it is then the only one they name, and has the
/// only base score.
fn second_alone(node: &mut NodeProto, leaves: &[Id], first: usize) -> Result<(), String> {
    let link = attribute(node, "post_transform").map(|link| link.s.as_slice());
    if !matches!(link, None | Some(b"NONE" | b"LOGISTIC")) {
        return Err("has one sum for two classes, and no LOGISTIC".to_owned());
    }
    let base = attribute(node, "base_values").map_or(&[][..], |base| &base.floats);
    let base = match base {
        [] => 0.0,
        [base] => *base,
        _ => return Err("has several base values for one sum".to_owned()),
    };
    let in_first: HashSet<i64> = leaves
        .iter()
        .filter_map(|(tree, node)| (*tree == 0).then_some(*node))
        .collect();
    let values = leaves.iter().filter(|(tree, _)| *tree == 0).count();
    if values != first || in_first.len() != first {
        return Err("has a leaf without its one value".to_owned());
    }
    node.attribute
        .retain(|attribute| attribute.name != "base_values");
    for attribute in &mut node.attribute {
        match attribute.name.as_str() {
            "class_ids" => attribute.ints.fill(0),
            "class_weights" => {
                let weights = attribute.floats.iter_mut().zip(leaves);
                let weights = weights.filter(|(_, leaf)| leaf.0 == 0);
                weights.for_each(|(weight, _)| *weight += base);
            }
            _ => {}
        }
    }
    Ok(())
}

fn nodes(node: &NodeProto) -> Result<HashMap<Id, Children>, String> {
    let all = ids(node, "nodes_treeids", "nodes_nodeids")?;
    let modes = attribute(node, "nodes_modes").map_or(&[][..], |modes| &modes.strings);
    let [left, right, features] = [
        "nodes_truenodeids",
        "nodes_falsenodeids",
        "nodes_featureids",
    ]
    .map(|name| ints(node, name));
    let values = attribute(node, "nodes_values").map_or(0, |values| values.floats.len());
    let sizes = [modes.len(), left.len(), right.len(), features.len(), values];
    if sizes.iter().any(|size| *size != all.len()) || features.iter().any(|at| *at < 0) {
        return Err("has nodes without all of their parts".to_owned());
    }
    let mut nodes = HashMap::new();
    for (at, id) in all.iter().enumerate() {
        let children = match modes[at].as_slice() {
            b"LEAF" => None,
            b"BRANCH_LEQ" | b"BRANCH_LT" | b"BRANCH_GT" | b"BRANCH_EQ" | b"BRANCH_NEQ" => {
                Some([left[at], right[at]])
            }
            other => {
                let other = String::from_utf8_lossy(other);
                return Err(format!("asks by {other}, which is not evaluated here"));
            }
        };
        if nodes.insert(*id, children).is_some() {
            return Err("has two nodes with one number".to_owned());
        }
    }
    Ok(nodes)
}

/// Follows every tree from its root: each node is met once, and all are.
fn walk(nodes: &HashMap<Id, Children>) -> Result<(), String> {
    let wrong = || "has trees that do not hang together".to_owned();
    let mut left = nodes.clone();
    let mut trees = 0;
    while nodes.contains_key(&(trees, 0)) {
        let mut waiting = vec![0_i64];
        let mut met = 0;
        while let Some(at) = waiting.pop() {
            // Numbers without gaps: tract counts on from the root.
            met = met.max(at.saturating_add(1));
            let children = left.remove(&(trees, at)).ok_or_else(wrong)?;
            waiting.extend(children.into_iter().flatten());
        }
        if nodes.contains_key(&(trees, met)) || (0..met).any(|at| !nodes.contains_key(&(trees, at)))
        {
            return Err(wrong());
        }
        trees += 1;
    }
    if left.is_empty() {
        Ok(())
    } else {
        Err(wrong())
    }
}

fn ids(node: &NodeProto, trees: &str, nodes: &str) -> Result<Vec<Id>, String> {
    let (trees, nodes) = (ints(node, trees), ints(node, nodes));
    if trees.len() != nodes.len() || trees.is_empty() {
        return Err("has nodes without all of their parts".to_owned());
    }
    Ok(trees.iter().copied().zip(nodes.iter().copied()).collect())
}

fn ints<'a>(node: &'a NodeProto, name: &str) -> &'a [i64] {
    attribute(node, name).map_or(&[], |attribute| &attribute.ints)
}
