//! Engines that answer the same questions, their passes, and which of them is the best.

use std::time::Duration;

use stats::{Better, Block, Comparison, Effect, Verdict};

/// Looks keys up by one of several engines.
pub(in crate::router) trait Subject {
    /// Looks up all keys of a pattern; how long it took.
    fn pass(&mut self, arm: usize, pattern: usize) -> Duration;

    /// Answers of an arm that are not the oracle's.
    fn wrong(&mut self, arm: usize, pattern: usize) -> u64;
}

/// One engine.
#[derive(Debug)]
pub(in crate::router) struct Arm {
    pub(in crate::router) engine: String,
    /// Of the structure.
    pub(in crate::router) bytes: usize,
    pub(in crate::router) build_s: f64,
    /// Of all patterns.
    pub(in crate::router) wrong: u64,
    /// Of each pattern, nanoseconds for a key in each round.
    pub(in crate::router) ns: Vec<Vec<f64>>,
}

pub(in crate::router) struct Group {
    pub(in crate::router) name: &'static str,
    /// What is looked up in, for people.
    pub(in crate::router) about: String,
    pub(in crate::router) patterns: Vec<&'static str>,
    /// Answers of each pattern that were compared with the oracle's.
    pub(in crate::router) checked: usize,
    pub(in crate::router) arms: Vec<Arm>,
    keys: usize,
    /// The first arm's second run in each round.
    again: Vec<Vec<f64>>,
    subject: Box<dyn Subject>,
}

/// The best engine with one pattern.
#[derive(Debug)]
pub(in crate::router) struct Best {
    /// Its place among the arms.
    pub(in crate::router) arm: usize,
    /// Arms that may be as good.
    pub(in crate::router) ties: Vec<usize>,
    /// How much slower another one must be to be told from it.
    pub(in crate::router) smallest_detectable: Option<f64>,
}

impl Group {
    /// Checks every answer, too.
    pub(in crate::router) fn new(
        name: &'static str,
        about: String,
        patterns: Vec<&'static str>,
        (keys, checked): (usize, usize),
        engines: Vec<(String, usize, f64)>,
        mut subject: Box<dyn Subject>,
    ) -> Self {
        let count = patterns.len();
        let arms = engines.into_iter().enumerate();
        let arms = arms.map(|(at, (engine, bytes, build_s))| Arm {
            engine,
            bytes,
            build_s,
            wrong: (0..count).map(|pattern| subject.wrong(at, pattern)).sum(),
            ns: vec![Vec::new(); count],
        });
        Self {
            name,
            about,
            arms: arms.collect(),
            patterns,
            checked,
            keys,
            again: vec![Vec::new(); count],
            subject,
        }
    }

    /// Every arm with every pattern, the first arm twice: an arm beyond the last is that.
    pub(in crate::router) fn passes(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (arms, patterns) = (self.arms.len() + 1, self.patterns.len());
        (0..arms).flat_map(move |arm| (0..patterns).map(move |pattern| (arm, pattern)))
    }

    pub(in crate::router) fn pass(&mut self, arm: usize, pattern: usize) {
        let (which, into) = match self.arms.get_mut(arm) {
            Some(one) => (arm, &mut one.ns[pattern]),
            None => (0, &mut self.again[pattern]),
        };
        let took = self.subject.pass(which, pattern);
        into.push(took.as_secs_f64() * 1e9 / per(self.keys));
    }

    /// Forgets passes of a round that is not whole.
    pub(in crate::router) fn whole_rounds(&mut self) {
        let all = self.arms.iter().flat_map(|arm| &arm.ns);
        let least = all.chain(&self.again).map(Vec::len).min().unwrap_or(0);
        let all = self.arms.iter_mut().flat_map(|arm| &mut arm.ns);
        all.chain(&mut self.again).for_each(|ns| ns.truncate(least));
    }

    pub(in crate::router) fn is_unmeasured(&self) -> bool {
        self.again.iter().all(Vec::is_empty)
    }

