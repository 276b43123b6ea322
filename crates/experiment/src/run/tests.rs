//! How a block is run: what is tried again, and what is left as it came out.

use datapath::Missing;

use super::*;
use crate::jobs::Inside;
use crate::plan::Load;

/// A bench whose trials come out as told, and then clean.
struct Told(Vec<Outcome>);

impl Bench for Told {
    fn trial(&mut self, _: &TrialSpec<'_>) -> Result<Outcome> {
        let next = (!self.0.is_empty()).then(|| self.0.remove(0));
        Ok(next.unwrap_or_default())
    }
}

/// A machine that runs everything.
struct All;

impl Fit for All {
    fn check(&self, _: &str) -> Result<(), Missing> {
        Ok(())
    }

    fn check_load(&self, _: &Load) -> Result<(), Missing> {
        Ok(())
    }

    fn applies(&self, _: &str, _: &Load) -> Result<(), Missing> {
        Ok(())
    }

    fn placed<'a>(&self, _: &'a str) -> Result<Option<&'a str>, Missing> {
        Ok(None)
    }

    fn applies_in(&self, _: &str, _: &Load, _: &Inside) -> Result<(), Missing> {
        Ok(())
    }
}

#[derive(Default)]
struct Done(Vec<usize>);

impl Watch for Done {
    fn begin(&mut self, _: &Header, _: usize, _: f64) {}
    fn trial(&mut self, _: &Trial, done: usize) {
        self.0.push(done);
    }
    fn block(&mut self, _: &[Trial], _: usize, _: usize) {}
}

/// The first block of one arm, three trials, by a bench that gives these first.
fn block(attempts: u8, outcomes: &[Outcome]) -> (Vec<Trial>, Vec<usize>) {
    let plan = Plan::find("relay-delay").unwrap();
    let mut plan = plan.narrowed(true, &["xdp".to_owned()], None).unwrap();
    plan.loads.truncate(1);
    let stop = AtomicBool::new(false);
    let mut runner = Runner {
        plan: &plan,
        fit: &All,
        bench: &mut Told(outcomes.to_vec()),
        stop: &stop,
        attempts,
        seed: 1,
        started: Instant::now(),
        failures: BTreeMap::new(),
    };
    let mut done = Done::default();
    let trials = runner.block(0, &mut 0, &mut done).unwrap().unwrap();
    (trials, done.0)
}

fn disturbed() -> Outcome {
    Outcome {
        disturbances: vec!["disturbed".to_owned()],
        ..Outcome::default()
    }
}

fn places(trials: &[Trial]) -> Vec<(usize, u8)> {
    trials.iter().map(|t| (t.order, t.attempt)).collect()
}

#[test]
fn a_disturbed_trial_is_tried_again_with_the_same_seed_and_kept() {
    let (trials, done) = block(ATTEMPTS, &[Outcome::default(), disturbed(), disturbed()]);
    assert_eq!(places(&trials), [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0)]);
    assert_eq!(done, [1, 1, 1, 2, 3]);
    assert_eq!(trials[1].flags, ["disturbed"]);
    assert!(trials[3].is_clean() && report::record::flagged(&trials).is_empty());
    assert_eq!(trials[1].seed, trials[3].seed);
}

#[test]
fn a_trial_that_stays_disturbed_flags_its_block() {
    let (trials, _) = block(ATTEMPTS, &[disturbed(), disturbed(), disturbed()]);
    assert_eq!(places(&trials), [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0)]);
    assert_eq!(report::record::flagged(&trials), [&trials[2]]);
}

#[test]
fn a_trial_is_tried_as_often_as_is_asked_for() {
    let all = [disturbed(), disturbed(), disturbed(), disturbed()];
    let (trials, done) = block(1, &all);
    assert_eq!(places(&trials), [(0, 0), (1, 0), (2, 0)]);
    assert_eq!(done, [1, 2, 3]);
    let (trials, _) = block(4, &all);
    assert_eq!(trials.len(), 4 + 2);
    assert!(!trials[3].is_clean());
}

#[test]
fn what_is_wrong_by_itself_is_not_tried_away() {
    let wrong = Outcome {
        flags: vec!["losses that nobody counted".to_owned()],
        ..disturbed()
    };
    let (trials, _) = block(ATTEMPTS, &[wrong]);
    assert_eq!(places(&trials), [(0, 0), (1, 0), (2, 0)]);
    assert_eq!(trials[0].flags.len(), 2);
}
