//! A file in ONNX, made ready: one output, which is the probabilities, and operators that are evaluated here.

use std::collections::HashSet;
use std::path::Path;

use tract_onnx::Onnx;
use tract_onnx::pb::attribute_proto::AttributeType;
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::pb::type_proto::Value;
use tract_onnx::pb::{GraphProto, ModelProto, NodeProto, ValueInfoProto};
use tract_onnx::prelude::{Framework, InferenceModel};

use crate::{plain, trees};

/// What has been read, before it is known what its inputs are to be.
#[derive(Debug)]
pub(crate) struct Graph {
    proto: ModelProto,
    /// Names of the classes, where the file has them.
    pub(crate) labels: Option<Vec<String>>,
    /// It says what becomes of a value that is missing.
    pub(crate) knows_missing: bool,
}

impl Graph {
    /// Errors go on after the file's name.
    pub(crate) fn read(mut bytes: &[u8]) -> Result<Self, String> {
        let proto = tract_onnx::onnx().proto_model_for_read(&mut bytes);
        let mut proto = proto.map_err(|_| "is not ONNX that can be read".to_owned())?;
        let graph = proto.graph.as_mut();
        let graph = graph.ok_or_else(|| "is not ONNX that can be read".to_owned())?;
        let labels = labels(graph);
        let output = probabilities(graph)?;
        graph.output = vec![ValueInfoProto {
            name: output,
            ..ValueInfoProto::default()
        }];
        // What the exporter knew of shapes follows from the inputs'.
        graph.value_info.clear();
        prune(graph);
        check_order(graph)?;
        let knows_missing = graph.node.iter().any(knows_missing);
        plain::rewrite(graph)?;
        for node in &mut graph.node {
            match node.op_type.as_str() {
                "LinearClassifier" => number(node, "classlabels_ints"),
                TREES => {
                    number(node, "classlabels_int64s");
                    trees::mend(node).map_err(|why| format!("{}: {why}", node.op_type))?;
                }
                _ => {}
            }
        }
        Ok(Self {
            proto,
            labels,
            knows_missing,
        })
    }

    /// The values that rows give: those of the file's inputs that it does not have itself.
    pub(crate) fn inputs(&self) -> Vec<&ValueInfoProto> {
        let graph = self.proto.graph.iter();
        let inputs = graph.flat_map(|graph| {
            let own = |name: &str| graph.initializer.iter().any(|own| own.name == name);
            graph.input.iter().filter(move |input| !own(&input.name))
        });
        inputs.collect()
    }

    /// `folder` is where it may keep large tensors beside it.
    pub(crate) fn parse(&self, folder: &Path) -> Result<InferenceModel, String> {
        let framework = tract_onnx::onnx();
        if let Some(graph) = &self.proto.graph {
            known(graph, &framework)?;
        }
        let parsed = framework.parse(&self.proto, folder.to_str());
        let parsed = parsed.map_err(|error| describe(&error))?;
        match parsed.unresolved_inputs.first() {
            Some(name) => Err(format!("has no {name}, which it reads")),
            None => Ok(parsed.model),
        }
    }
}

/// tract's error in one line.
pub(crate) fn describe(error: &tract_onnx::prelude::TractError) -> String {
    let causes = error.chain().map(ToString::to_string);
    let causes: Vec<String> = causes.map(|cause| cause.replace('\n', " ")).collect();
    let mut text = format!("is not evaluated here: {}", causes.join(": "));
    if let Some((end, _)) = text.char_indices().nth(MAX_CAUSE_CHARS) {
        text.truncate(end);
        text.push_str(" ...");
    }
    text
}

/// A longer description is cut: causes may show whole operators.
const MAX_CAUSE_CHARS: usize = 400;

/// Refuses what has no meaning here, by its name.
fn known(graph: &GraphProto, framework: &Onnx) -> Result<(), String> {
    for node in &graph.node {
        if !framework.op_register.0.contains_key(&node.op_type) {
            return Err(format!(
                "has the operator {}, which is not evaluated here: export a model that does without it, as networks, trees and linear models do",
                node.op_type
            ));
        }
        for inner in inner(node) {
            known(inner, framework)?;
        }
    }
    Ok(())
}

/// Whether an operator does with NaN what a training has meant. A network's answer for it is as good as none:
/// `Relu` may even take it for zero. Trees of which all send it right were written by a program that does not
/// know better, as skl2onnx writes forests that were trained with some that go left.
fn knows_missing(node: &NodeProto) -> bool {
    match node.op_type.as_str() {
        "Imputer" | "IsNaN" => true,
        TREES => plain::attribute(node, "nodes_missing_value_tracks_true")
            .is_some_and(|left| left.ints.contains(&1)),
        _ => false,
    }
}

