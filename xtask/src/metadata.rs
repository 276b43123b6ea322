//! Cargo's metadata of the workspace and its dependencies.

use anyhow::{Context, Result};
use serde_json::Value;

/// `cargo metadata`, with or without the packages that are not ours.
pub(crate) fn load(dependencies: bool) -> Result<Value> {
    let mut arguments = vec!["metadata", "--format-version=1", "--locked"];
    if dependencies {
        // Crates for other systems are never linked here.
        arguments.push("--filter-platform=x86_64-unknown-linux-gnu");
    } else {
        arguments.push("--no-deps");
    }
    let text = crate::run::output("cargo", &arguments)?;
    serde_json::from_str(&text).context("cargo metadata")
}

/// The packages of `load`'s answer.
pub(crate) fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().into_iter().flatten()
}

/// A text field, or "" where it is absent.
pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}
