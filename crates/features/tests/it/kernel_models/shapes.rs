//! Models that are made up: random questions about every column, with thresholds that flows have.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::DataType;
use features::batch::Batcher;
use features::flow::{Flow, Limits};
use features::kernel::Image;
use features::model::Model;
use features::schema;

pub(crate) const ONE: Shape = Shape {
    trees: 1,
    depth: 8,
    classes: 2,
    packets: (3, 3),
};
pub(crate) const LARGE: Shape = Shape {
    trees: 32,
    depth: 6,
    classes: 4,
    packets: (2, 5),
};
pub(crate) const WIDE: Shape = Shape {
    trees: 5,
    depth: 8,
    classes: 8,
    packets: (1, 1),
};

/// A multiplicative generator: models differ by seed, and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % most
    }
}

/// What random models are like.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) trees: usize,
    pub(crate) depth: usize,
    pub(crate) classes: usize,
    pub(crate) packets: (u32, u32),
}

/// A compiled model over columns of `tree.v1` with thresholds that flows have for values, so that its questions
/// part them.
pub(crate) fn model(seed: u64, shape: Shape, flows: &[Flow]) -> Model {
    model_of(seed, shape, &Inputs::of("tree.v1", flows))
}

/// The same over other columns.
pub(crate) fn model_of(seed: u64, shape: Shape, inputs: &Inputs) -> Model {
    let mut dice = Dice(seed);
    let values = &inputs.values;
    let mut leaves = Vec::new();
    let width = if shape.classes == 2 { 1 } else { shape.classes };
    let mut trees = Vec::new();
    for _ in 0..shape.trees {
        let splits = (1 << shape.depth) - 1;
        let mut nodes = Vec::new();
        for at in 0..splits {
            let input = dice.below(values.len());
            let column = &values[input];
            let threshold = column[dice.below(column.len())];
            nodes.push(format!(
                r#"{{"split":{{"input":{input},"threshold":{threshold},"missing_left":false,"left":{},"right":{}}}}}"#,
                2 * at + 1,
                2 * at + 2
            ));
        }
        for _ in 0..=splits {
            nodes.push(format!(r#"{{"leaf":{}}}"#, leaves.len()));
            leaves.extend((0..width).map(|_| i64::try_from(dice.below(2001)).unwrap() - 1000));
        }
        let nodes = nodes.join(",");
        trees.push(format!(
            r#"{{"output":0,"width":{width},"nodes":[{nodes}]}}"#
        ));
    }
    let actions = [
        r#""action":"pass""#,
        r#""action":"drop""#,
        r#""action":"sample","one_in":3"#,
        r#""action":"mark","dscp":46"#,
    ];
    let classes: Vec<&str> = actions.into_iter().cycle().take(shape.classes).collect();
    let base = vec![0; width];
    let parts = (shape.packets, &base[..], &trees.join(",")[..], &leaves[..]);
    compile(inputs.schema, &inputs.columns, &classes, parts)
}

/// A model of these parts, over columns of `tree.v1`.
pub(crate) fn compiled(
    names: &[String],
    actions: &[&str],
    packets: (u32, u32),
    base: &[i64],
    trees: &str,
    leaves: &[i64],
) -> Model {
    let columns = names.iter().map(|name| column("tree.v1", name, "integer"));
    let columns: Vec<String> = columns.collect();
    compile("tree.v1", &columns, actions, (packets, base, trees, leaves))
}

/// An input, with 0 in the place of null.
fn column(schema: &str, name: &str, quantity: &str) -> String {
    format!(r#"{{"id":"{schema}/{name}","quantity":"{quantity}","null":0}}"#)
}

/// When a model is asked, its base, trees and leaves.
type Parts<'a> = ((u32, u32), &'a [i64], &'a str, &'a [i64]);

fn compile(
    schema: &str,
    columns: &[String],
    actions: &[&str],
    ((first, last), base, trees, leaves): Parts<'_>,
) -> Model {
    let classes = (0..).zip(actions);
    let classes = classes.map(|(at, action)| format!(r#"{{"name":"class{at}",{action}}}"#));
    let text = format!(
        r#"{{"format":"lowroad-model-1","name":"made","schema":"{schema}","columns":[{}],"classes":[{}],
            "packets":{{"first":{first},"last":{last}}},"link":{{"sigmoid":1.0}},
            "forest":{{"scale":0,"base":{base:?},"bound":0,"trees":[{trees}],"values":{leaves:?}}}}}"#,
        columns.join(","),
        classes.collect::<Vec<_>>().join(","),
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.json");
    std::fs::write(&path, text).unwrap();
    Model::load(&path).unwrap()
}

/// A model that says the second class of everything.
pub(crate) fn always(action: &str) -> Image {
    let tree = r#"{"output":0,"width":1,"nodes":[{"leaf":0}]}"#;
    let actions = [r#""action":"pass""#, action];
    Image::of(&compiled(&[], &actions, (1, 1), &[0], tree, &[1])).unwrap()
}

/// The columns of a schema that the kernel has, and their values in flows.
pub(crate) struct Inputs {
    schema: &'static str,
    pub(crate) columns: Vec<String>,
    /// As trees compare them.
    values: Vec<Vec<i64>>,
}

impl Inputs {
    pub(crate) fn of(schema: &'static str, flows: &[Flow]) -> Self {
        let rows = batch(schema, flows);
        let mut inputs = Self {
            schema,
            columns: Vec::new(),
            values: Vec::new(),
        };
        for (field, array) in rows.schema().fields().iter().zip(rows.columns()) {
            let Some((quantity, values)) = values(array) else {
                continue;
            };
            let column = column(schema, field.name(), quantity);
            if is_in_kernel(schema, &column) {
                inputs.columns.push(column);
                inputs.values.push(values);
            }
        }
        inputs
    }
}

/// Whether the kernel answers a question about this column.
fn is_in_kernel(schema: &str, column: &str) -> bool {
    let question = r#"{"output":0,"width":1,"nodes":[{"split":{"input":0,"threshold":1,"missing_left":false,"left":1,"right":2}},{"leaf":0},{"leaf":1}]}"#;
    let actions = [r#""action":"pass""#; 2];
    let parts = ((1, 1), &[0][..], question, &[-1, 1][..]);
    Image::of(&compile(schema, &[column.to_owned()], &actions, parts)).is_ok()
}

/// What an input of this type is, and its values as trees compare them; none of other types.
fn values(array: &ArrayRef) -> Option<(&'static str, Vec<i64>)> {
    macro_rules! integers {
        ($kind:ty) => {{
            let values = array.as_primitive::<$kind>().iter();
            let values =
                values.map(|value| i64::try_from(value.unwrap_or_default()).unwrap_or(i64::MAX));
            ("integer", values.collect())
        }};
    }
    Some(match array.data_type() {
        DataType::UInt8 => integers!(UInt8Type),
        DataType::UInt16 => integers!(UInt16Type),
        DataType::UInt32 => integers!(UInt32Type),
        DataType::UInt64 => integers!(UInt64Type),
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>().iter();
            // None is negative, and the bits of such doubles are in their order.
            let bits = |value: Option<f64>| value.unwrap_or_default().to_bits().cast_signed();
            ("double", values.map(bits).collect())
        }
        _ => return None,
    })
}

pub(crate) fn batch(schema: &str, flows: &[Flow]) -> RecordBatch {
    let schema = schema::find(schema).unwrap();
    let groups = schema.flow_columns().unwrap();
    let flows: Vec<Box<Flow>> = flows.iter().cloned().map(Box::new).collect();
    Batcher::new(schema.name, groups, &Limits::default())
        .batch(&flows)
        .unwrap()
}
