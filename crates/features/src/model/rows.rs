//! Computes classes and scores for rows.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Schema};

use super::integer::MISSING;
use super::quantity::double;
use super::{Column, Error, Model, Quantity};

/// The positions of a model's columns in rows of a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places(Vec<usize>);

/// The class of each row and its probability; NaN if a floating-point model has no result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    pub classes: Vec<usize>,
    pub probabilities: Vec<f64>,
}

impl Model {
    /// Computes the class of each row. The rows must have the schema of `places`.
    pub fn score(&self, places: &Places, rows: &RecordBatch) -> Scores {
        let inputs: Vec<Vec<i64>> = places.integers(&self.columns, rows).collect();
        let mut scores = Scores::default();
        let (mut row, mut sums) = (Vec::new(), Vec::new());
        for at in 0..rows.num_rows() {
            row.clear();
            row.extend(inputs.iter().map(|column| column[at]));
            let class = self.forest.decide(&row, &mut sums);
            scores.classes.push(class);
            scores.probabilities.push(self.probability(&sums, class));
        }
        scores
    }

    /// The probability of a class, given the sums of the outputs.
    pub fn probability(&self, sums: &[i64], class: usize) -> f64 {
        let unit = (-f64::from(self.forest.scale)).exp2();
        let number = |sum: &i64| Quantity::Integer.number(*sum) * unit;
        let sums: Vec<f64> = sums.iter().map(number).collect();
        if let [_] = sums.as_slice() {
            let second = self.link.probability(&sums, 0);
            return if class == 1 { second } else { 1.0 - second };
        }
        self.link.probability(&sums, class)
    }
}

impl Places {
    /// The model's columns in rows, as floating-point models receive them: NaN is a missing value.
    pub fn numbers(
        &self,
        columns: &[Column],
        rows: &RecordBatch,
    ) -> impl Iterator<Item = Vec<f64>> {
        let number = |quantity: Quantity, value| match value {
            MISSING => f64::NAN,
            value => quantity.number(value),
        };
        let inputs = self.integers(columns, rows).zip(columns);
        inputs.map(move |(values, column)| {
            let values = values.into_iter();
            values.map(|value| number(column.quantity, value)).collect()
        })
    }

    fn integers(&self, columns: &[Column], rows: &RecordBatch) -> impl Iterator<Item = Vec<i64>> {
        let inputs = self.0.iter().zip(columns);
        inputs.map(|(place, column)| column.integers(rows.column(*place)))
    }
}

/// Finds a model's columns in a schema by their definitions.
pub fn places(model: &str, columns: &[Column], schema: &Schema) -> Result<Places, Error> {
    let places = columns.iter().map(|column| column.place(model, schema));
    Ok(Places(places.collect::<Result<_, Error>>()?))
}

impl Column {
    fn place(&self, model: &str, schema: &Schema) -> Result<usize, Error> {
        let name = self.id.split_once('/').map_or("", |(_, name)| name);
        let refuse = |what: String| Err(Error::Rows(what));
        let Some((place, field)) = schema.fields().find(name) else {
            return refuse(format!(
                "the rows have no column {name}: the model {model} asks for {}",
                self.id
            ));
        };
        match field.metadata().get("id") {
            Some(id) if *id == self.id => {}
            Some(id) => {
                return refuse(format!(
                    "the rows' {name} is {id}, and the model {model} was made for {}",
                    self.id
                ));
            }
            None => {
                return refuse(format!(
                    "the rows do not say what {name} is: give Parquet or Arrow rows as lowroad wrote them"
                ));
            }
        }
        if quantity(field.data_type()) == Some(self.quantity) {
            return Ok(place);
        }
        refuse(format!(
            "the rows have {name} as {}, which the model {model} does not take",
            field.data_type()
        ))
    }

    /// The integers that the trees compare.
    fn integers(&self, values_of: &dyn Array) -> Vec<i64> {
        let mut values = values(values_of);
        let Some(null) = self.null else {
            return values;
        };
        let null = match self.quantity {
            Quantity::Integer => null,
            Quantity::Double => double(Quantity::Integer.number(null)),
        };
        let missing = values.iter_mut().filter(|value| **value == MISSING);
        missing.for_each(|value| *value = null);
        values
    }
}

fn quantity(kind: &DataType) -> Option<Quantity> {
    if kind.is_integer() || *kind == DataType::Boolean {
        return Some(Quantity::Integer);
    }
    (*kind == DataType::Float64).then_some(Quantity::Double)
}

/// A column as integers in their order.
fn values(column: &dyn Array) -> Vec<i64> {
    macro_rules! integers {
        ($kind:ty) => {
            column
                .as_primitive::<$kind>()
                .iter()
                .map(|value| value.map_or(MISSING, i64::from))
                .collect()
        };
    }
    match column.data_type() {
        DataType::UInt8 => integers!(UInt8Type),
        DataType::UInt16 => integers!(UInt16Type),
        DataType::UInt32 => integers!(UInt32Type),
        DataType::Int8 => integers!(Int8Type),
        DataType::Int16 => integers!(Int16Type),
        DataType::Int32 => integers!(Int32Type),
        DataType::Int64 => integers!(Int64Type),
        DataType::UInt64 => {
            let values = column.as_primitive::<UInt64Type>().iter();
            let most = |value| i64::try_from(value).unwrap_or(i64::MAX);
            values.map(|value| value.map_or(MISSING, most)).collect()
        }
        DataType::Boolean => {
            let values = column.as_boolean().iter();
            values
                .map(|value| value.map_or(MISSING, i64::from))
                .collect()
        }
        // The only other type that is bound.
        _ => {
            let values = column.as_primitive::<Float64Type>().iter();
            values.map(|value| value.map_or(MISSING, double)).collect()
        }
    }
}
