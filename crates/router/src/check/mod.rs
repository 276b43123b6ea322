//! Whether every engine answers what a naive one does, on the tables that people have: at the bounds of
//! every prefix and every rule, and at random. Which tables these are is decided elsewhere.

mod processor;
mod routes;
mod rules;

use std::fmt::{Debug, Display};

pub use processor::processor;
pub use routes::{addresses, tables};
pub use rules::{Keys, packet, rule_set};

/// Maximum number of wrong answers in a result.
const MAX_EXAMPLES: usize = 5;

/// The result of checking one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// Structure, layout and instructions.
    pub engine: String,
    pub keys: usize,
    pub wrong: usize,
    /// The first wrong answers.
    pub first: Vec<WrongAnswer>,
}

/// A wrong answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongAnswer {
    pub key: String,
    pub answer: String,
    pub right: String,
}

/// Compares answers with the right ones.
fn compare<K, T: PartialEq + Copy>(
    engine: String,
    keys: &[K],
    answers: &[T],
    right: &[T],
    show_key: impl Fn(&K) -> String,
    show: impl Fn(T) -> String,
) -> CheckResult {
    let both = answers.iter().zip(right);
    let wrong = || {
        let differ = |(_, (answer, right)): &(&K, (&T, &T))| answer != right;
        keys.iter().zip(both.clone()).filter(differ)
    };
    let first = wrong()
        .take(MAX_EXAMPLES)
        .map(|(key, (answer, right))| WrongAnswer {
            key: show_key(key),
            answer: show(*answer),
            right: show(*right),
        });
    CheckResult {
        engine,
        keys: keys.len(),
        wrong: wrong().count(),
        first: first.collect(),
    }
}

fn engine_name(structure: &str, simd: impl Display) -> String {
    format!("{structure} {simd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_answers_are_counted_and_the_first_shown() {
        let keys: Vec<u32> = (0..20).collect();
        let right: Vec<u16> = (0..20).collect();
        let mut answers = right.clone();
        answers[3..13].fill(99);
        let (key, answer) = (
            |key: &u32| key.to_string(),
            |answer: u16| answer.to_string(),
        );
        let checked = compare("test".into(), &keys, &answers, &right, key, answer);
        assert_eq!(
            (checked.keys, checked.wrong, checked.first.len()),
            (20, 10, MAX_EXAMPLES)
        );
        let WrongAnswer { key, answer, right } = &checked.first[0];
        assert_eq!([key, answer, right], ["3", "99", "3"]);
    }
}
