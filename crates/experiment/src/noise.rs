//! Noise around a trial: CPU time that is stolen before and after it, and foreign processes during it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use loadgen::SendReport;
use probes::occupancy::{Occupancy, OccupancyProbe};
use sys::clock::{Gaps, gaps};
use units::Pps;

use crate::cpus;
use crate::outcome::Outcome;

/// How long a sample takes on all CPUs together, and at least on each: in a shorter one, a single interrupt would weigh
/// too much.
const SAMPLE_TIME: Duration = Duration::from_millis(100);
const MIN_CPU_SAMPLE_TIME: Duration = Duration::from_millis(25);
/// A trial is flagged if more CPU time is lost than usual and this, in per cent.
const LOST_PCT: f64 = 1.0;
/// How many samples there are before the first trial.
const FIRST_SAMPLES: usize = 5;
/// The number of latest samples that tell what the machine usually loses.
const RECENT_SAMPLES: usize = 40;
/// A machine that always loses more than this is not quiet, in per cent.
const QUIET_PCT: f64 = 3.0;

/// The gaps in CPU time between trials.
///
/// A quiet machine loses time too: to its own timer, and as a guest to its host's, some 10 us a thousand times a
/// second, and more in some hours than in others. Losses that all trials share do not distinguish one of them; only
/// losses beyond them do.
#[derive(Debug)]
pub(crate) struct NoiseMonitor {
    /// The samples after trials, the latest last.
    samples: VecDeque<Gaps>,
    /// The latest of all.
    before: Gaps,
}

impl NoiseMonitor {
    pub(crate) fn new() -> Result<Self> {
        let samples = (0..FIRST_SAMPLES)
            .map(|_| sample())
            .collect::<Result<VecDeque<_>>>()?;
        Ok(Self {
            before: samples.back().copied().unwrap_or_default(),
            samples,
        })
    }

    /// The third quartile of the samples.
    fn quiet_pct(&self) -> f64 {
        let mut lost: Vec<f64> = self.samples.iter().map(|gaps| gaps.lost_pct).collect();
        lost.sort_by(f64::total_cmp);
        let third = lost.get(lost.len() * 3 / 4).copied();
        third.unwrap_or_default().min(QUIET_PCT)
    }

    /// The share of a paced load's packets that may be late: one in a hundred, and those that meet the time that the
    /// machine always loses.
    pub(crate) fn late_share(&self) -> f64 {
        (LOST_PCT + self.quiet_pct()) / 100.0
    }

    /// Takes a sample after a trial, once the machine has come to rest, and notes the worse of the windows
    /// before and after.
    pub(crate) fn note(&mut self, foreign: &OccupancyProbe, outcome: &mut Outcome) -> Result<()> {
        settle(foreign, &allowed(&[]), &cpus::all()?)?;
        self.judge(sample()?, outcome);
        Ok(())
    }

    /// Notes how late a generator was, and flags one at a rate of which more than the usual share of the packets are
    /// late. Only lateness outside of sends is the generator's own; inside, the datapath held it back.
    pub(crate) fn note_generator(
        &self,
        sent: &SendReport,
        rate: Option<Pps>,
        outcome: &mut Outcome,
    ) {
        let share = self.late_share();
        outcome
            .histograms
            .insert("lateness".to_owned(), sent.lateness.clone());
        let interval_ns = rate.map_or(0.0, |rate| 1e9 / f64::from(rate.0));
        let paced = rate.is_some_and(|rate| rate.0 <= 100_000);
        let late_at = |quantile| sent.lateness_outside_send.quantile(quantile).unwrap_or(0.0);
        outcome
            .noise
            .insert("lateness_outside_p99_us".to_owned(), late_at(0.99) / 1e3);
        let late = late_at(1.0 - share);
        if paced && late > (interval_ns / 10.0).max(20e3) {
            outcome.flags.push(format!(
                "generator late by {:.0} us or more outside its send, {:.1} % of packets",
                late / 1e3,
                share * 100.0
            ));
        }
        if sent.refused > 0 {
            outcome.counts.insert("refused".to_owned(), sent.refused);
        }
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
            outcome
                .flags
                .push(format!("CPU stolen {lost:.1} % (usual: {quiet:.1} %)"));
        }
        self.before = after;
        self.samples.push_back(after);
        if self.samples.len() > RECENT_SAMPLES {
            self.samples.pop_front();
        }
    }
}