    pub(in crate::router) fn wrong(&self) -> u64 {
        self.arms.iter().map(|arm| arm.wrong).sum()
    }

    /// The arm with the least median, and those that cannot be told from it: of each other arm the
    /// interval of its ratio to the best, round by round, includes 1 or the first arm's against itself.
    pub(in crate::router) fn best(&self, pattern: usize) -> Option<Best> {
        let median = |arm: usize| stats::median(&self.arms[arm].ns[pattern]);
        let all = 0..self.arms.len();
        let best = all
            .clone()
            .filter(|arm| median(*arm).is_some())
            .min_by(|one, other| {
                median(*one)
                    .partial_cmp(&median(*other))
                    .unwrap_or(std::cmp::Ordering::Equal)
            })?;
        let others = all.filter(|arm| *arm != best);
        let compared: Vec<_> = others
            .map(|arm| (arm, self.compare(arm, best, pattern)))
            .collect();
        let told = |(_, comparison): &&(usize, Comparison)| comparison.verdict != Verdict::Worse;
        let smallest = compared.iter().filter_map(|(_, comparison)| {
            comparison
                .clean
                .as_ref()
                .and_then(|estimate| estimate.smallest_detectable)
        });
        Some(Best {
            arm: best,
            ties: compared.iter().filter(told).map(|(arm, _)| *arm).collect(),
            smallest_detectable: smallest.reduce(f64::max),
        })
    }

    fn compare(&self, arm: usize, with: usize, pattern: usize) -> Comparison {
        let ns = |arm: usize| &self.arms[arm].ns[pattern];
        let same = ns(0)
            .iter()
            .copied()
            .zip(self.again[pattern].iter().copied());
        let pairs = ns(arm).iter().zip(ns(with)).zip(same);
        let blocks: Vec<Block> = pairs
            .map(|((arm, baseline), aa)| Block {
                arm: *arm,
                baseline: *baseline,
                aa: Some(aa),
            })
            .collect();
        Comparison::new(Effect::Ratio, Better::Lower, &blocks, &blocks, None)
    }
}

#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 keys")]
fn per(keys: usize) -> f64 {
    keys as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arms of which the second takes twice as long, and the third as long as the first.
    struct Fed(u64);

    impl Subject for Fed {
        fn pass(&mut self, arm: usize, _pattern: usize) -> Duration {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let noise = self.0 >> 54;
            Duration::from_nanos([100_000, 200_000, 100_000][arm] + noise)
        }

        fn wrong(&mut self, arm: usize, _pattern: usize) -> u64 {
            u64::from(arm == 1)
        }
    }

    fn group() -> Group {
        let engines = ["a", "b", "c"].map(|name| (name.to_owned(), 1, 0.1));
        Group::new(
            "IPv4",
            String::new(),
            vec!["uniform"],
            (1000, 10),
            engines.into(),
            Box::new(Fed(1)),
        )
    }

    #[test]
    fn the_best_is_named_with_those_that_are_as_good() {
        let mut group = group();
        assert!(group.is_unmeasured() && group.best(0).is_none());
        assert_eq!(group.wrong(), 1);
        for _ in 0..20 {
            for (arm, pattern) in group.passes() {
                group.pass(arm, pattern);
            }
        }
        let best = group.best(0).unwrap();
        assert!([0, 2].contains(&best.arm));
        assert_eq!(best.ties, [2 - best.arm], "b is slower");
        assert!(best.smallest_detectable.is_some_and(|share| share < 0.05));
        assert!((stats::median(&group.arms[1].ns[0]).unwrap() - 200.0).abs() < 2.0);
    }

    #[test]
    fn rounds_that_were_cut_short_do_not_count() {
        let mut group = group();
        for (arm, pattern) in group.passes().chain([(0, 0), (1, 0)]) {
            group.pass(arm, pattern);
        }
        group.whole_rounds();
        assert!(group.arms.iter().all(|arm| arm.ns[0].len() == 1));
    }
}
