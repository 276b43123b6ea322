//! Whole experiments on a fake bench with known results: order, interruption, continuation, and arms that the machine
//! lacks.

use std::path::PathBuf;
use std::sync::Arc;

use report::{Analysis, Summary};
use stats::Verdict;

use super::*;

/// A bench that calls a function for each trial.
struct FunctionBench<F>(F);

impl<F: FnMut(&TrialSpec<'_>) -> Result<Outcome>> Bench for FunctionBench<F> {
    fn trial(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome> {
        (self.0)(spec)
    }
}

/// A machine without the arm `quilkin`. Its `xdp` does not apply to several subscribers.
struct LimitedMachine;

impl Requirements for LimitedMachine {
    fn check(&self, arm: &str) -> Result<(), Missing> {
        match arm {
            "quilkin" => Err(Missing::new("quilkin is not installed", "get it && run it")),
            _ => Ok(()),
        }
    }

    fn check_load(&self, _: &Load) -> Result<(), Missing> {
        Ok(())
    }

    fn applies(&self, arm: &str, load: &Load) -> Result<(), Missing> {
        match arm == "xdp" && subscribers(load) > 1 {
            true => Err(Missing::new("it has one subscriber", "leave it out")),
            false => Ok(()),
        }
    }

    fn datapath<'a>(&self, _: &'a str) -> Result<Option<&'a str>, Missing> {
        Ok(None)
    }

    fn applies_in(&self, _: &str, _: &Load, _: &Placement) -> Result<(), Missing> {
        Ok(())
    }
}

/// The folder of an experiment, which can be run and continued, and the flag that interrupts it.
struct Run {
    folder: tempfile::TempDir,
    stop: Arc<AtomicBool>,
}

impl Run {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            stop: Arc::default(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("record.jsonl")
    }

    fn written(&self) -> report::Record {
        report::Record::read(&self.path()).unwrap()
    }

