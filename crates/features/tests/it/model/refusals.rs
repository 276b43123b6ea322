//! What does not fit is refused, by one line that says what to do.

use std::path::Path;

use features::model::Model;

use super::{rows, saved_models};

/// What is said of `forest-2` once its manifest or its trees were changed.
fn refused(manifest: (&str, &str), trees: (&str, &str)) -> String {
    let scratch = tempfile::tempdir().unwrap();
    for (name, (from, to)) in [("forest-2.toml", manifest), ("forest-2.trees.json", trees)] {
        let text = std::fs::read_to_string(saved_models::folder().join(name)).unwrap();
        assert!(text.contains(from), "{from}");
        std::fs::write(scratch.path().join(name), text.replacen(from, to, 1)).unwrap();
    }
    error_of(&scratch.path().join("forest-2.toml"))
}

fn error_of(path: &Path) -> String {
    let error = Model::load(path).unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

const SAME: (&str, &str) = ("", "");

#[test]
fn manifests_that_do_not_fit() {
    for (from, to, why) in [
        (
            "flow.v1/packets",
            "flow.v1/packet",
            "names flow.v1/packet, which is no column",
        ),
        ("flow.v1/packets", "cic.v1/Tot Fwd Pkts", "is no column"),
        (
            "{ id = \"flow.v1/packets\" },",
            "",
            "names 5 columns, and forest-2.trees.json has 6",
        ),
        (
            "flow.v1/packets",
            "flow.v1/fwd_packets",
            "calls its input flow.v1/packets",
        ),
        ("flow.v1/packets", "flow.v1/src_ip", "is text, no number"),
        ("{ name = \"class1\" },", "", "names 1 classes"),
        (
            "\"class1\"",
            "\"class1\", action = \"drip\"",
            "unknown variant",
        ),
        (
            "\"class1\"",
            "\"class1\", action = \"sample\"",
            "sample has one_in",
        ),
        (
            "\"class1\"",
            "\"class1\", action = \"mark\", dscp = 64",
            "from 0 to 63",
        ),
        (
            "\"class1\"",
            "\"class1\", one_in = 7",
            "pass and drop have neither",
        ),
        (
            "schema = \"flow.v1\"",
            "schema = \"tree.v1\"",
            "tree.v1 for its schema",
        ),
        ("columns", "threshold = 1.5\ncolumns", "a probability"),
        ("columns", "feathers = 1\ncolumns", "feathers"),
        ("trees = \"", "trees = \"no/", "No such file"),
        (
            "columns",
            "packets = { first = 4, last = 3 }\ncolumns",
            "packets.first",
        ),
    ] {
        let error = refused((from, to), SAME);
        assert!(error.contains(why), "{to}: {error}");
    }
}

#[test]
fn trees_that_do_not_hang_together() {
    for (from, to, why) in [
        (
            "lowroad-trees-1",
            "lowroad-trees-2",
            "lowroad-trees-1 is read",
        ),
        ("\"left\": [1", "\"left\": [99", "a child that is not there"),
        ("\"left\": [1", "\"left\": [0", "two parents"),
        ("\"feature\": [", "\"feature\": [77", "asks for input"),
        ("\"threshold\": [\"", "\"threshold\": [\"x", "for a number"),
        (
            "\"missing_left\": [",
            "\"missing_left\": [], \"x\": [",
            "unknown field",
        ),
        ("{", "{{", "no JSON"),
        ("{", "not", "no model of trees that is known"),
    ] {
        let error = refused(SAME, (from, to));
        assert!(error.contains(why), "{to}: {error}");
        assert!(error.contains("forest-2.trees.json: "), "{error}");
    }
}

#[test]
fn formats_beyond_what_is_compiled() {
    let scratch = tempfile::tempdir().unwrap();
    let change = |model: &str, trees: &str, from: &str, to: &str| {
        for name in [format!("{model}.toml"), format!("{model}.{trees}")] {
            let text = std::fs::read_to_string(saved_models::folder().join(&name)).unwrap();
            std::fs::write(scratch.path().join(name), text.replace(from, to)).unwrap();
        }
        error_of(&scratch.path().join(format!("{model}.toml")))
    };
    for (model, trees, from, to, why) in [
        (
            "lightgbm-3",
            "trees.txt",
            "num_cat=0",
            "num_cat=1",
            "categorical",
        ),
        (
            "lightgbm-3",
            "trees.txt",
            "objective=multiclass",
            "objective=regression",
            "no classes apart",
        ),
        (
            "lightgbm-3",
            "trees.txt",
            "is_linear=0",
            "is_linear=1",
            "linear",
        ),
        (
            "xgboost-2",
            "trees.json",
            "binary:logistic",
            "reg:squarederror",
            "no classes apart",
        ),
        (
            "xgboost-2",
            "trees.json",
            "gbtree\"",
            "dart\"",
            "only gbtree",
        ),
        (
            "xgboost-2",
            "trees.json",
            "\"attributes\":{",
            "\"attributes\":{\"best_iteration\":\"1\",",
            "best iteration",
        ),
    ] {
        let error = change(model, trees, from, to);
        assert!(error.contains(why), "{to}: {error}");
    }
}

/// Each claim is refused before memory is taken for it.
#[test]
fn counts_that_a_file_does_not_bear_out() {
    let scratch = tempfile::tempdir().unwrap();
    let claim = |model: &str, trees: &str, changes: &[(&str, &str)]| {
        for name in [format!("{model}.toml"), format!("{model}.{trees}")] {
            let mut text = std::fs::read_to_string(saved_models::folder().join(&name)).unwrap();
            if name.ends_with(trees) {
                for (from, to) in changes {
                    assert!(text.contains(from), "{from}");
                    text = text.replace(from, to);
                }
            }
            std::fs::write(scratch.path().join(name), text).unwrap();
        }
        error_of(&scratch.path().join(format!("{model}.toml")))
    };
    for many in ["4000000000", "18446744073709551615"] {
        let error = claim(
            "xgboost-3",
            "trees.json",
            &[("\"num_class\":\"3\"", &format!("\"num_class\":\"{many}\""))],
        );
        assert!(error.contains(&format!("claims {many} classes")), "{error}");
        let classes = [
            ("num_class=3", &*format!("num_class={many}")),
            (
                "num_tree_per_iteration=3",
                &format!("num_tree_per_iteration={many}"),
            ),
        ];
        let error = claim("lightgbm-3", "trees.txt", &classes);
        assert!(error.contains(&format!("claims {many} classes")), "{error}");
    }
    for leaves in [
        "100000000000",
        "9223372036854775807",
        "18446744073709551615",
    ] {
        let leaves = [("num_leaves=", &*format!("num_leaves={leaves}\nwas="))];
        let error = claim("lightgbm-3", "trees.txt", &leaves);
        assert!(
            error.contains("another number of leaves than it says"),
            "{error}"
        );
    }
    let inputs = [(
        "max_feature_idx=",
        "max_feature_idx=18446744073709551615\nwas=",
    )];
    let error = claim("lightgbm-3", "trees.txt", &inputs);
    assert!(error.contains("18446744073709551615 inputs"), "{error}");
    let best = [(
        "\"attributes\":{",
        "\"attributes\":{\"best_iteration\":\"18446744073709551615\",",
    )];
    let error = claim(
        "xgboost-3",
        "trees.json",
        &[
            best[0],
            ("\"num_class\":\"3\"", "\"num_class\":\"1000000\""),
        ],
    );
    assert!(error.contains("claims 1000000 classes"), "{error}");
}

#[test]
fn rows_of_another_kind() {
    let model = Model::load(&saved_models::folder().join("forest-2.toml")).unwrap();
    let rows = rows(&saved_models::folder().join("rows.parquet"));
    let schema = rows.schema();
    let without = |change: fn(arrow_schema::Field) -> arrow_schema::Field| {
        let fields = schema
            .fields()
            .iter()
            .map(|field| change(field.as_ref().clone()));
        let fields: Vec<_> = fields.collect();
        model
            .bind(&arrow_schema::Schema::new(fields))
            .unwrap_err()
            .to_string()
    };
    let error = without(|field| field.clone().with_name(format!("my_{}", field.name())));
    assert!(error.contains("have no column packets"), "{error}");
    let error = without(|field| field.with_metadata([("id".into(), "cic.v1/x".into())].into()));
    assert!(error.contains("packets is cic.v1/x"), "{error}");
    let error = without(|field| field.with_metadata([].into()));
    assert!(error.contains("do not say what packets is"), "{error}");
    let error = without(|field| field.with_data_type(arrow_schema::DataType::Utf8));
    assert!(error.contains("have packets as Utf8"), "{error}");
}
