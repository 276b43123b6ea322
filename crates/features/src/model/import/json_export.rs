//! What `lowroad_trees.py` writes of a scikit-learn model. Numbers are text in it, because few readers
//! of JSON round them correctly.

use serde::Deserialize;
use serde_json::Value;

use super::Importer;
use crate::model::Error;
use crate::model::forest::{Compare, Forest, Link, Missing, Node, Split, Tree};

pub(super) const IMPORTER: Importer = Importer {
    saved_by: "scikit-learn's by lowroad_trees.py",
    read: |content| content.object_with("format").map(read),
};

const FORMAT: &str = "lowroad-trees-1";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: String,
    /// What was exported, for people.
    #[serde(rename = "model")]
    _model: String,
    columns: Option<Vec<String>>,
    inputs: usize,
    labels: Vec<String>,
    compare: Comparison,
    link: LinkName,
    base: Vec<String>,
    trees: Vec<FileTree>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Comparison {
    Single,
    Double,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum LinkName {
    Mean,
    Sigmoid,
    Softmax,
}

/// A node is a leaf where its left child is negative.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTree {
    output: usize,
    left: Vec<i64>,
    right: Vec<i64>,
    feature: Vec<i64>,
    threshold: Vec<String>,
    /// None where the model was not trained with missing values.
    missing_left: Option<Vec<bool>>,
    /// Of leaves; empty for others.
    value: Vec<Vec<String>>,
}

fn read(json: &Value) -> Result<Forest, Error> {
    let file = File::deserialize(json)
        .map_err(|error| Error::model(&format!("is no export that can be read: {error}")))?;
    if file.format != FORMAT {
        let what = format!("is of format {}; {FORMAT} is read", file.format);
        return Err(Error::model(&what));
    }
    let trees: Result<Vec<Tree>, Error> = file.trees.iter().map(FileTree::tree).collect();
    let trees = trees?;
    let many = u32::try_from(trees.len()).unwrap_or(u32::MAX);
    Ok(Forest {
        names: file.columns,
        inputs: file.inputs,
        classes: file.labels.len(),
        labels: Some(file.labels),
        compare: match file.compare {
            Comparison::Single => Compare::SingleAtMost,
            Comparison::Double => Compare::DoubleAtMost,
        },
        link: match file.link {
            LinkName::Mean => Link::Mean(many),
            LinkName::Sigmoid => Link::Sigmoid(1.0),
            LinkName::Softmax => Link::Softmax,
        },
        base: numbers(&file.base)?,
        trees,
    })
}

impl FileTree {
    fn tree(&self) -> Result<Tree, Error> {
        let nodes = (0..self.left.len()).map(|at| self.node(at));
        Ok(Tree {
            output: self.output,
            nodes: nodes.collect::<Result<_, Error>>()?,
        })
    }

    fn node(&self, at: usize) -> Result<Node, Error> {
        let short = || Error::model("has a node without all of its parts");
        let index = |all: &[i64]| {
            let number = all.get(at).copied().ok_or_else(short)?;
            usize::try_from(number).map_err(|_| short())
        };
        if self.left[at] < 0 {
            return Ok(Node::Leaf(numbers(self.value.get(at).ok_or_else(short)?)?));
        }
        let missing = match &self.missing_left {
            None => Missing::Unknown,
            Some(left) if *left.get(at).ok_or_else(short)? => Missing::Left,
            Some(_) => Missing::Right,
        };
        Ok(Node::Split(Split {
            feature: index(&self.feature)?,
            threshold: number(self.threshold.get(at).ok_or_else(short)?)?,
            missing,
            left: index(&self.left)?,
            right: index(&self.right)?,
        }))
    }
}

fn numbers(texts: &[String]) -> Result<Vec<f64>, Error> {
    texts.iter().map(|text| number(text)).collect()
}

fn number(text: &str) -> Result<f64, Error> {
    text.parse()
        .map_err(|_| Error::model(&format!("has {text:?} for a number")))
}
