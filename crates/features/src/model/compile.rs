//! From trees in floating point to trees in integers that decide alike, for every value of an input.

use super::Error;
use super::forest::{Compare, Forest, Missing, Node, Split, Tree};
use super::integer::{IntegerForest, IntegerNode, IntegerTree, MISSING, index};
use super::quantity::Quantity;

/// An input as the compiler needs to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Input {
    pub(super) name: String,
    pub(super) quantity: Quantity,
    /// Whether a value may be missing.
    pub(super) nullable: bool,
}

/// Compiles a forest that was checked. `probability` is where the second of two classes begins.
pub(super) fn compile(
    forest: &Forest,
    inputs: &[Input],
    probability: f64,
) -> Result<IntegerForest, Error> {
    let scale = scale(forest);
    let bound = fixed_floor(forest.link.sum_at(probability), scale);
    let mut values = Vec::new();
    let trees = forest
        .trees
        .iter()
        .map(|tree| compile_tree(tree, forest, inputs, scale, &mut values));
    Ok(IntegerForest {
        trees: trees.collect::<Result<_, Error>>()?,
        base: forest.base.iter().map(|base| fixed(*base, scale)).collect(),
        scale,
        bound,
        values,
    })
}

/// A step of the way from a tree to its compiled form: what is to be made into the node at `to`.
struct Pending {
    what: What,
    to: usize,
}

#[derive(Clone, Copy)]
enum What {
    Node(usize),
    /// Where zero alone goes to another child than its neighbours: is it below zero, then, is it zero.
    BelowZero(Zero),
    AtZero(Zero),
}

/// A split of LightGBM that takes zero for missing.
#[derive(Clone, Copy)]
struct Zero {
    feature: usize,
    zero: usize,
    others: usize,
}

fn compile_tree(
    tree: &Tree,
    forest: &Forest,
    inputs: &[Input],
    scale: u32,
    values: &mut Vec<i64>,
) -> Result<IntegerTree, Error> {
    let mut made = vec![IntegerNode::Leaf(0)];
    let mut width = 1;
    let mut pending = vec![Pending {
        what: What::Node(0),
        to: 0,
    }];
    while let Some(Pending { what, to }) = pending.pop() {
        let question = match what {
            What::Node(at) => match &tree.nodes[at] {
                Node::Leaf(leaf) => {
                    width = leaf.len();
                    made[to] = IntegerNode::Leaf(count(values.len()));
                    values.extend(leaf.iter().map(|value| fixed(*value, scale)));
                    continue;
                }
                Node::Split(split) => ask(split, forest.compare, &inputs[split.feature])?,
            },
            What::BelowZero(zero) => Question {
                feature: zero.feature,
                threshold: below_zero(inputs[zero.feature].quantity),
                missing_left: false,
                left: What::Node(zero.others),
                right: What::AtZero(zero),
            },
            What::AtZero(zero) => Question {
                feature: zero.feature,
                threshold: 0,
                missing_left: false,
                left: What::Node(zero.zero),
                right: What::Node(zero.others),
            },
        };
        let left = made.len();
        made.extend([IntegerNode::Leaf(0); 2]);
        made[to] = IntegerNode::Split {
            input: count(question.feature),
            threshold: question.threshold,
            missing_left: question.missing_left,
            left: count(left),
            right: count(left + 1),
        };
        for (what, to) in [(question.left, left), (question.right, left + 1)] {
            pending.push(Pending { what, to });
        }
        if made.len() > MAX_NODES {
            return Err(Error::model("a tree has more than a million nodes"));
        }
    }
    Ok(IntegerTree {
        output: count(tree.output),
        width: count(width),
        nodes: made,
    })
}

const MAX_NODES: usize = 1 << 20;

struct Question {
    feature: usize,
    threshold: i64,
    missing_left: bool,
    left: What,
    right: What,
}

