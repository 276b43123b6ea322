//! Models that are made up: random questions about every column, with thresholds that flows have.

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
pub(crate) const MANY: Shape = Shape {
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

/// A compiled model with thresholds that flows have for values, so that its questions part them.
pub(crate) fn model(seed: u64, shape: Shape, flows: &[Flow]) -> Model {
    let mut dice = Dice(seed);
    let (names, values) = values(flows);
    let mut leaves = Vec::new();
    let width = if shape.classes == 2 { 1 } else { shape.classes };
    let mut trees = Vec::new();
    for _ in 0..shape.trees {
        let splits = (1 << shape.depth) - 1;
        let mut nodes = Vec::new();
        for at in 0..splits {
            let input = dice.below(names.len());
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
    compiled(
        &names,
        &classes,
        shape.packets,
        &base,
        &trees.join(","),
        &leaves,
    )
}

/// A model of these parts.
pub(crate) fn compiled(
    names: &[String],
    actions: &[&str],
    (first, last): (u32, u32),
    base: &[i64],
    trees: &str,
    leaves: &[i64],
) -> Model {
    let columns = names
        .iter()
        .map(|name| format!(r#"{{"id":"tree.v1/{name}","quantity":"integer"}}"#));
    let classes = (0..).zip(actions);
    let classes = classes.map(|(at, action)| format!(r#"{{"name":"class{at}",{action}}}"#));
    let text = format!(
        r#"{{"format":"lowroad-model-1","name":"made","schema":"tree.v1","columns":[{}],"classes":[{}],
            "packets":{{"first":{first},"last":{last}}},"link":{{"sigmoid":1.0}},
            "forest":{{"scale":0,"base":{base:?},"bound":0,"trees":[{trees}],"values":{leaves:?}}}}}"#,
        columns.collect::<Vec<_>>().join(","),
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

/// Each column of `tree.v1`, and its values in these flows.
fn values(flows: &[Flow]) -> (Vec<String>, Vec<Vec<i64>>) {
    let rows = batch(flows);
    let names = rows
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    let columns = rows.columns().iter().map(|column| {
        let column =
            arrow_array::cast::AsArray::as_primitive::<arrow_array::types::UInt64Type>(column);
        column
            .values()
            .iter()
            .map(|value| i64::try_from(*value).unwrap())
            .collect()
    });
    (names, columns.collect())
}

pub(crate) fn batch(flows: &[Flow]) -> arrow_array::RecordBatch {
    let tree = schema::find("tree.v1").unwrap();
    let groups = tree.flow_columns().unwrap();
    let flows: Vec<Box<Flow>> = flows.iter().cloned().map(Box::new).collect();
    Batcher::new(tree.name, groups, &Limits::default())
        .batch(&flows)
        .unwrap()
}