    /// Runs the plan with this seed, or continues it where `resume` is set.
    fn go(
        &self,
        plan: &Plan,
        (seed, resume): (u64, bool),
        requirements: impl Requirements + 'static,
        bench: impl FnMut(&TrialSpec<'_>) -> Result<Outcome> + 'static,
    ) -> Result<End> {
        let options = Options {
            seed,
            resume,
            ..options(1, &self.stop)
        };
        let mut watch = DoneCounts::default();
        let folder = self.folder.path();
        run_with(
            plan,
            folder,
            &options,
            &mut watch,
            |_| Ok(Box::new(requirements)),
            |_| Ok(Box::new(FunctionBench(bench))),
        )
    }
}

fn clean(_: &TrialSpec<'_>) -> Result<Outcome> {
    Ok(Outcome::default())
}

/// Two arms under two loads.
fn two_loads(blocks: usize) -> Plan {
    let mut plan = plan(&["recv", "xdp"]);
    plan.blocks = blocks;
    plan.loads.push(with_subscribers(&plan.loads[0], 16));
    plan
}

/// Identifies each trial, in the order in which they ran.
fn order(trials: &[Trial]) -> Vec<(usize, usize, &str, &str, u8, u64)> {
    let of = |t: &Trial| (t.block, t.order, t.repeat, t.seed);
    let place = trials.iter().map(|trial| {
        let (block, order, repeat, seed) = of(trial);
        let (load, arm) = (trial.load.as_str(), trial.arm.as_str());
        (block, order, load, arm, repeat, seed)
    });
    place.collect()
}

#[test]
fn interrupted_run_continues_as_if_uncut() {
    const BLOCKS: usize = 4;
    /// Trials of a block under one load: the baseline's three and one.
    const SECTION: usize = 4;
    let plan = two_loads(BLOCKS);
    let whole = Run::new();
    let end = whole.go(&plan, (7, false), All, clean).unwrap();
    assert!(matches!(end, End::Complete), "{end:?}");
    let whole = whole.written();
    assert_eq!(whole.trials.len(), BLOCKS * 2 * SECTION);
    for cut in [0, 3, 4, 9, 16, 31] {
        let run = Run::new();
        let stop = Arc::clone(&run.stop);
        stop.store(cut == 0, Ordering::Relaxed);
        let mut ran = 0;
        let end = run.go(&plan, (7, false), All, move |_| {
            ran += 1;
            stop.store(ran == cut, Ordering::Relaxed);
            Ok(Outcome::default())
        });
        let blocks = cut / (2 * SECTION);
        let end = end.unwrap();
        assert!(
            matches!(end, End::Interrupted { blocks: kept } if kept == blocks),
            "{cut}: {end:?}"
        );
        let kept = run.written().trials;
        assert_eq!(kept.len(), cut / SECTION * SECTION, "only whole loads");
        assert_eq!(order(&kept), order(&whole.trials[..kept.len()]), "{cut}");

        run.stop.store(false, Ordering::Relaxed);
        let refused = run.go(&plan, (8, true), All, clean).unwrap_err();
        assert!(
            refused.to_string().contains("another plan (--seed)"),
            "{cut}: {refused:#}"
        );
        let end = run.go(&plan, (7, true), All, clean).unwrap();
        assert!(matches!(end, End::Complete), "{cut}: {end:?}");
        let continued = run.written();
        assert_eq!(continued.header.seed, 7, "{cut}");
        assert_eq!(order(&continued.trials), order(&whole.trials), "{cut}");
    }
}

#[test]
fn trial_that_fails_when_stopped_is_no_failure() {
    let run = Run::new();
    let stop = Arc::clone(&run.stop);
    let end = run.go(&two_loads(2), (7, false), All, move |_| {
        stop.store(true, Ordering::Relaxed);
        anyhow::bail!("its programs have ended")
    });
    let end = end.unwrap();
    assert!(matches!(end, End::Interrupted { blocks: 0 }), "{end:?}");
    assert!(run.written().trials.is_empty());
}

#[test]
fn record_of_other_build_is_not_continued() {
    let plan = two_loads(2);
    let run = Run::new();
    let end = run.go(&plan, (7, false), All, clean).unwrap();
    assert!(matches!(end, End::Complete), "{end:?}");
    let text = std::fs::read_to_string(run.path()).unwrap();
    let header = run.written().header;
    let build = header.machine["build"]["lowroad-compare"].as_str().unwrap();
    let text = text.replace(build, "0123456789abcdef");
    std::fs::write(run.path(), &text).unwrap();
    let mut more = plan;
    more.blocks = 3;
    let refused = run.go(&more, (7, true), All, |_| unreachable!("nothing runs"));
    let error = refused.unwrap_err();
    assert!(error.is::<BadInput>(), "{error:#}");
    let said = error.to_string();
    assert!(
        said.contains("build differ") && said.contains("--out") && said.lines().count() == 1,
        "{said}"
    );
    assert_eq!(std::fs::read_to_string(run.path()).unwrap(), text);
}

#[test]
fn record_is_begun_once_and_continued_where_it_is() {
    let plan = two_loads(2);
    let run = Run::new();
    let absent = run.go(&plan, (7, true), All, clean).unwrap_err();
    assert!(absent.is::<BadInput>(), "{absent:#}");
    assert!(!run.path().exists());
    run.go(&plan, (7, false), All, clean).unwrap();
    let text = std::fs::read_to_string(run.path()).unwrap();
    let there = run.go(&plan, (7, false), All, clean).unwrap_err();
    assert!(there.is::<BadInput>(), "{there:#}");
    assert!(there.to_string().contains("add --resume"), "{there:#}");
    assert_eq!(std::fs::read_to_string(run.path()).unwrap(), text);
    // Nothing is left to run.
    let end = run.go(&plan, (7, true), All, |_| unreachable!("nothing runs"));
    assert!(matches!(end.unwrap(), End::Complete));
}

#[test]
fn run_that_cannot_be_joined_with_another_does_not_begin() {
    let first = Run::new();
    first.go(&two_loads(2), (7, false), All, clean).unwrap();
    let header = first.written().header;
    let again = |plan: &Plan| {
        let run = Run::new();
        let options = Options {
            again: Some(&header),
            ..options(1, &run.stop)
        };
        let ended = run_with(
            plan,
            run.folder.path(),
            &options,
            &mut DoneCounts::default(),
            |_| Ok(Box::new(All)),
            |_| Ok(Box::new(FunctionBench(clean))),
        );
        (ended, run.path().exists())
    };
    let (ended, begun) = again(&two_loads(2));
    assert!(matches!(ended.unwrap(), End::Complete) && begun);
    let mut other = two_loads(2);
    other.arms.push("tc".to_owned());
    other.loads.pop();
    let (ended, begun) = again(&other);
    let error = ended.unwrap_err();
    assert!(error.is::<BadInput>() && !begun, "{error:#}");
    let said = error.to_string();
    assert!(
        said.contains("arms recv, xdp and recv, xdp, tc; loads "),
        "{said}"
    );
}

#[test]
fn missing_arm_is_skipped_with_its_remedy() {
    let mut plan = two_loads(2);
    plan.arms.push("quilkin".to_owned());
    let run = Run::new();
    let end = run.go(&plan, (7, false), LimitedMachine, delayed).unwrap();
    assert!(matches!(end, End::Complete), "{end:?}");
    let record = run.written();
    assert_eq!(record.header.arms, ["recv", "xdp"]);
    // The baseline runs under both loads, and the other arm under the load that applies to it.
    assert_eq!(record.trials.len(), 2 * (4 + 3));
    let under = |load: &Load| {
        let trials = record.trials.iter().filter(|t| t.load == load.label());
        trials.filter(|t| t.arm == "xdp").count()
    };
    assert_eq!((under(&plan.loads[0]), under(&plan.loads[1])), (2, 0));
    let skipped: Vec<_> = record.header.skipped.iter().collect();
    assert_eq!(skipped.len(), 2, "{skipped:?}");
    assert_eq!((&*skipped[0].arm, &skipped[0].load), ("quilkin", &None));
    let load = Some(plan.loads[1].label());
    assert_eq!((&*skipped[1].arm, &skipped[1].load), ("xdp", &load));

    let analysis = Analysis::new(&record);
    let rows = Summary::of(&analysis).results;
    let row = rows.iter().find(|row| row.arm == "quilkin").unwrap();
    assert_eq!(row.verdict, Verdict::Skipped);
    let reason = row.reason.as_deref().unwrap();
    assert!(reason.contains("quilkin is not installed"), "{reason}");
    assert_eq!(row.remedy.as_deref(), Some("get it && run it"));
    let page = report::page(&analysis);
    assert!(page.contains("quilkin is not installed"), "{page}");
    assert!(page.contains("get it &amp;&amp; run it"), "{page}");
}

#[test]
fn missing_baseline_begins_no_record() {
    let mut plan = two_loads(2);
    plan.arms.push("quilkin".to_owned());
    plan.baseline = "quilkin".to_owned();
    let run = Run::new();
    let error = run
        .go(&plan, (7, false), LimitedMachine, clean)
        .unwrap_err();
    assert!(error.is::<crate::CannotRun>(), "{error:#}");
    let said = error.to_string();
    let wanted = "the baseline quilkin cannot run here: quilkin is not installed; get it && run it";
    assert!(said.contains(wanted), "{said}");
    assert!(!run.path().exists());
}

#[test]
fn every_trial_says_what_kept_cpus_awake() {
    let mut plan = two_loads(1);
    plan.idle = IdlePolicy::Burner;
    let run = Run::new();
    // One arm has its own policy.
    let own = |spec: &TrialSpec<'_>| {
        let mut outcome = Outcome::default();
        if spec.arm == "xdp" {
            let none = ("idle".to_owned(), "none".into());
            outcome.environment.extend([none]);
        }
        Ok(outcome)
    };
    run.go(&plan, (7, false), All, own).unwrap();
    for trial in run.written().trials {
        let policy = if trial.arm == "xdp" { "none" } else { "burner" };
        assert_eq!(trial.environment["idle"], policy, "{trial:?}");
    }
}

