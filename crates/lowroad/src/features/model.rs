//! `lowroad features model`: checks, prints and compiles models.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Subcommand;
use features::kernel::Image;
use features::model::{
    Class, Classifier, Column, IntegerNode, IntegerTree, Model, Network, Quantity, Search,
};
use features::sink::{SchemaRef, Scorer};
use serde_json::{Value, json};

use crate::exit::{self, Failure};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Check whether a model is consistent, and whether the kernel can evaluate it
    Check {
        /// A manifest (TOML), or the output of `compile`
        model: PathBuf,
    },
    /// Print a model's columns, classes and trees
    Show {
        /// A manifest (TOML), or the output of `compile`
        model: PathBuf,
    },
    /// Write a manifest and its trees as one file
    Compile {
        /// A manifest (TOML)
        model: PathBuf,
        /// The file to write (JSON)
        #[arg(long, short, value_name = "FILE")]
        out: PathBuf,
    },
}

impl Verb {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        match self {
            Self::Check { model } => match load_classifier(model)? {
                Classifier::Trees(model) => check(&model, json),
                Classifier::Network(network) => check_network(&network, json),
            },
            Self::Show { model } => exit::print(&match load_classifier(model)? {
                Classifier::Trees(model) => show(&model, json),
                Classifier::Network(network) => show_network(&network, json),
            }),
            Self::Compile { model, out } => {
                let compiled = load(model)?.to_json();
                std::fs::write(out, compiled)
                    .map_err(|error| Failure::Failed(anyhow!("{}: {error}", out.display())))
            }
        }
    }
}

pub(super) fn load(path: &Path) -> Result<Model, Failure> {
    Ok(Model::load(path)?)
}

/// A model that scores rows.
pub(super) fn load_classifier(path: &Path) -> Result<Classifier, Failure> {
    Ok(Classifier::load(path, &Search::in_folder_of_program())?)
}

/// The model for rows of this schema, which must have its columns.
pub(super) fn scorer(model: Classifier, rows: &SchemaRef) -> Result<Box<dyn Scorer>, Failure> {
    Ok(model.scorer(rows)?)
}

fn check(model: &Model, json: bool) -> Result<(), Failure> {
    let kernel = Image::of(model).err().map(|error| error.to_string());
    if json {
        let mut account = summary(model);
        account["kernel"] = json!(kernel.is_none());
        account["why_not"] = json!(kernel);
        return exit::print(&format!("{account:#}\n"));
    }
    let kernel = kernel.unwrap_or_else(|| "the kernel can ask it".to_owned());
    exit::print(&format!("{}\n{kernel}\n", line(model)))
}

fn summary(model: &Model) -> Value {
    json!({
        "name": model.name,
        "schema": model.schema,
        "columns": model.columns.len(),
        "classes": model.classes.len(),
        "trees": model.forest.trees.len(),
        "nodes": model.forest.nodes(),
        "depth": model.forest.depth(),
        "packets": model.packets,
    })
}

fn line(model: &Model) -> String {
    let forest = &model.forest;
    format!(
        "{}: {} columns of {}, {} classes, {} trees of at most {} splits in a row, {} nodes",
        model.name,
        model.columns.len(),
        model.schema,
        model.classes.len(),
        forest.trees.len(),
        forest.depth(),
        forest.nodes()
    )
}

fn show(model: &Model, json: bool) -> String {
    if json {
        return format!("{}\n", model.to_json());
    }
    let mut text = format!("{}\n{}", line(model), columns(&model.columns));
    text += "\nclasses\n";
    for Class { name, action } in &model.classes {
        text += &format!("  {name}  {}\n", action.name());
    }
    let packets = model.packets;
    text += &format!(
        "\nasked in the kernel after packets {} to {} of a flow\n",
        packets.first, packets.last
    );
    for (at, tree) in model.forest.trees.iter().enumerate() {
        text += &format!("\ntree {at}\n");
        show_tree(model, tree, &mut text);
    }
    text
}

fn columns(columns: &[Column]) -> String {
    let mut text = "\ncolumns\n".to_owned();
    for column in columns {
        let null = column.null.map(|null| format!(", null is {null}"));
        let kind = match column.quantity {
            Quantity::Integer => "integer",
            Quantity::Double => "double",
        };
        text += &format!("  {}  {kind}{}\n", column.id, null.unwrap_or_default());
    }
    text
}

fn check_network(network: &Network, json: bool) -> Result<(), Failure> {
    exit::print(&if json {
        format!("{:#}\n", summary_of_network(network))
    } else {
        format!("{}\n{}\n", line_of_network(network), NOT_IN_KERNEL)
    })
}

const NOT_IN_KERNEL: &str = "rows are scored by it; the kernel asks trees alone";

fn show_network(network: &Network, json: bool) -> String {
    let onnx = network.onnx();
    if json {
        let mut account = summary_of_network(network);
        account["columns"] = onnx.columns.iter().map(|column| json!(column)).collect();
        account["classes"] = json!(onnx.classes);
        return format!("{account:#}\n");
    }
    let classes: String = onnx
        .classes
        .iter()
        .map(|name| format!("  {name}\n"))
        .collect();
    let line = line_of_network(network);
    format!("{line}\n{}\nclasses\n{classes}", columns(&onnx.columns))
}

fn line_of_network(network: &Network) -> String {
    let onnx = network.onnx();
    format!(
        "{}: {} columns of {}, {} classes, {} operators in ONNX",
        onnx.name,
        onnx.columns.len(),
        onnx.schema,
        onnx.classes.len(),
        network.operators()
    )
}

fn summary_of_network(network: &Network) -> Value {
    let onnx = network.onnx();
    json!({
        "name": onnx.name,
        "schema": onnx.schema,
        "columns": onnx.columns.len(),
        "classes": onnx.classes.len(),
        "operators": network.operators(),
        "kernel": false,
        "why_not": NOT_IN_KERNEL,
    })
}

/// A question a line, deeper ones further in; what is at most the number goes to the upper branch.
fn show_tree(model: &Model, tree: &IntegerTree, text: &mut String) {
    let mut waiting = vec![(0, 1)];
    while let Some((at, depth)) = waiting.pop() {
        let indent = "  ".repeat(depth);
        let written = match tree.nodes[at] {
            IntegerNode::Split {
                input,
                threshold,
                left,
                right,
                ..
            } => {
                waiting.push((right as usize, depth + 1));
                waiting.push((left as usize, depth + 1));
                let column = &model.columns[input as usize];
                let threshold = column.quantity.format(threshold);
                writeln!(text, "{indent}{} <= {threshold}", column.id)
            }
            IntegerNode::Leaf(values) => {
                let from = values as usize;
                let unit = (-f64::from(model.forest.scale)).exp2();
                let values = &model.forest.values[from..from + tree.width as usize];
                let shown = values.iter().map(|value| format_scaled(*value, unit));
                let shown: Vec<String> = shown.collect();
                writeln!(text, "{indent}{}", shown.join(" "))
            }
        };
        debug_assert!(written.is_ok(), "text grows");
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with four digits")]
fn format_scaled(value: i64, unit: f64) -> String {
    format!("{:.4}", value as f64 * unit)
}
