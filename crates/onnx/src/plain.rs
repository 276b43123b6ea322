//! Operators of scikit-learn's preparation, said in plain ones: `ai.onnx.ml`'s Scaler and Imputer.

use tract_onnx::pb::attribute_proto::AttributeType;
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::pb::{AttributeProto, GraphProto, NodeProto, TensorProto};

/// Replaces them where they are.
pub(crate) fn rewrite(graph: &mut GraphProto) -> Result<(), String> {
    let nodes = std::mem::take(&mut graph.node);
    for node in nodes {
        match node.op_type.as_str() {
            "Scaler" => scale(&node, graph)?,
            "Imputer" => impute(&node, graph)?,
            _ => graph.node.push(node),
        }
    }
    Ok(())
}

/// `(x - offset) * scale`, in single precision whatever `x` is.
fn scale(node: &NodeProto, graph: &mut GraphProto) -> Result<(), String> {
    let mut rest = Rest::of(node, graph)?;
    rest.cast();
    rest.by("Sub", "offset");
    rest.by("Mul", "scale");
    rest.end("Identity", &[]);
    Ok(())
}

/// Another value where there is none.
fn impute(node: &NodeProto, graph: &mut GraphProto) -> Result<(), String> {
    let replaced = attribute(node, "replaced_value_float").map_or(0.0, |of| of.f);
    let values = floats(node, "imputed_value_floats");
    if !replaced.is_nan() || values.is_empty() {
        return Err("Imputer: only missing numbers are imputed, with numbers; leave out columns that have none".to_owned());
    }
    let mut rest = Rest::of(node, graph)?;
    rest.cast();
    let value = rest.value.clone();
    rest.add("IsNaN", &[], Vec::new());
    let (missing, values) = (rest.value.clone(), rest.constant("values", values));
    rest.value = missing;
    rest.end("Where", &[values, value]);
    Ok(())
}

/// A row of operators in the place of one.
struct Rest<'a> {
    node: &'a NodeProto,
    graph: &'a mut GraphProto,
    /// What has been made so far.
    value: String,
    output: String,
}

impl<'a> Rest<'a> {
    fn of(node: &'a NodeProto, graph: &'a mut GraphProto) -> Result<Self, String> {
        match (node.input.as_slice(), node.output.as_slice()) {
            ([input], [output]) => Ok(Self {
                node,
                graph,
                value: input.clone(),
                output: output.clone(),
            }),
            _ => Err(format!(
                "{}: has not one input and one output",
                node.op_type
            )),
        }
    }

    fn cast(&mut self) {
        let to = AttributeProto {
            name: "to".to_owned(),
            r#type: AttributeType::Int as i32,
            i: DataType::Float as i64,
            ..AttributeProto::default()
        };
        self.add("Cast", &[], vec![to]);
    }

    /// With an attribute's numbers; leaving them out leaves the value as it is.
    fn by(&mut self, operator: &str, name: &str) {
        let numbers = floats(self.node, name);
        if !numbers.is_empty() {
            let constant = self.constant(name, numbers);
            self.add(operator, &[constant], Vec::new());
        }
    }

    fn constant(&mut self, name: &str, numbers: &[f32]) -> String {
        let name = format!("{}/{name}", self.output);
        self.graph.initializer.push(TensorProto {
            name: name.clone(),
            dims: vec![i64::try_from(numbers.len()).unwrap_or(i64::MAX)],
            data_type: DataType::Float as i32,
            float_data: numbers.to_vec(),
            ..TensorProto::default()
        });
        name
    }

    fn add(&mut self, operator: &str, more: &[String], attribute: Vec<AttributeProto>) {
        let output = format!("{}/{operator}", self.output);
        self.push(operator, more, attribute, output);
    }

    fn end(mut self, operator: &str, more: &[String]) {
        let output = self.output.clone();
        self.push(operator, more, Vec::new(), output);
    }

    fn push(
        &mut self,
        operator: &str,
        more: &[String],
        attribute: Vec<AttributeProto>,
        output: String,
    ) {
        let mut input = vec![std::mem::replace(&mut self.value, output.clone())];
        input.extend_from_slice(more);
        self.graph.node.push(NodeProto {
            name: output.clone(),
            op_type: operator.to_owned(),
            input,
            output: vec![output],
            attribute,
            ..NodeProto::default()
        });
    }
}

pub(crate) fn attribute<'a>(node: &'a NodeProto, name: &str) -> Option<&'a AttributeProto> {
    let mut named = node.attribute.iter();
    named.find(|attribute| attribute.name == name)
}

fn floats<'a>(node: &'a NodeProto, name: &str) -> &'a [f32] {
    attribute(node, name).map_or(&[], |attribute| &attribute.floats)
}