/// The worst gap figures over all CPUs; never measured during a trial. One CPU at a time: spinning
/// on all of them at once finds what a hypervisor takes back for doing so.
fn sample() -> Result<Gaps> {
    let cpus = cpus::all()?;
    let each = (SAMPLE_TIME / u32::try_from(cpus.len())?).max(MIN_CPU_SAMPLE_TIME);
    let worst = gaps(&cpus, each)?
        .into_iter()
        .max_by(|a, b| a.lost_pct.total_cmp(&b.lost_pct));
    Ok(worst.unwrap_or_default())
}

/// A trial is flagged if processes that do not belong to it use more CPU than this, in per cent of the CPUs that the
/// trial may use.
const FOREIGN_PCT: f64 = 2.0;
/// Unattributed CPU time of more than this could hide as much.
const UNKNOWN_PCT: f64 = 2.0;

/// The interval and the number of samples that wait for the machine to come to rest.
const SETTLE_INTERVAL: Duration = Duration::from_millis(10);
const MAX_SETTLE_SAMPLES: u32 = 40;
/// A machine that did not come to rest the last time is busy for other reasons, and is waited for no longer than this.
const BUSY_SETTLE_SAMPLES: u32 = 4;
/// The machine is at rest after this many quiet samples: maps are freed only once every CPU has released them.
const QUIET_SAMPLES: u32 = 3;

/// The machine during the loaded part of a trial.
pub(crate) struct Watch<'a> {
    foreign: &'a OccupancyProbe,
    cpus: Vec<usize>,
    settled: Duration,
    before: Occupancy,
}

impl<'a> Watch<'a> {
    /// Waits until the machine has come to rest but for `own` and this process, and watches it from
    /// then on. What is measured of the load starts after this, or the wait is part of it.
    pub(crate) fn start(foreign: &'a OccupancyProbe, own: &[u32]) -> Result<Self> {
        Self::start_on(cpus::all()?, foreign, own)
    }

    /// The same for a trial that runs on these CPUs alone: of many, one that is busy would be a small share.
    pub(crate) fn start_on(
        cpus: Vec<usize>,
        foreign: &'a OccupancyProbe,
        own: &[u32],
    ) -> Result<Self> {
        // Only for one trial: the table of processes is limited, and processes beyond it are not seen.
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
    pub(crate) fn end(self, own: &[u32], outcome: &mut Outcome) -> Result<()> {
        let after = self.foreign.snapshot()?;
        let allowed = allowed(own);
        let settled = self.settled.as_secs_f64() * 1e3;
        outcome.noise.insert("settled_ms".to_owned(), settled);
        note_foreign(&self.before, &after, &allowed, &self.cpus, outcome);
        Ok(())
    }
}

/// Notes the foreign and the unattributed CPU time on `cpus` between two snapshots.
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
            .flags
            .push(format!("foreign CPU {foreign:.1} %, most by {name}"));
    }
    if unknown > UNKNOWN_PCT {
        outcome
            .flags
            .push(format!("unattributed CPU time {unknown:.1} %"));
    }
}

/// `own` and this process.
fn allowed(own: &[u32]) -> Vec<u32> {
    own.iter().copied().chain([std::process::id()]).collect()
}

