//! Running a block: which trials are tried again, and which are kept as they are.

use datapath::Missing;
use units::Span;

use super::*;
use crate::idle::IdlePolicy;
use crate::jobs::relay::{self, Measure};
use crate::placement::Placement;

mod whole;

/// A bench whose first trials have these outcomes, and the others are clean.
struct FixedBench(Vec<Result<Outcome>>);

impl Bench for FixedBench {
    fn trial(&mut self, _: &TrialSpec<'_>) -> Result<Outcome> {
        let next = (!self.0.is_empty()).then(|| self.0.remove(0));
        next.unwrap_or_else(|| Ok(Outcome::default()))
    }
}

/// A machine that runs everything.
struct All;

impl Requirements for All {
    fn check(&self, _: &str) -> Result<(), Missing> {
        Ok(())
    }

    fn check_load(&self, _: &Load) -> Result<(), Missing> {
        Ok(())
    }

    fn applies(&self, _: &str, _: &Load) -> Result<(), Missing> {
        Ok(())
    }

    fn datapath<'a>(&self, _: &'a str) -> Result<Option<&'a str>, Missing> {
        Ok(None)
    }

    fn applies_in(&self, _: &str, _: &Load, _: &Placement) -> Result<(), Missing> {
        Ok(())
    }
}

#[derive(Default)]
struct DoneCounts(Vec<usize>);

impl Watch for DoneCounts {
    fn begin(&mut self, _: &Header, _: usize, _: f64) {}
    fn trial(&mut self, _: &Trial, done: usize) {
        self.0.push(done);
    }
    fn block(&mut self, _: &[Trial], _: usize, _: f64) {}
}

/// A plan with one load and these arms; the first arm is the baseline.
fn plan(arms: &[&str]) -> Plan {
    let plan = catalog::find("relay-delay").unwrap();
    let arms: Vec<String> = arms.iter().map(|arm| (*arm).to_owned()).collect();
    let mut plan = plan.narrowed(true, &arms, None).unwrap();
    plan.baseline = arms[0].clone();
    plan.loads.truncate(1);
    plan
}

fn of_relay(load: &Load) -> relay::Load {
    let (load, _) = load.of_job::<relay::Load>().unwrap();
    load.clone()
}

fn subscribers(load: &Load) -> usize {
    of_relay(load).subscribers
}

fn with_subscribers(load: &Load, subscribers: usize) -> Load {
    let (load, measure) = load.of_job::<relay::Load>().unwrap();
    let load = relay::Load {
        subscribers,
        ..load.clone()
    };
    Load::new(load, measure)
}

fn options(attempts: u8, stop: &AtomicBool) -> Options<'_> {
    Options {
        quick: true,
        seed: 1,
        attempts,
        resume: false,
        again: None,
        command: "lowroad compare".to_owned(),
        stop,
    }
}

/// Runs with what is told of these blocks, by a bench that gives these first. What it returns comes with the
/// record.
fn with<T>(
    plan: &Plan,
    bench: &mut dyn Bench,
    attempts: u8,
    body: impl FnOnce(&mut Runner<'_>, &mut Record) -> T,
) -> (T, report::Record) {
    let stop = AtomicBool::new(false);
    let folder = tempfile::tempdir().unwrap();
    let options = options(attempts, &stop);
    let mut record = Record::begin(folder.path(), header(plan, &options, Vec::new())).unwrap();
    let pool = InstancePool::new();
    let mut runner = Runner {
        plan,
        requirements: &All,
        bench,
        stop: &stop,
        pool: &pool,
        attempts,
        seed: 1,
        started: Instant::now(),
        failures: BTreeMap::new(),
    };
    let done = body(&mut runner, &mut record);
    let written = report::Record::read(&folder.path().join("record.jsonl"));
    (done, written.unwrap())
}

/// The first block of one arm, three trials, by a bench that gives these first.
fn block(attempts: u8, outcomes: Vec<Result<Outcome>>) -> (Vec<Trial>, Vec<usize>) {
    let mut done = DoneCounts::default();
    let plan = plan(&["xdp"]);
    let mut bench = FixedBench(outcomes);
    let (trials, written) = with(&plan, &mut bench, attempts, |runner, record| {
        let (block, loads) = record.next().unwrap();
        let trials = runner.block(block, &loads, record, &mut 0, &mut done);
        trials.unwrap().unwrap()
    });
    assert_eq!(written.trials, trials);
    (trials, done.0)
}

fn disturbed() -> Outcome {
    Outcome {
        flags: vec!["disturbed".to_owned()],
        ..Outcome::default()
    }
}

fn places(trials: &[Trial]) -> Vec<(usize, u8)> {
    trials.iter().map(|t| (t.order, t.attempt)).collect()
}

#[test]
fn disturbed_trial_counts_as_it_is() {
    let (trials, done) = block(ATTEMPTS, vec![Ok(Outcome::default()), Ok(disturbed())]);
    assert_eq!(places(&trials), [(0, 0), (1, 0), (2, 0)]);
    assert_eq!(done, [1, 2, 3]);
    assert_eq!(trials[1].flags, ["disturbed"]);
}

#[test]
fn failed_trial_is_tried_again_with_the_same_seed() {
    let fault = || Err(anyhow::anyhow!("the generator did not start"));
    let (trials, done) = block(ATTEMPTS, vec![Ok(Outcome::default()), fault()]);
    assert_eq!(places(&trials), [(0, 0), (1, 0), (1, 1), (2, 0)]);
    assert_eq!(done, [1, 1, 2, 3]);
    assert!(trials[1].has_failed() && trials[2].is_clean());
    assert_eq!(trials[1].seed, trials[2].seed);
    let (trials, _) = block(1, vec![fault()]);
    assert_eq!(places(&trials), [(0, 0), (1, 0), (2, 0)]);
    assert!(trials[0].has_failed());
}

#[test]
fn broken_account_is_no_result() {
    let broken = Outcome {
        violations: vec!["unique 9 + missing 0 is not sent 10".to_owned()],
        values: [("delay_p50".to_owned(), 1.0)].into(),
        ..Outcome::default()
    };
    let (trials, _) = block(ATTEMPTS, vec![Ok(broken)]);
    assert_eq!(places(&trials), [(0, 0), (1, 0), (2, 0)]);
    assert!(trials[0].has_failed());
}

#[test]
fn run_ends_before_its_time_limit() {
    let limit = Duration::from_secs(120);
    let seconds = Duration::from_secs;
    let after = |elapsed, done, next| exceeds(limit, seconds(elapsed), Duration::ZERO, done, next);
    assert!(!after(60, 30, 30), "two seconds a trial");
    assert!(after(60, 30, 31));
    assert!(!after(500, 0, 9), "some trials always run");
    let after_set_up = |next| exceeds(limit, seconds(60), seconds(50), 5, next);
    assert!(!after_set_up(30), "two seconds a trial, after 50 seconds");
    assert!(after_set_up(31));
}

/// A bench on which these arms fail.
struct FailingArms(&'static [&'static str]);