/// The delay of an arm in microseconds. Each block is slower than the one before it.
fn known_us(spec: &TrialSpec<'_>) -> f64 {
    let us = match spec.arm {
        "xdp" => 5.0,
        "busy" => 30.0,
        _ => 20.0,
    };
    // Random noise of a thousandth to either side.
    let by_chance = (spec.seed % 1001) as f64 / 500.0 - 1.0;
    us * (1.0 + spec.block as f64 / 100.0) * (1.0 + by_chance / 1000.0)
}

fn delayed(spec: &TrialSpec<'_>) -> Result<Outcome> {
    let delay = ("delay_p50".to_owned(), known_us(spec));
    Ok(Outcome {
        values: [delay].into(),
        ..Outcome::default()
    })
}

#[test]
fn report_finds_what_the_bench_does() {
    let mut plan = plan(&["recv", "xdp", "busy", "tc"]);
    plan.blocks = 10;
    let run = Run::new();
    let end = run.go(&plan, (7, false), All, delayed);
    assert!(matches!(end.unwrap(), End::Complete));
    let summary = Summary::from_record(&run.written());
    let of_delay = |arm: &str| {
        let mut rows = summary.results.iter();
        let row =
            rows.find(|row| row.arm == arm && row.baseline == "recv" && row.metric == "delay_p50");
        let row = row.unwrap_or_else(|| panic!("{arm}"));
        (row.verdict, row.ratio.unwrap(), row.n)
    };
    for (arm, verdict, ratio) in [
        ("xdp", Verdict::Better, 0.25),
        ("busy", Verdict::Worse, 1.5),
        ("tc", Verdict::NoDifference, 1.0),
    ] {
        let (found, of_medians, blocks) = of_delay(arm);
        assert_eq!((found, blocks), (verdict, 10), "{arm}");
        assert!(
            (of_medians / ratio - 1.0).abs() < 0.005,
            "{arm}: {of_medians}"
        );
    }
}
