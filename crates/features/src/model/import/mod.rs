//! Reads what programs that train trees have saved.

mod exported;
mod lightgbm;
mod xgboost;

use serde_json::Value;

use super::Error;
use super::forest::Forest;

/// The forest in a file's bytes, whichever of the formats it has.
pub fn read(bytes: &[u8]) -> Result<Forest, Error> {
    let text = std::str::from_utf8(bytes).map_err(|_| {
        Error::model(
            "is no text: save XGBoost's model as .json, and scikit-learn's by lowroad_trees.py",
        )
    })?;
    let forest = if text.trim_start().starts_with('{') {
        let json: Value = serde_json::from_str(text)
            .map_err(|error| Error::model(&format!("is no JSON that can be read: {error}")))?;
        read_json(json)?
    } else if text.starts_with("tree") {
        lightgbm::read(text)?
    } else {
        return Err(unknown());
    };
    forest.check().map_err(|why| Error::model(&why))?;
    if forest.trees.is_empty() {
        return Err(Error::model("has no trees"));
    }
    Ok(forest)
}

fn read_json(json: Value) -> Result<Forest, Error> {
    if json.get("format").is_some() {
        return exported::read(json);
    }
    if json.get("learner").is_some() {
        return xgboost::read(json);
    }
    if json.get("tree_info").is_some() {
        return Err(Error::model(
            "is what LightGBM dumps; give what Booster.save_model(\"model.txt\") writes",
        ));
    }
    Err(unknown())
}

fn unknown() -> Error {
    Error::model(
        "is no model of trees that is known: scikit-learn's by lowroad_trees.py, XGBoost's save_model(\"x.json\"), LightGBM's save_model(\"x.txt\")",
    )
}
