//! LightGBM's `save_model("x.txt")`: lines of `key=value`, a section for each tree.

use std::collections::HashMap;

use super::{Content, Importer};
use crate::model::Error;
use crate::model::forest::{Compare, Forest, Link, Missing, Node, Split, Tree, outputs_of_trees};

pub(super) const IMPORTER: Importer = Importer {
    saved_by: "LightGBM's save_model(\"x.txt\")",
    read: |content| match content {
        Content::Text(text) => text.starts_with("tree").then(|| read(text)),
        Content::Json(_) => content.object_with("tree_info").map(|_| Err(dump())),
    },
};

fn dump() -> Error {
    Error::model("is what LightGBM dumps; give what Booster.save_model(\"model.txt\") writes")
}

/// Lines up to an empty one.
type Section<'a> = HashMap<&'a str, &'a str>;

fn read(text: &str) -> Result<Forest, Error> {
    let text = text.split("\nend of trees").next().unwrap_or(text);
    let mut sections = text.split("\nTree=");
    let header = section(sections.next().unwrap_or(""));
    let classes = match get::<usize>(&header, "num_class")? {
        0 | 1 => 2,
        many => many,
    };
    let sections: Vec<&str> = sections.collect();
    let outputs = outputs_of_trees(classes, sections.len())?;
    if get::<usize>(&header, "num_tree_per_iteration")? != outputs {
        return Err(Error::model("has another number of trees than of classes"));
    }
    let trees: Result<Vec<Tree>, Error> = sections
        .into_iter()
        .enumerate()
        .map(|(at, text)| tree(&section(text), at % outputs))
        .collect();
    let trees = trees?;
    let link = objective(value(&header, "objective")?)?;
    let names: Vec<String> = value(&header, "feature_names")?
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    // LightGBM's own names, where it was given none.
    let made_up = names
        .iter()
        .enumerate()
        .all(|(at, name)| *name == format!("Column_{at}"));
    let average = header.contains_key("average_output");
    let divisor = if average { trees.len() / outputs } else { 1 };
    Ok(Forest {
        inputs: get::<usize>(&header, "max_feature_idx")?.saturating_add(1),
        names: (!made_up).then_some(names),
        labels: None,
        classes,
        compare: Compare::DoubleAtMost,
        link,
        base: vec![0.0; outputs],
        trees: averaged(trees, divisor),
    })
}

/// Its random forests divide the sum by the number of rounds.
fn averaged(mut trees: Vec<Tree>, rounds: usize) -> Vec<Tree> {
    if rounds < 2 {
        return trees;
    }
    let rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
    for node in trees.iter_mut().flat_map(|tree| &mut tree.nodes) {
        if let Node::Leaf(values) = node {
            values
                .iter_mut()
                .for_each(|value| *value /= f64::from(rounds));
        }
    }
    trees
}

fn section(text: &str) -> Section<'_> {
    let lines = text.lines().map(str::trim);
    lines
        .map(|line| line.split_once('=').unwrap_or((line, "")))
        .collect()
}

/// Such as `binary sigmoid:1` and `multiclass num_class:3`.
fn objective(text: &str) -> Result<Link, Error> {
    let mut words = text.split_whitespace();
    let name = words.next().unwrap_or("");
    let slope = words.find_map(|word| word.strip_prefix("sigmoid:"));
    let slope = slope.map_or(Ok(1.0), str::parse);
    let slope = slope.map_err(|_| Error::model("has a sigmoid that is no number"))?;
    match name {
        "binary" | "multiclassova" if slope > 0.0 => Ok(Link::Sigmoid(slope)),
        "multiclass" => Ok(Link::Softmax),
        _ => {
            let what = format!(
                "was trained for {name}, which tells no classes apart: binary and multiclass do"
            );
            Err(Error::model(&what))
        }
    }
}

fn tree(section: &Section<'_>, output: usize) -> Result<Tree, Error> {
    let leaves: usize = get(section, "num_leaves")?;
    if section.get("num_cat").is_some_and(|many| *many != "0") {
        return Err(Error::model(
            "has categorical splits: train without categorical_feature",
        ));
    }
    if section
        .get("is_linear")
        .is_some_and(|linear| *linear != "0")
    {
        return Err(Error::model(
            "has linear leaves: train with linear_tree=false",
        ));
    }
    let values: Vec<f64> = list(section, "leaf_value")?;
    if values.len() != leaves {
        return Err(Error::model("has another number of leaves than it says"));
    }
    let splits = leaves.saturating_sub(1);
    let mut nodes = Vec::with_capacity(splits + leaves);
    if splits > 0 {
        let features: Vec<usize> = list(section, "split_feature")?;
        let thresholds: Vec<f64> = list(section, "threshold")?;
        let kinds: Vec<u8> = list(section, "decision_type")?;
        let left: Vec<i64> = list(section, "left_child")?;
        let right: Vec<i64> = list(section, "right_child")?;
        let lengths = [
            features.len(),
            thresholds.len(),
            kinds.len(),
            left.len(),
            right.len(),
        ];
        if lengths != [splits; 5] {
            return Err(Error::model("has a split without all of its parts"));
        }
        for at in 0..splits {
            nodes.push(Node::Split(Split {
                feature: features[at],
                threshold: thresholds[at],
                missing: missing(kinds[at])?,
                left: child(left[at], splits),
                right: child(right[at], splits),
            }));
        }
    }
    nodes.extend(values.into_iter().map(|value| Node::Leaf(vec![value])));
    Ok(Tree { output, nodes })
}

/// Leaves are behind the splits here; there they are negative numbers from -1 on.
fn child(number: i64, splits: usize) -> usize {
    let leaf = usize::try_from(!number).map(|leaf| splits.saturating_add(leaf));
    usize::try_from(number).or(leaf).unwrap_or(usize::MAX)
}

/// Of the bits of its decision types: categorical, default left, then what counts as missing.
fn missing(kind: u8) -> Result<Missing, Error> {
    let default_left = kind & 2 != 0;
    match (kind >> 2 & 3, default_left) {
        _ if kind & 1 != 0 => Err(Error::model("has categorical splits")),
        (0, _) => Ok(Missing::Zero),
        (1, true) => Ok(Missing::ZeroLeft),
        (1, false) => Ok(Missing::ZeroRight),
        (2, true) => Ok(Missing::Left),
        (2, false) => Ok(Missing::Right),
        _ => Err(Error::model(
            "has a kind of missing value that is not known",
        )),
    }
}

fn value<'a>(section: &Section<'a>, key: &str) -> Result<&'a str, Error> {
    section.get(key).copied().ok_or_else(|| {
        Error::model(&format!(
            "is no LightGBM model that can be read: it has no {key}"
        ))
    })
}

fn get<T: std::str::FromStr>(section: &Section<'_>, key: &str) -> Result<T, Error> {
    parse(key, value(section, key)?)
}

fn list<T: std::str::FromStr>(section: &Section<'_>, key: &str) -> Result<Vec<T>, Error> {
    let words = value(section, key)?.split_whitespace();
    words.map(|word| parse(key, word)).collect()
}

fn parse<T: std::str::FromStr>(key: &str, text: &str) -> Result<T, Error> {
    text.parse()
        .map_err(|_| Error::model(&format!("has {text:?} for {key}")))
}
