//! How columns become a model's tensors: one matrix, or a tensor for each.

use onnx_protocol::Column;
use tract_onnx::pb::ValueInfoProto;
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::pb::tensor_shape_proto::dimension::Value as Size;
use tract_onnx::pb::type_proto::{Tensor as TensorType, Value};
use tract_onnx::prelude::{
    DatumType, InferenceFact, IntoTValue, Symbol, TValue, Tensor, ToDim, TractResult,
};
use tract_onnx::tract_hir::infer::{DimFact, ShapeFactoid};

use crate::network::null_remedy;

/// What a model takes, each for some of the columns in their order.
#[derive(Clone, Debug)]
pub(crate) struct Inputs(Vec<Input>);

#[derive(Clone, Copy, Debug)]
struct Input {
    kind: Kind,
    columns: usize,
    /// Rows alone, without an axis for columns.
    flat: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Single,
    Double,
    Int32,
    Int64,
}

impl Inputs {
    /// Those of a file, if these columns fit. Errors go on after its name.
    pub(crate) fn of(
        found: &[&ValueInfoProto],
        columns: &[Column],
        has_nulls: bool,
    ) -> Result<Self, String> {
        let inputs = match found {
            [one] => vec![Input::of(one, columns, has_nulls)?],
            many if many.len() == columns.len() => {
                let pairs = many.iter().zip(columns).enumerate();
                let inputs = pairs.map(|(at, (input, column))| {
                    if !is_named(&input.name, column) {
                        return Err(format!(
                            "calls input {} {}, and the manifest {}: give the columns in the order of the training",
                            at + 1,
                            input.name,
                            column.id
                        ));
                    }
                    Input::of(input, std::slice::from_ref(column), has_nulls)
                });
                inputs.collect::<Result<_, String>>()?
            }
            many => {
                let (many, named) = (many.len(), columns.len());
                return Err(format!(
                    "has {many} inputs, and the manifest names {named} columns"
                ));
            }
        };
        Ok(Self(inputs))
    }

    /// The tensors' types, for any number of rows.
    pub(crate) fn facts(&self, rows: &Symbol) -> impl Iterator<Item = InferenceFact> {
        self.0.iter().map(|input| {
            let mut shape = vec![DimFact::from(rows.to_dim())];
            if !input.flat {
                shape.push(DimFact::from(input.columns.to_dim()));
            }
            InferenceFact::new()
                .with_datum_type(input.kind.datum())
                .with_shape(ShapeFactoid::closed(shape.into()))
        })
    }

    /// The values of columns, which are of one length.
    pub(crate) fn tensors(&self, columns: &[Vec<f64>]) -> TractResult<Vec<TValue>> {
        let mut left = columns;
        let tensors = self.0.iter().map(|input| {
            let (mine, others) = left.split_at(input.columns);
            left = others;
            Ok(input.tensor(mine)?.into_tvalue())
        });
        tensors.collect()
    }
}

impl Input {
    fn of(found: &ValueInfoProto, columns: &[Column], has_nulls: bool) -> Result<Self, String> {
        let name = &found.name;
        let tensor = found.r#type.as_ref().and_then(|kind| kind.value.as_ref());
        let Some(Value::TensorType(tensor)) = tensor else {
            return Err(format!("has input {name} of no type"));
        };
        let kind = Kind::of(tensor.elem_type).ok_or_else(|| {
            format!("has input {name} of a type that is neither float, double, int32 nor int64")
        })?;
        if matches!(kind, Kind::Int32 | Kind::Int64) {
            whole(name, columns, has_nulls)?;
        }
        let flat = flat(name, tensor, columns.len())?;
        Ok(Self {
            kind,
            columns: columns.len(),
            flat,
        })
    }

    fn tensor(&self, columns: &[Vec<f64>]) -> TractResult<Tensor> {
        let rows = columns.first().map_or(0, Vec::len);
        let mut values = Vec::with_capacity(rows * columns.len());
        for row in 0..rows {
            values.extend(columns.iter().map(|column| column[row]));
        }
        let shape = [rows, self.columns];
        let shape = if self.flat { &shape[..1] } else { &shape };
        let tensor = Tensor::from_shape(shape, &values)?;
        Ok(tensor.cast_to_dt(self.kind.datum())?.into_owned())
    }
}

/// Whether an input may mean this column: exporters put `_` for what is no letter and no digit.
fn is_named(input: &str, column: &Column) -> bool {
    let plain = |name: &str| name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    let own = column.id.split_once('/').map_or("", |(_, own)| own);
    [&column.id, own]
        .iter()
        .any(|name| plain(name) == plain(input))
}

/// Whole numbers are not made of others.
fn whole(name: &str, columns: &[Column], has_nulls: bool) -> Result<(), String> {
    for column in columns {
        let id = &column.id;
        if !column.is_integer {
            return Err(format!(
                "takes whole numbers as {name}, and {id} is not one"
            ));
        }
        if has_nulls && !column.replaces_null {
            let remedy = null_remedy(id);
            return Err(format!(
                "takes whole numbers as {name}, and {id} may be null: {remedy}"
            ));
        }
    }
    Ok(())
}

/// Whether it has rows alone; refuses shapes in which rows of these columns do not fit.
fn flat(name: &str, tensor: &TensorType, columns: usize) -> Result<bool, String> {
    let sizes = tensor.shape.iter().flat_map(|shape| &shape.dim);
    let sizes = sizes.map(|size| match &size.value {
        Some(Size::DimValue(fixed)) => usize::try_from(*fixed).ok(),
        _ => None,
    });
    let sizes: Vec<Option<usize>> = sizes.collect();
    if let Some(Some(rows)) = sizes.first() {
        return Err(format!(
            "takes {rows} rows at a time as {name}: export it with a first axis of any length"
        ));
    }
    match sizes.as_slice() {
        [_] if columns == 1 => Ok(true),
        [_, None] => Ok(false),
        [_, Some(size)] if *size == columns => Ok(false),
        [_, Some(size)] => Err(format!(
            "has {size} inputs, and the manifest names {columns} columns"
        )),
        _ => Err(format!(
            "has input {name}, which does not have a row for each flow"
        )),
    }
}

impl Kind {
    fn of(found: i32) -> Option<Self> {
        let kinds = [
            (DataType::Float, Self::Single),
            (DataType::Double, Self::Double),
            (DataType::Int32, Self::Int32),
            (DataType::Int64, Self::Int64),
        ];
        let mut kinds = kinds.into_iter();
        kinds.find_map(|(kind, ours)| (kind as i32 == found).then_some(ours))
    }

    fn datum(self) -> DatumType {
        match self {
            Self::Single => DatumType::F32,
            Self::Double => DatumType::F64,
            Self::Int32 => DatumType::I32,
            Self::Int64 => DatumType::I64,
        }
    }
}
