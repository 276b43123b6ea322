//! XGBoost's `save_model("x.json")`: schema at doc/model.schema of its repository.

use serde::Deserialize;
use serde_json::Value;

use super::Importer;
use crate::model::Error;
use crate::model::forest::{Compare, Forest, Link, Missing, Node, Split, Tree, outputs_of_trees};

pub(super) const IMPORTER: Importer = Importer {
    saved_by: "XGBoost's save_model(\"x.json\")",
    read: |content| content.object_with("learner").map(read),
};

#[derive(Deserialize)]
struct File {
    learner: Learner,
}

#[derive(Deserialize)]
struct Learner {
    #[serde(default)]
    attributes: Attributes,
    #[serde(default)]
    feature_names: Vec<String>,
    gradient_booster: Booster,
    learner_model_param: Parameters,
    objective: Objective,
}

#[derive(Default, Deserialize)]
struct Attributes {
    best_iteration: Option<String>,
}

#[derive(Deserialize)]
struct Booster {
    name: String,
    model: Option<Value>,
}

#[derive(Deserialize)]
struct Trees {
    tree_info: Vec<usize>,
    trees: Vec<FileTree>,
    gbtree_model_param: TreesParameters,
}

#[derive(Deserialize)]
struct TreesParameters {
    #[serde(default)]
    num_parallel_tree: Option<String>,
}

#[derive(Deserialize)]
struct Parameters {
    base_score: String,
    num_class: String,
    num_feature: String,
    #[serde(default)]
    num_target: Option<String>,
}

#[derive(Deserialize)]
struct Objective {
    name: String,
}

#[derive(Deserialize)]
struct FileTree {
    left_children: Vec<i64>,
    right_children: Vec<i64>,
    split_indices: Vec<usize>,
    split_conditions: Vec<f64>,
    default_left: Vec<Value>,
    #[serde(default)]
    split_type: Vec<u8>,
    tree_param: TreeParameters,
}

#[derive(Deserialize)]
struct TreeParameters {
    #[serde(default)]
    size_leaf_vector: Option<String>,
}

fn read(json: &Value) -> Result<Forest, Error> {
    let File { learner } = parse(json)?;
    if learner.gradient_booster.name != "gbtree" {
        let name = &learner.gradient_booster.name;
        let what = format!("is XGBoost's {name}; only gbtree is read");
        return Err(Error::model(&what));
    }
    let model = learner.gradient_booster.model.as_ref();
    let file: Trees = parse(model.unwrap_or(&Value::Null))?;
    let classes = match count(&learner.learner_model_param.num_class)? {
        0 | 1 => 2,
        many => many,
    };
    check(&learner, &file)?;
    let outputs = outputs_of_trees(classes, file.trees.len())?;
    let (link, base) = objective(&learner, outputs)?;
    let trees = file.trees.iter().zip(&file.tree_info);
    let trees = trees.map(|(tree, output)| tree.tree(*output));
    let names = learner.feature_names;
    Ok(Forest {
        names: (!names.is_empty()).then_some(names),
        inputs: count(&learner.learner_model_param.num_feature)?,
        labels: None,
        classes,
        compare: Compare::SingleBelow,
        link,
        base,
        trees: trees.collect::<Result<_, Error>>()?,
    })
}

fn check(learner: &Learner, file: &Trees) -> Result<(), Error> {
    let targets = learner.learner_model_param.num_target.as_deref();
    if !matches!(targets, None | Some("0" | "1")) {
        return Err(Error::model("predicts several targets; one is compiled"));
    }
    if file.tree_info.len() != file.trees.len() {
        return Err(Error::model("does not say what each tree adds to"));
    }
    let Some(best) = &learner.attributes.best_iteration else {
        return Ok(());
    };
    let best = count(best)?.saturating_add(1);
    let outputs = file.tree_info.iter().max();
    let outputs = outputs.map_or(1, |most| most.saturating_add(1));
    let beside = file.gbtree_model_param.num_parallel_tree.as_deref();
    let rounds = outputs.saturating_mul(count(beside.unwrap_or("1"))?.max(1));
    if file.trees.len() > best.saturating_mul(rounds) {
        return Err(Error::model(&format!(
            "has trees beyond its best iteration, which some predictions use and some do not: save model[:{best}]"
        )));
    }
    Ok(())
}

/// What sums mean, and where they start: the file has that as a probability.
fn objective(learner: &Learner, outputs: usize) -> Result<(Link, Vec<f64>), Error> {
    let base = &learner.learner_model_param.base_score;
    let base: Result<Vec<f64>, _> = base
        .trim_matches(['[', ']'])
        .split(',')
        .map(str::parse)
        .collect();
    let base = base.map_err(|_| Error::model("has a base score that is no number"))?;
    let name = learner.objective.name.as_str();
    let (link, base) = match name {
        "binary:logistic" => {
            let logit = |p: &f64| (p / (1.0 - p)).ln();
            (Link::Sigmoid(1.0), base.iter().map(logit).collect())
        }
        "binary:logitraw" => (Link::Sigmoid(1.0), base),
        "multi:softprob" | "multi:softmax" => (Link::Softmax, base),
        _ => {
            let what = format!(
                "was trained for {name}, which tells no classes apart: binary:logistic and multi:softprob do"
            );
            return Err(Error::model(&what));
        }
    };
    match base.as_slice() {
        [one] => Ok((link, vec![*one; outputs])),
        many if many.len() == outputs => Ok((link, base)),
        _ => Err(Error::model(
            "has base scores for other classes than its own",
        )),
    }
}

impl FileTree {
    fn tree(&self, output: usize) -> Result<Tree, Error> {
        if self.split_type.iter().any(|kind| *kind != 0) {
            return Err(Error::model(
                "has categorical splits: encode categories as columns of numbers, and train again",
            ));
        }
        let width = self.tree_param.size_leaf_vector.as_deref();
        if !matches!(width, None | Some("0" | "1")) {
            return Err(Error::model(
                "has leaves for several outputs: train with multi_strategy=\"one_output_per_tree\"",
            ));
        }
        let nodes = (0..self.left_children.len()).map(|at| self.node(at));
        let nodes: Option<Vec<Node>> = nodes.collect();
        Ok(Tree {
            output,
            nodes: nodes.ok_or_else(|| Error::model("has a node without all of its parts"))?,
        })
    }

    /// A leaf has no left child, and its value in place of a threshold.
    fn node(&self, at: usize) -> Option<Node> {
        let condition = *self.split_conditions.get(at)?;
        let Ok(left) = usize::try_from(self.left_children[at]) else {
            return Some(Node::Leaf(vec![condition]));
        };
        let default_left = match self.default_left.get(at)? {
            Value::Bool(left) => *left,
            number => number.as_u64()? != 0,
        };
        Some(Node::Split(Split {
            feature: *self.split_indices.get(at)?,
            threshold: condition,
            missing: if default_left {
                Missing::Left
            } else {
                Missing::Right
            },
            left,
            right: usize::try_from(*self.right_children.get(at)?).ok()?,
        }))
    }
}

fn parse<T: serde::de::DeserializeOwned>(json: &Value) -> Result<T, Error> {
    T::deserialize(json)
        .map_err(|error| Error::model(&format!("is no XGBoost model that can be read: {error}")))
}

fn count(text: &str) -> Result<usize, Error> {
    text.parse()
        .map_err(|_| Error::model(&format!("has {text:?} for a count")))
}