const TREES: &str = "TreeEnsembleClassifier";

fn inner(node: &NodeProto) -> impl Iterator<Item = &GraphProto> {
    let attributes = node.attribute.iter();
    attributes.flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs))
}

/// The attribute for classes with names.
const LABELS: &str = "classlabels_strings";

/// What scikit-learn's exporters write of the classes' names.
fn labels(graph: &GraphProto) -> Option<Vec<String>> {
    let attributes = graph.node.iter().flat_map(|node| &node.attribute);
    let mut named = attributes.filter(|attribute| attribute.name == LABELS);
    let labels = named.find(|attribute| !attribute.strings.is_empty())?;
    let text = |label: &Vec<u8>| String::from_utf8_lossy(label).into_owned();
    Some(labels.strings.iter().map(text).collect())
}

/// Numbers for the names of classes, which tract does not look up.
fn number(node: &mut NodeProto, name: &str) {
    for attribute in &mut node.attribute {
        if attribute.name == LABELS && !attribute.strings.is_empty() {
            attribute.ints = (0..).take(attribute.strings.len()).collect();
            attribute.strings.clear();
            attribute.r#type = AttributeType::Ints as i32;
            name.clone_into(&mut attribute.name);
        }
    }
}

/// Which value is the probabilities: the one output that can be, or whose name says so.
fn probabilities(graph: &GraphProto) -> Result<String, String> {
    let mut found = Vec::new();
    for output in &graph.output {
        let maker = graph
            .node
            .iter()
            .find(|node| node.output.contains(&output.name));
        match maker {
            // Dictionaries for Python; the numbers are what goes in.
            Some(map) if map.op_type == "ZipMap" => found.extend(map.input.first().cloned()),
            _ if can_be_probabilities(output) => found.push(output.name.clone()),
            _ => {}
        }
    }
    if found.len() > 1 {
        found.retain(|name| name.to_lowercase().contains("prob"));
    }
    match found.as_slice() {
        [one] => Ok(one.clone()),
        _ => Err("has not one output that is known to be the probabilities of the classes: export it with that one alone".to_owned()),
    }
}

fn can_be_probabilities(output: &ValueInfoProto) -> bool {
    let kind = output.r#type.as_ref().and_then(|kind| kind.value.as_ref());
    kind.is_some_and(|Value::TensorType(tensor)| {
        let kinds = [DataType::Float, DataType::Double, DataType::Float16];
        kinds.iter().any(|kind| *kind as i32 == tensor.elem_type)
    })
}

/// Leaves out what the output does not come from: labels, and what makes dictionaries of it.
fn prune(graph: &mut GraphProto) {
    let mut wanted: HashSet<String> = HashSet::new();
    wanted.extend(graph.output.iter().map(|output| output.name.clone()));
    // A file's operators come after those whose results they read.
    let mut kept = Vec::new();
    for node in graph.node.drain(..).rev() {
        if node.output.iter().any(|output| wanted.contains(output)) {
            reads(&node, &mut wanted);
            kept.push(node);
        }
    }
    kept.reverse();
    graph.node = kept;
}

/// Every value is made before it is read: tract takes that on trust.
fn check_order(graph: &GraphProto) -> Result<(), String> {
    let mut made: HashSet<&str> = HashSet::from([""]);
    made.extend(graph.input.iter().map(|input| input.name.as_str()));
    made.extend(graph.initializer.iter().map(|tensor| tensor.name.as_str()));
    for node in &graph.node {
        if let Some(input) = node
            .input
            .iter()
            .find(|input| !made.contains(input.as_str()))
        {
            return Err(format!("has no {input}, which {} reads", node.op_type));
        }
        made.extend(node.output.iter().map(String::as_str));
    }
    let mut outputs = graph.output.iter().map(|output| output.name.as_str());
    match outputs.find(|output| !made.contains(output)) {
        Some(output) => Err(format!("has no {output}, which is its output")),
        None => Ok(()),
    }
}

/// Adds what an operator reads, and the graphs within it.
fn reads(node: &NodeProto, names: &mut HashSet<String>) {
    names.extend(node.input.iter().cloned());
    for inner in inner(node) {
        for node in &inner.node {
            reads(node, names);
        }
        names.extend(inner.output.iter().map(|output| output.name.clone()));
    }
}