/// Waits until the kernel's threads have finished the work that set-up and tear-down cause: freeing maps and namespaces
/// takes tens of milliseconds. A machine that is busy for other reasons is not waited for any longer.
fn settle(foreign: &OccupancyProbe, allowed: &[u32], cpus: &[usize]) -> Result<Duration> {
    static BUSY: AtomicBool = AtomicBool::new(false);
    let most = match BUSY.load(Ordering::Relaxed) {
        true => BUSY_SETTLE_SAMPLES,
        false => MAX_SETTLE_SAMPLES,
    };
    let mut quiet = 0;
    for number in 0..most {
        let before = foreign.snapshot()?;
        thread::sleep(SETTLE_INTERVAL);
        let percent = foreign.snapshot()?.foreign_percent(&before, allowed, cpus);
        quiet = if percent < FOREIGN_PCT / 2.0 {
            quiet + 1
        } else {
            0
        };
        if quiet == QUIET_SAMPLES {
            BUSY.store(false, Ordering::Relaxed);
            return Ok(SETTLE_INTERVAL * (number + 1 - QUIET_SAMPLES));
        }
    }
    BUSY.store(true, Ordering::Relaxed);
    Ok(SETTLE_INTERVAL * most)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use probes::occupancy::Process;

    use super::*;

    fn gaps(lost_pct: f64) -> Gaps {
        Gaps {
            lost_pct,
            ..Gaps::default()
        }
    }

    /// Whether each trial is flagged, with these samples before the first and after each.
    fn flags(first: [f64; FIRST_SAMPLES], after: &[f64]) -> Vec<bool> {
        let mut monitor = NoiseMonitor {
            samples: first.map(gaps).into(),
            before: gaps(first[FIRST_SAMPLES - 1]),
        };
        let judged = after.iter().map(|&lost| {
            let mut outcome = Outcome::default();
            monitor.judge(gaps(lost), &mut outcome);
            !outcome.flags.is_empty()
        });
        judged.collect()
    }

    #[test]
    fn what_the_machine_always_loses_flags_nothing() {
        assert_eq!(flags([1.5, 1.4, 9.0, 1.6, 1.5], &[1.5, 2.4]), [false; 2]);
    }

    #[test]
    fn a_disturbance_flags_the_trials_on_both_sides_of_its_look() {
        let flagged = flags([0.1; FIRST_SAMPLES], &[0.1, 1.3, 0.1, 0.1]);
        assert_eq!(flagged, [false, true, true, false]);
    }

    #[test]
    fn a_machine_that_has_come_to_lose_more_is_no_longer_disturbed() {
        let flagged = flags([0.1; FIRST_SAMPLES], &[1.5; RECENT_SAMPLES]);
        assert!(flagged[0] && !flagged[RECENT_SAMPLES - 1]);
    }

    /// The flags of 10 ms on two CPUs, of which the second has this unattributed and this foreign time.
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
        outcome.flags
    }

    #[test]
    fn a_trial_of_which_too_much_is_unknown_is_flagged() {
        assert_eq!(noted(390_000, 390_000, &[0, 1]), [""; 0]);
        assert_eq!(noted(420_000, 0, &[0, 1]), ["unattributed CPU time 2.1 %"]);
        // Only the CPUs that it runs on count.
        assert_eq!(noted(9_000_000, 9_000_000, &[0]), [""; 0]);
        let both = noted(250_000, 300_000, &[1]);
        assert_eq!(
            both,
            [
                "foreign CPU 3.0 %, most by cc (7)",
                "unattributed CPU time 2.5 %"
            ]
        );
    }

    #[test]
    fn a_trial_is_watched_whatever_ran_before_it() {
        if !sys::require::root() {
            return;
        }
        let foreign = OccupancyProbe::attach().unwrap();
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
            let monitor = NoiseMonitor {
                samples: [gaps(lost); FIRST_SAMPLES].into(),
                before: gaps(lost),
            };
            monitor.late_share()
        };
        assert!((share(0.0) - 0.01).abs() < 1e-12);
        assert!((share(1.5) - 0.025).abs() < 1e-12);
        assert!((share(8.0) - 0.04).abs() < 1e-12, "no quiet machine");
    }

    #[test]
    fn a_machine_that_always_loses_much_is_not_quiet() {
        assert_eq!(flags([8.0; FIRST_SAMPLES], &[8.0; 50]), [true; 50]);
        assert_eq!(flags([8.0, 8.0, 8.0, 8.0, 3.9], &[3.9]), [false]);
    }
}
