//! Engines that answer the same questions: their passes in random order, and which of them is the best.

use std::iter;
use std::time::{Duration, Instant};

use process::shutdown::Shutdown;
use router::random::Random;
use stats::{Better, Block, Comparison, Criteria, Effect, Verdict};

/// Work that each of several engines can do.
pub(super) trait Workload {
    /// Does all of a pattern's work. Returns the time that it took.
    fn pass(&mut self, arm: usize, pattern: usize) -> Duration;

    /// Counts an arm's answers that differ from the oracle's.
    fn wrong(&mut self, arm: usize, pattern: usize) -> u64;
}

/// An engine, before it is measured.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    pub(super) name: String,
    /// Of its structures.
    pub(super) bytes: usize,
    /// Seconds to build them.
    pub(super) build_s: f64,
}

/// An engine, and its measurements.
#[derive(Clone, Debug)]
pub struct Arm {
    pub engine: String,
    /// Of its structures.
    pub bytes: usize,
    pub build_s: f64,
    /// Wrong answers to all patterns.
    pub wrong: u64,
    /// For each pattern, the nanoseconds per key in each round.
    pub ns: Vec<Vec<f64>>,
}

/// Engines that do the same work, and their measurements.
#[derive(Clone, Debug)]
pub struct Group {
    pub name: &'static str,
    /// A description of the tables and keys.
    pub about: String,
    pub patterns: Vec<&'static str>,
    /// Answers to each pattern that were compared with the oracle's.
    pub checked: usize,
    pub arms: Vec<Arm>,
    /// The second run of the first arm in each round, as [`Arm::ns`]: it shows the noise.
    pub again: Vec<Vec<f64>>,
}

/// The best engine for a pattern.
#[derive(Clone, Debug)]
pub struct Best {
    /// An index of [`Group::arms`].
    pub arm: usize,
    /// Arms that may be as good.
    pub ties: Vec<usize>,
    /// How much slower another arm must be for a difference to be detected; 0.05 is 5 %.
    pub smallest_detectable: Option<f64>,
}

/// How far a measurement is.
#[derive(Clone, Copy, Debug)]
pub enum Progress {
    /// A round begins; the first one is 1.
    Round {
        round: u16,
        rounds: u16,
        elapsed: Duration,
    },
    Finished,
}

/// A group that is being measured.
pub(super) struct Runner {
    pub(super) group: Group,
    /// Of each pattern.
    keys: usize,
    workload: Box<dyn Workload>,
}

/// Runs every arm with every pattern once a round, in random order, and each group's first arm twice.
pub(super) fn measure(
    runners: &mut [Runner],
    rounds: u16,
    seed: u64,
    shutdown: &Shutdown,
    progress: &mut dyn FnMut(Progress),
) {
    let mut random = Random::new(seed);
    let started = Instant::now();
    for round in 1..=rounds {
        progress(Progress::Round {
            round,
            rounds,
            elapsed: started.elapsed(),
        });
        let mut passes: Vec<(usize, usize, usize)> = runners
            .iter()
            .enumerate()
            .flat_map(|(at, runner)| iter::repeat(at).zip(runner.passes()))
            .map(|(at, (arm, pattern))| (at, arm, pattern))
            .collect();
        random.shuffle(&mut passes);
        for (at, arm, pattern) in passes {
            runners[at].pass(arm, pattern);
            if shutdown.requested() {
                runners.iter_mut().for_each(Runner::discard_partial_round);
                break;
            }
        }
        if shutdown.requested() {
            break;
        }
    }
    progress(Progress::Finished);
}

