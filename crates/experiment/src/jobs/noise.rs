//! What else the machine did around a trial: time taken away before and after, and foreign
//! processes during it.

use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use loadgen::Sent;
use probes::foreign::{Foreign, Occupancy};
use sys::clock::{Gaps, gaps};

use super::Outcome;
use crate::cpus;
use crate::plan::Load;

/// How long a look takes on all CPUs together, and the least on each: of a shorter one, a single interrupt
/// would be much.
const LOOK: Duration = Duration::from_millis(100);
const LEAST: Duration = Duration::from_millis(25);
/// More time lost than this, beyond what the machine always loses, flags a trial, in per cent.
const LOST_PCT: f64 = 1.0;
/// How many looks there are before the first trial.
const FIRST_LOOKS: usize = 5;
/// How many looks say what the machine loses of late.
const LATE_LOOKS: usize = 40;
/// How many looks a trial waits for one that finds the machine as usual.
const PATIENCE: usize = 5;
/// A machine that always loses more than this is not quiet, in per cent.
const QUIET_PCT: f64 = 3.0;

/// What the gap detector sees between trials.
///
/// A quiet machine loses time too: to its own timer, and as a guest to its host's, some 10 us a
/// thousand times a second, more in one hour than in another. What all trials meet tells none from
/// the others; what exceeds it does.
#[derive(Debug)]
pub(in crate::jobs) struct Beside {
    /// The looks after trials, the latest last.
    looks: VecDeque<Gaps>,
    /// The latest of all.
    before: Gaps,
}

impl Beside {
    pub(in crate::jobs) fn new() -> Result<Self> {
        let looks = (0..FIRST_LOOKS)
            .map(|_| look())
            .collect::<Result<VecDeque<_>>>()?;
        Ok(Self {
            before: looks.back().copied().unwrap_or_default(),
            looks,
        })
    }

    /// Waits while time is taken away, but not for ever: until a look finds no more lost than is
    /// usual, or `PATIENCE` of them have not.
    pub(in crate::jobs) fn wait(&mut self) -> Result<()> {
        for _ in 0..PATIENCE {
            if !self.disturbed(self.before) {
                break;
            }
            self.before = look()?;
        }
        Ok(())
    }

    fn disturbed(&self, gaps: Gaps) -> bool {
        gaps.lost_pct > self.quiet_pct() + LOST_PCT
    }

    /// What three of four looks stay below.
    fn quiet_pct(&self) -> f64 {
        let mut lost: Vec<f64> = self.looks.iter().map(|gaps| gaps.lost_pct).collect();
        lost.sort_by(f64::total_cmp);
        let third = lost.get(lost.len() * 3 / 4).copied();
        third.unwrap_or_default().min(QUIET_PCT)
    }

    /// The share of a paced load's packets that may be late: one in a hundred, and those that meet
    /// what the machine always takes away.
    pub(in crate::jobs) fn late_share(&self) -> f64 {
        (LOST_PCT + self.quiet_pct()) / 100.0
    }

    /// Looks after a trial, once the machine has come to rest, and notes the worse of the windows
    /// before and after.
    pub(in crate::jobs) fn note(&mut self, foreign: &Foreign, outcome: &mut Outcome) -> Result<()> {
        settle(foreign, &allowed(&[]), &cpus::all()?)?;
        self.judge(look()?, outcome);
        Ok(())
    }

    fn judge(&mut self, after: Gaps, outcome: &mut Outcome) {
        let quiet = self.quiet_pct();
        let lost = self.before.lost_pct.max(after.lost_pct);
        let longest = self.before.longest_ns.max(after.longest_ns);
        for (name, value) in [
            ("tsc_quiet_pct", quiet),
            ("tsc_lost_pct", lost),
            ("tsc_gap_us_max", longest as f64 / 1e3),
        ] {
            outcome.noise.insert(name.to_owned(), value);
        }
        if lost > quiet + LOST_PCT {
            outcome.disturbances.push(format!(
                "CPU taken away for {lost:.1} % of the time beside the trial, {quiet:.1} % being usual"
            ));
        }
        self.before = after;
        self.looks.push_back(after);
        if self.looks.len() > LATE_LOOKS {
            self.looks.pop_front();
        }
    }
}

/// The worst gap figures over all CPUs; never measured during a trial. One CPU at a time: spinning
/// on all of them at once finds what a hypervisor takes back for doing so.
fn look() -> Result<Gaps> {
    let cpus = cpus::all()?;
    let each = (LOOK / u32::try_from(cpus.len())?).max(LEAST);
    let worst = gaps(&cpus, each)?
        .into_iter()
        .max_by(|a, b| a.lost_pct.total_cmp(&b.lost_pct));
    Ok(worst.unwrap_or_default())
}

/// More CPU than this, used by processes that are no part of the trial, flags it, in per cent of the CPUs that the
/// trial may use.
const FOREIGN_PCT: f64 = 2.0;
/// More CPU than this that nobody knows the user of could hide as much.
const UNKNOWN_PCT: f64 = 2.0;