impl Bench for FailingArms {
    fn trial(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome> {
        match self.0.contains(&spec.arm) {
            true => {
                Err(testbed::Error::Missing(Missing::new("no engine answers", "start it")).into())
            }
            false => Ok(Outcome::default()),
        }
    }
}

#[test]
fn an_arm_that_keeps_failing_is_left_out_and_the_others_go_on() {
    let mut plan = plan(&["recv", "tc", "xdp"]);
    plan.blocks = 5;
    let (end, written) = with(&plan, &mut FailingArms(&["tc"]), 1, |runner, record| {
        runner.blocks(record, &mut DoneCounts::default()).unwrap()
    });
    assert!(matches!(end, End::Complete), "{end:?}");
    let of = |arm: &str| written.trials.iter().filter(|t| t.arm == arm).count();
    assert_eq!(
        (of("tc"), of("xdp"), of("recv")),
        (FAILURES_IN_A_ROW, 5, 15)
    );
    let skip = written.header.given_up("tc").unwrap();
    assert!(
        skip.reason.contains("3 times in a row up to block 3"),
        "{skip:?}"
    );
    assert!(skip.reason.contains("no engine answers"), "{skip:?}");
    assert_eq!(skip.remedy, "start it");
}

#[test]
fn a_baseline_that_keeps_failing_ends_the_experiment_with_what_there_is() {
    /// Fails from the second block on.
    struct LateFailure;
    impl Bench for LateFailure {
        fn trial(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome> {
            anyhow::ensure!(spec.block == 0, "gone");
            Ok(Outcome::default())
        }
    }
    let plan = plan(&["recv"]);
    let (end, written) = with(&plan, &mut LateFailure, 1, |runner, record| {
        runner.blocks(record, &mut DoneCounts::default()).unwrap()
    });
    let End::Failed { blocks, error } = end else {
        panic!("{end:?}");
    };
    assert_eq!((blocks, written.trials.len()), (1, 3));
    assert!(
        format!("{error:#}").contains("recv failed 3 times in a row"),
        "{error:#}"
    );
}

#[test]
fn a_record_goes_on_with_trials_that_are_measured_as_its_own_are_and_no_others() {
    let stop = AtomicBool::new(false);
    let then = plan(&["recv", "xdp"]);
    let begun = header(&then, &options(1, &stop), Vec::new());
    let refused = |change: fn(&mut Plan)| {
        let mut now = then.clone();
        change(&mut now);
        let same = same_plan(&mut begun.clone(), &now, &options(1, &stop));
        same.err().map(|error| error.to_string())
    };
    assert_eq!(refused(|now| now.blocks += 1), None);
    type Change = (fn(&mut Plan), &'static str);
    let changes: [Change; 5] = [
        (
            |now| {
                let load = &mut now.loads[0];
                load.set_duration(Span(load.duration().0 * 2));
            },
            "measure or duration",
        ),
        (
            |now| now.loads[0] = Load::new(of_relay(&now.loads[0]), Measure::Throughput),
            "measure or duration",
        ),
        (
            |now| {
                let mut load = of_relay(&now.loads[0]);
                load.measure = Some(Measure::Throughput);
                now.loads[0] = Load::new(load, Measure::Throughput);
            },
            "measure or duration",
        ),
        (|now| now.idle = IdlePolicy::CpuDmaLatency, "idle"),
        (|now| now.job = "netbench".to_owned(), "job"),
    ];
    for (change, what) in changes {
        let why = refused(change).unwrap_or_default();
        assert!(why.contains(&format!("another plan ({what})")), "{why}");
    }
}
