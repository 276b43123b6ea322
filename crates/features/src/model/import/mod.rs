//! Reads what programs that train trees have saved.

mod json_export;
mod lightgbm;
mod xgboost;

use serde_json::Value;

use super::Error;
use super::forest::Forest;

/// Every format; the first that content has is taken.
const IMPORTERS: [Importer; 3] = [json_export::IMPORTER, xgboost::IMPORTER, lightgbm::IMPORTER];

/// Reads one format.
struct Importer {
    /// The program that trains, and how it saves the format.
    saved_by: &'static str,
    /// The forest; none where the content has another format.
    read: fn(&Content<'_>) -> Option<Result<Forest, Error>>,
}

/// A file that is still to be understood.
enum Content<'a> {
    Json(Value),
    Text(&'a str),
}

impl Content<'_> {
    /// The content, where it is an object of JSON with this member.
    fn object_with(&self, member: &str) -> Option<&Value> {
        match self {
            Self::Json(json) => json.get(member).map(|_| json),
            Self::Text(_) => None,
        }
    }
}

/// The forest in a file's bytes, whichever of the formats it has.
pub fn read(bytes: &[u8]) -> Result<Forest, Error> {
    let content = content(bytes)?;
    let read = IMPORTERS
        .iter()
        .find_map(|importer| (importer.read)(&content));
    let forest = read.unwrap_or_else(|| Err(unknown()))?;
    forest.check().map_err(|why| Error::model(&why))?;
    if forest.trees.is_empty() {
        return Err(Error::model("has no trees"));
    }
    Ok(forest)
}

fn content(bytes: &[u8]) -> Result<Content<'_>, Error> {
    let text = std::str::from_utf8(bytes).map_err(|_| {
        Error::model(
            "is no text: save XGBoost's model as .json, and scikit-learn's by lowroad_trees.py",
        )
    })?;
    if !text.trim_start().starts_with('{') {
        return Ok(Content::Text(text));
    }
    let json = serde_json::from_str(text)
        .map_err(|error| Error::model(&format!("is no JSON that can be read: {error}")))?;
    Ok(Content::Json(json))
}

fn unknown() -> Error {
    let known = IMPORTERS.map(|importer| importer.saved_by).join(", ");
    Error::model(&format!("is no model of trees that is known: {known}"))
}