/// How long, and how often, the machine is watched for what still runs.
const BREATH: Duration = Duration::from_millis(10);
const BREATHS: u32 = 40;
/// So many in a row without it: what frees maps starts only once every CPU has let go of them.
const QUIET_BREATHS: u32 = 3;

/// The machine during the loaded part of a trial.
pub(in crate::jobs) struct Watch<'a> {
    foreign: &'a Foreign,
    cpus: Vec<usize>,
    settled: Duration,
    before: Occupancy,
}

impl<'a> Watch<'a> {
    /// Waits until the machine has come to rest but for `own` and this process, and watches it from
    /// then on. What is measured of the load starts after this, or the wait is part of it.
    pub(in crate::jobs) fn start(foreign: &'a Foreign, own: &[u32]) -> Result<Self> {
        Self::start_on(cpus::all()?, foreign, own)
    }

    /// The same for a trial that runs on these CPUs alone: of many, one that is busy would be a small share.
    pub(in crate::jobs) fn start_on(
        cpus: Vec<usize>,
        foreign: &'a Foreign,
        own: &[u32],
    ) -> Result<Self> {
        // Of one trial alone: the table of processes has an end, and who is not in it is not seen.
        foreign.forget()?;
        let settled = settle(foreign, &allowed(own), &cpus)?;
        Ok(Self {
            before: foreign.snapshot()?,
            foreign,
            cpus,
            settled,
        })
    }

    /// Notes which processes beside `own` and this one ran on those CPUs.
    pub(in crate::jobs) fn end(self, own: &[u32], outcome: &mut Outcome) -> Result<()> {
        let after = self.foreign.snapshot()?;
        let allowed = allowed(own);
        let settled = self.settled.as_secs_f64() * 1e3;
        outcome.noise.insert("settled_ms".to_owned(), settled);
        note_foreign(&self.before, &after, &allowed, &self.cpus, outcome);
        Ok(())
    }
}

/// Who used `cpus` between two looks, and for how much of the time nobody knows.
fn note_foreign(
    before: &Occupancy,
    after: &Occupancy,
    allowed: &[u32],
    cpus: &[usize],
    outcome: &mut Outcome,
) {
    let foreign = after.foreign_percent(before, allowed, cpus);
    let unknown = after.unknown_percent(before, cpus);
    let noise = [("foreign_cpu_pct", foreign), ("unknown_cpu_pct", unknown)];
    let noise = noise.map(|(name, value)| (name.to_owned(), value));
    outcome.noise.extend(noise);
    if foreign > FOREIGN_PCT {
        let longest = after.foreign(before, allowed, cpus);
        let name = longest.first().map_or("?", |(name, _)| name.as_str());
        outcome
            .disturbances
            .push(format!("foreign CPU {foreign:.1} %, most by {name}"));
    }
    if unknown > UNKNOWN_PCT {
        outcome
            .disturbances
            .push(format!("CPU of nobody known {unknown:.1} %"));
    }
}

/// `own` and this process.
fn allowed(own: &[u32]) -> Vec<u32> {
    own.iter().copied().chain([std::process::id()]).collect()
}

/// Waits until the kernel's threads are done with what setting up this trial and taking down the
/// last one left them: freed maps and namespaces take them tens of milliseconds. A machine that is
/// busy for other reasons is not waited for longer than that takes.
fn settle(foreign: &Foreign, allowed: &[u32], cpus: &[usize]) -> Result<Duration> {
    let mut quiet = 0;
    for breath in 0..BREATHS {
        let before = foreign.snapshot()?;
        thread::sleep(BREATH);
        let percent = foreign.snapshot()?.foreign_percent(&before, allowed, cpus);
        quiet = if percent < FOREIGN_PCT / 2.0 {
            quiet + 1
        } else {
            0
        };
        if quiet == QUIET_BREATHS {
            return Ok(BREATH * (breath + 1 - QUIET_BREATHS));
        }
    }
    Ok(BREATH * BREATHS)
}