fn ask(split: &Split, compare: Compare, input: &Input) -> Result<Question, Error> {
    let threshold = threshold(compare, split.threshold, input.quantity);
    let zero_is_left = threshold >= 0;
    let missing_left = match split.missing {
        Missing::Left | Missing::ZeroLeft => true,
        Missing::Right | Missing::ZeroRight => false,
        Missing::Zero => zero_is_left,
        Missing::Unknown if input.nullable => {
            return Err(Error::model(&format!(
                "{} may be null, and the model was not trained with missing values: give the column a \"null\" value, as the training did",
                input.name
            )));
        }
        Missing::Unknown => false,
    };
    let (left, right) = (What::Node(split.left), What::Node(split.right));
    let zero = |zero, others| {
        What::BelowZero(Zero {
            feature: split.feature,
            zero,
            others,
        })
    };
    let (left, right) = match split.missing {
        Missing::ZeroLeft if !zero_is_left => (left, zero(split.left, split.right)),
        Missing::ZeroRight if zero_is_left => (zero(split.right, split.left), right),
        _ => (left, right),
    };
    Ok(Question {
        feature: split.feature,
        threshold,
        missing_left,
        left,
        right,
    })
}

fn below_zero(quantity: Quantity) -> i64 {
    match quantity {
        Quantity::Integer => -1,
        // The order of doubles has two zeros.
        Quantity::Double => -2,
    }
}

/// The greatest value that goes left, or `MISSING` where none does.
fn threshold(compare: Compare, threshold: f64, quantity: Quantity) -> i64 {
    let is_left = |value| compare.is_left(quantity.number(value), threshold);
    let (mut least, mut greatest) = quantity.range();
    if !is_left(least) {
        return MISSING;
    }
    if is_left(greatest) {
        return i64::MAX;
    }
    // `least` goes left, `greatest` does not, and rounding never changes an order.
    while i128::from(greatest) - i128::from(least) > 1 {
        let middle = i64::midpoint(least, greatest);
        if is_left(middle) {
            least = middle;
        } else {
            greatest = middle;
        }
    }
    least
}

/// The finest scale at which no sum can leave 62 bits.
fn scale(forest: &Forest) -> u32 {
    let greatest = |tree: &Tree| {
        let leaves = tree.nodes.iter().filter_map(|node| match node {
            Node::Leaf(values) => Some(values),
            Node::Split(_) => None,
        });
        leaves
            .flatten()
            .fold(0.0, |most: f64, value| most.max(value.abs()))
    };
    let base = forest
        .base
        .iter()
        .fold(0.0, |most: f64, base| most.max(base.abs()));
    let sum = forest.trees.iter().map(greatest).sum::<f64>() + base;
    (0..=FINEST)
        .rev()
        .find(|scale| sum * power(*scale) < power(MAX_SHIFT))
        .unwrap_or(0)
}

const FINEST: u32 = 60;
const MAX_SHIFT: u32 = 61;

fn power(exponent: u32) -> f64 {
    f64::from(exponent).exp2()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the scale was chosen for it, and what is beyond is the greatest there is"
)]
fn fixed(value: f64, scale: u32) -> i64 {
    (value * power(scale)).round_ties_even() as i64
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a bound beyond all sums is as good as the greatest there is"
)]
fn fixed_floor(value: f64, scale: u32) -> i64 {
    (value * power(scale)).floor() as i64
}