impl Runner {
    /// Prepares a group, and checks every engine's answers. `keys` and `checked` are numbers for each pattern.
    pub(super) fn new(
        (name, about): (&'static str, String),
        patterns: Vec<&'static str>,
        (keys, checked): (usize, usize),
        engines: Vec<Engine>,
        mut workload: Box<dyn Workload>,
    ) -> Self {
        let count = patterns.len();
        let arms = engines.into_iter().enumerate().map(|(at, engine)| Arm {
            engine: engine.name,
            bytes: engine.bytes,
            build_s: engine.build_s,
            wrong: (0..count).map(|pattern| workload.wrong(at, pattern)).sum(),
            ns: vec![Vec::new(); count],
        });
        let group = Group {
            name,
            about,
            arms: arms.collect(),
            patterns,
            checked,
            again: vec![Vec::new(); count],
        };
        Self {
            group,
            keys,
            workload,
        }
    }

    /// Every arm with every pattern. One arm beyond the last stands for the first arm's second run.
    pub(super) fn passes(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (arms, patterns) = (self.group.arms.len() + 1, self.group.patterns.len());
        (0..arms).flat_map(move |arm| (0..patterns).map(move |pattern| (arm, pattern)))
    }

    pub(super) fn pass(&mut self, arm: usize, pattern: usize) {
        let (arm, ns) = match self.group.arms.get_mut(arm) {
            Some(one) => (arm, &mut one.ns[pattern]),
            None => (0, &mut self.group.again[pattern]),
        };
        let took = self.workload.pass(arm, pattern);
        ns.push(took.as_secs_f64() * 1e9 / float(self.keys));
    }

    fn discard_partial_round(&mut self) {
        let group = &mut self.group;
        let all = group.arms.iter().flat_map(|arm| &arm.ns);
        let least = all.chain(&group.again).map(Vec::len).min().unwrap_or(0);
        let all = group.arms.iter_mut().flat_map(|arm| &mut arm.ns);
        all.chain(&mut group.again)
            .for_each(|ns| ns.truncate(least));
    }
}

impl Group {
    /// Whether no round was completed.
    pub fn is_unmeasured(&self) -> bool {
        self.again.iter().all(Vec::is_empty)
    }

    /// Wrong answers of all arms.
    pub fn wrong(&self) -> u64 {
        self.arms.iter().map(|arm| arm.wrong).sum()
    }

    /// The arm with the least median, and the arms that are not detectably slower: the interval of their
    /// ratio to the best, round by round, includes 1 or the ratio of the first arm to itself. None before
    /// the first round.
    pub fn best(&self, pattern: usize) -> Option<Best> {
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
        let ties = |(_, comparison): &&(usize, Comparison)| comparison.verdict != Verdict::Worse;
        let smallest = compared.iter().filter_map(|(_, comparison)| {
            let estimate = comparison.all.as_ref()?;
            estimate.smallest_detectable(Effect::Ratio)
        });
        Some(Best {
            arm: best,
            ties: compared.iter().filter(ties).map(|(arm, _)| *arm).collect(),
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
                arm: Some(*arm),
                baseline: Some(*baseline),
                aa: Some(aa),
                ..Block::default()
            })
            .collect();
        let rows = self.arms.len();
        let criteria = Criteria::new(Effect::Ratio, Better::Lower, rows);
        Comparison::new(&criteria, &blocks, &blocks)
    }
}

#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 keys")]
fn float(keys: usize) -> f64 {
    keys as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arms of which the second takes twice as long, and the third as long as the first.
    struct Noisy(u64);

    impl Workload for Noisy {
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

    fn runner() -> Runner {
        let engines = ["a", "b", "c"].map(|name| Engine {
            name: name.to_owned(),
            bytes: 1,
            build_s: 0.1,
        });
        Runner::new(
            ("IPv4", String::new()),
            vec!["uniform"],
            (1000, 10),
            engines.into(),
            Box::new(Noisy(1)),
        )
    }

    #[test]
    fn best_arm_is_named_with_its_ties() {
        let mut runner = runner();
        let group = &runner.group;
        assert!(group.is_unmeasured() && group.best(0).is_none());
        assert_eq!(group.wrong(), 1);
        for _ in 0..20 {
            for (arm, pattern) in runner.passes() {
                runner.pass(arm, pattern);
            }
        }
        let group = runner.group;
        let best = group.best(0).unwrap();
        assert!([0, 2].contains(&best.arm));
        assert_eq!(best.ties, [2 - best.arm], "b is slower");
        assert!(best.smallest_detectable.is_some_and(|share| share < 0.05));
        assert!((stats::median(&group.arms[1].ns[0]).unwrap() - 200.0).abs() < 2.0);
    }

    #[test]
    fn partial_rounds_are_discarded() {
        let mut runner = runner();
        for (arm, pattern) in runner.passes().chain([(0, 0), (1, 0)]) {
            runner.pass(arm, pattern);
        }
        runner.discard_partial_round();
        assert!(runner.group.arms.iter().all(|arm| arm.ns[0].len() == 1));
    }
}