/// Lateness is the generator's own only outside its send; inside, the datapath held it back. `share`
/// of the packets may be late.
pub(in crate::jobs) fn note_generator(outcome: &mut Outcome, sent: &Sent, load: &Load, share: f64) {
    outcome
        .histograms
        .insert("lateness".to_owned(), sent.lateness.clone());
    let interval_ns = load.rate.map_or(0.0, |rate| 1e9 / rate.0);
    let paced = load.rate.is_some_and(|rate| rate.0 <= 100e3);
    let late_at = |quantile| sent.lateness_outside_send.quantile(quantile).unwrap_or(0.0);
    outcome
        .noise
        .insert("lateness_outside_p99_us".to_owned(), late_at(0.99) / 1e3);
    let late = late_at(1.0 - share);
    if paced && late > (interval_ns / 10.0).max(20e3) {
        outcome.disturbances.push(format!(
            "generator late by {:.0} us or more outside its send, {:.1} % of packets",
            late / 1e3,
            share * 100.0
        ));
    }
    if sent.refused > 0 {
        outcome.counts.insert("refused".to_owned(), sent.refused);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use probes::foreign::Process;

    use super::*;

    fn gaps(lost_pct: f64) -> Gaps {
        Gaps {
            lost_pct,
            ..Gaps::default()
        }
    }

    /// Whether each trial is flagged, with these looks before the first and after each.
    fn flags(first: [f64; FIRST_LOOKS], after: &[f64]) -> Vec<bool> {
        let mut beside = Beside {
            looks: first.map(gaps).into(),
            before: gaps(first[FIRST_LOOKS - 1]),
        };
        let judged = after.iter().map(|&lost| {
            let mut outcome = Outcome::default();
            beside.judge(gaps(lost), &mut outcome);
            !outcome.disturbances.is_empty()
        });
        judged.collect()
    }

    #[test]
    fn what_the_machine_always_loses_flags_nothing() {
        assert_eq!(flags([1.5, 1.4, 9.0, 1.6, 1.5], &[1.5, 2.4]), [false; 2]);
    }

    #[test]
    fn a_disturbance_flags_the_trials_on_both_sides_of_its_look() {
        let flagged = flags([0.1; FIRST_LOOKS], &[0.1, 1.3, 0.1, 0.1]);
        assert_eq!(flagged, [false, true, true, false]);
    }

    #[test]
    fn a_machine_that_has_come_to_lose_more_is_no_longer_disturbed() {
        let flagged = flags([0.1; FIRST_LOOKS], &[1.5; LATE_LOOKS]);
        assert!(flagged[0] && !flagged[LATE_LOOKS - 1]);
    }

    /// What is said of 10 ms on two CPUs of which the second was nobody's for so long, and another's.
    fn noted(unknown_ns: u64, foreign_ns: u64, cpus: &[usize]) -> Vec<String> {
        let at = |at_ns, unknown_ns, ns| Occupancy {
            at_ns,
            processes: [(
                7,
                Process {
                    comm: "cc".to_owned(),
                    ns: vec![0, ns],
                },
            )]
            .into(),
            unknown_ns: vec![0, unknown_ns],
        };
        let (before, after) = (at(0, 5, 9), at(10_000_000, 5 + unknown_ns, 9 + foreign_ns));
        let mut outcome = Outcome::default();
        note_foreign(&before, &after, &[], cpus, &mut outcome);
        outcome.disturbances
    }

    #[test]
    fn a_trial_of_which_too_much_is_unknown_is_flagged() {
        assert_eq!(noted(390_000, 390_000, &[0, 1]), [""; 0]);
        assert_eq!(noted(420_000, 0, &[0, 1]), ["CPU of nobody known 2.1 %"]);
        // Of the CPUs that it runs on, and no others.
        assert_eq!(noted(9_000_000, 9_000_000, &[0]), [""; 0]);
        let both = noted(250_000, 300_000, &[1]);
        assert_eq!(
            both,
            [
                "foreign CPU 3.0 %, most by cc (7)",
                "CPU of nobody known 2.5 %"
            ]
        );
    }

    #[test]
    fn a_trial_is_watched_whatever_ran_before_it() {
        if !sys::require::root() {
            return;
        }
        let foreign = Foreign::attach().unwrap();
        let ran = || {
            let mut child = Command::new("true").spawn().unwrap();
            child.wait().unwrap();
            child.id()
        };
        let earlier = ran();
        assert!(foreign.snapshot().unwrap().processes.contains_key(&earlier));
        let watch = Watch::start(&foreign, &[]).unwrap();
        assert!(!watch.before.processes.contains_key(&earlier));
        let during = ran();
        let processes = foreign.snapshot().unwrap().processes;
        assert!(processes.contains_key(&during) && !processes.contains_key(&earlier));
        watch.end(&[], &mut Outcome::default()).unwrap();
    }

    #[test]
    fn packets_may_be_late_for_what_is_usually_lost_and_no_more() {
        let share = |lost| {
            let beside = Beside {
                looks: [gaps(lost); FIRST_LOOKS].into(),
                before: gaps(lost),
            };
            beside.late_share()
        };
        assert!((share(0.0) - 0.01).abs() < 1e-12);
        assert!((share(1.5) - 0.025).abs() < 1e-12);
        assert!((share(8.0) - 0.04).abs() < 1e-12, "no quiet machine");
    }

    #[test]
    fn a_machine_that_always_loses_much_is_not_quiet() {
        assert_eq!(flags([8.0; FIRST_LOOKS], &[8.0; 50]), [true; 50]);
        assert_eq!(flags([8.0, 8.0, 8.0, 8.0, 3.9], &[3.9]), [false]);
    }
}