fn count(number: usize) -> u32 {
    debug_assert!(index(u32::MAX) >= number, "trees are bounded");
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::quantity::double;
    use super::*;

    const COMPARES: [Compare; 3] = [
        Compare::SingleAtMost,
        Compare::SingleBelow,
        Compare::DoubleAtMost,
    ];

    /// Numbers of every size, and those beside what rounding to single precision changes.
    fn numbers() -> impl Strategy<Value = i64> {
        (any::<i64>(), 0..64_u32, -3..=3_i64)
            .prop_map(|(number, shift, beside)| (number >> shift).saturating_add(beside))
            .prop_filter("is no number", |number| *number != MISSING)
    }

    proptest! {
        #[test]
        fn integers_are_compared_as_floating_point_compares_them(
            number in numbers(),
            other in numbers(),
            half in any::<bool>(),
        ) {
            let split = Quantity::Integer.number(other) + if half { 0.5 } else { 0.0 };
            for compare in COMPARES {
                let threshold = threshold(compare, split, Quantity::Integer);
                for value in [number, other, other.saturating_sub(1).max(MISSING + 1)] {
                    let is_left = compare.is_left(Quantity::Integer.number(value), split);
                    prop_assert_eq!(value <= threshold, is_left, "{:?} {}", compare, value);
                }
            }
        }

        #[test]
        fn doubles_are_compared_as_they_are(value in any::<f64>(), split in any::<f64>()) {
            prop_assume!(!value.is_nan() && !split.is_nan());
            for compare in COMPARES {
                let threshold = threshold(compare, split, Quantity::Double);
                for value in [value, split, -value, 0.0, -0.0, split.next_up(), split.next_down()] {
                    let is_left = compare.is_left(value, split);
                    prop_assert_eq!(double(value) <= threshold, is_left, "{:?} {}", compare, value);
                }
            }
        }
    }

    #[test]
    fn what_goes_left_always_or_never_has_a_threshold() {
        for (split, left) in [(f64::INFINITY, i64::MAX), (f64::NEG_INFINITY, MISSING)] {
            let threshold = threshold(Compare::DoubleAtMost, split, Quantity::Integer);
            assert_eq!(threshold, left);
        }
    }

    /// A tree that asks one question.
    fn asking(threshold: f64, missing: Missing) -> Forest {
        let split = Split {
            feature: 0,
            threshold,
            missing,
            left: 1,
            right: 2,
        };
        let leaves = [-1.0, 1.0].map(|value| Node::Leaf(vec![value]));
        let [left, right] = leaves;
        Forest {
            names: None,
            inputs: 1,
            labels: None,
            classes: 2,
            compare: Compare::DoubleAtMost,
            link: crate::model::forest::Link::Sigmoid(1.0),
            base: vec![0.0],
            trees: vec![Tree {
                output: 0,
                nodes: vec![Node::Split(split), left, right],
            }],
        }
    }

    #[test]
    fn zero_may_count_as_missing() {
        for quantity in [Quantity::Integer, Quantity::Double] {
            let input = Input {
                name: "x".to_owned(),
                quantity,
                nullable: true,
            };
            for (missing, at_zero) in [(Missing::ZeroLeft, 0), (Missing::ZeroRight, 1)] {
                for threshold in [-7.5, -0.5, 0.0, 1e-9, 7.5] {
                    let forest = asking(threshold, missing);
                    let compiled = compile(&forest, std::slice::from_ref(&input), 0.5).unwrap();
                    for value in [-9, -8, -7, -1, 0, 1, 7, 8] {
                        let natural = usize::from(f64::from(value) > threshold);
                        let expected = if value == 0 { at_zero } else { natural };
                        let value = match quantity {
                            Quantity::Integer => i64::from(value),
                            Quantity::Double => double(f64::from(value)),
                        };
                        let class = compiled.decide(&[value], &mut Vec::new());
                        assert_eq!(class, expected, "{threshold} {value}");
                    }
                    assert_eq!(compiled.decide(&[MISSING], &mut Vec::new()), at_zero);
                }
            }
        }
    }

    #[test]
    fn what_was_never_taught_is_refused() {
        let input = Input {
            name: "iat_min_ns".to_owned(),
            quantity: Quantity::Integer,
            nullable: true,
        };
        let error = compile(&asking(1.0, Missing::Unknown), &[input], 0.5).unwrap_err();
        assert!(error.to_string().contains("iat_min_ns may be null"));
    }
}
