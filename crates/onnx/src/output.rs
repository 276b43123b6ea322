//! What a model's numbers say: a class for each row, and its probability.

use tract_onnx::prelude::Tensor;

/// For each row, its class and how probable that is; NaN where the numbers are no probabilities.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scores {
    pub(crate) classes: Vec<u32>,
    pub(crate) probabilities: Vec<f64>,
}

/// Sums of single precision may be so far from 1, and of half precision.
const ROUNDING: f64 = 1e-3;

/// The numbers of so many rows, as so many for each: one of two classes may be the second's alone.
pub(crate) fn numbers(tensor: &Tensor, rows: usize, classes: usize) -> Result<Vec<f64>, String> {
    let shape = tensor.shape();
    let width = match shape {
        [first] if *first == rows => 1,
        [first, width] if *first == rows => *width,
        _ => return Err(format!("gives numbers of shape {shape:?} for {rows} rows")),
    };
    if width != classes && (width, classes) != (1, 2) {
        return Err(format!(
            "distinguishes {width} classes, and the manifest names {classes}"
        ));
    }
    let numbers = tensor.cast_to::<f64>().map_err(|error| error.to_string())?;
    let numbers = numbers.to_plain_array_view::<f64>();
    let numbers = numbers.map_err(|error| error.to_string())?;
    Ok(if width == classes {
        numbers.iter().copied().collect()
    } else {
        numbers
            .iter()
            .flat_map(|second| [1.0 - second, *second])
            .collect()
    })
}

/// Whether a row's numbers are the probabilities of classes that exclude each other.
pub(crate) fn is_shares(row: &[f64]) -> bool {
    let within = |share: &f64| (-ROUNDING..=1.0 + ROUNDING).contains(share);
    row.iter().all(within) && (row.iter().sum::<f64>() - 1.0).abs() <= ROUNDING
}

/// The class of each row: of two the second above the threshold, else the first of the most probable. A row
/// whose numbers are no probabilities has NaN.
pub(crate) fn scores(numbers: &[f64], classes: usize, threshold: f64) -> Scores {
    let mut scores = Scores::default();
    for row in numbers.chunks_exact(classes) {
        let class = match row {
            [_, second] => usize::from(*second > threshold),
            many => first_of_greatest(many),
        };
        scores
            .classes
            .push(u32::try_from(class).unwrap_or(u32::MAX));
        let probability = if is_shares(row) {
            row[class].clamp(0.0, 1.0)
        } else {
            f64::NAN
        };
        scores.probabilities.push(probability);
    }
    scores
}

fn first_of_greatest(row: &[f64]) -> usize {
    let mut best = 0;
    for (at, share) in row.iter().enumerate() {
        if *share > row[best] {
            best = at;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equals_the_first_is_taken() {
        let scores = scores(&[0.5, 0.5, 0.4, 0.6], 2, 0.5);
        assert_eq!(scores.classes, [0, 1]);
        assert_eq!(scores.probabilities, [0.5, 0.6]);
        let scores = super::scores(&[0.2, 0.4, 0.4], 3, 0.5);
        assert_eq!(scores.classes, [1]);
    }

    #[test]
    fn the_second_of_two_begins_at_the_threshold() {
        assert_eq!(scores(&[0.2, 0.8], 2, 0.9).classes, [0]);
        assert_eq!(scores(&[0.2, 0.8], 2, 0.7).classes, [1]);
    }

    #[test]
    fn what_is_no_probability_is_none() {
        for row in [
            [f64::NAN, 0.5],
            [2.0, -1.0],
            [0.5, 0.6],
            [f64::INFINITY, 0.0],
        ] {
            assert!(scores(&row, 2, 0.5).probabilities[0].is_nan(), "{row:?}");
        }
        assert_eq!(scores(&[1.000_000_1, -1e-7], 2, 0.5).probabilities, [1.0]);
    }
}
