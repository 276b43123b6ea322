//! Compares, policy by policy, what a fast path delivers with what the kernel alone delivers.
//!
//! A job implements [`Subject`] for its rig. [`compare`] then runs every case on a reference, which leaves all packets
//! to the kernel, and on each datapath, and collects what differs.
#![allow(clippy::print_stdout, reason = "tests print what they measured")]

use std::thread;
use std::time::{Duration, Instant};

use crate::policies::{Case, Outcome};
use crate::zoo::Specimen;

/// Before the first look at what a policy has changed.
const SETTLE: Duration = Duration::from_millis(50);
/// A busy machine gets this long to follow a policy.
const DEADLINE: Duration = Duration::from_secs(30);
/// The kernel alone follows at once, but its packets may be late.
const REFERENCE_DEADLINE: Duration = Duration::from_secs(5);
/// The packets whose outcome is written beside each policy, by family.
const PLAIN: [&str; 2] = ["IPv4 plain", "IPv6 plain"];

/// A running job between a sender and a receiver.
pub trait Subject {
    /// Sets up what the packets of the case with this number need, such as ports of their own: connection tracking
    /// then knows nothing about them from an earlier case.
    fn open(&mut self, number: usize);
    /// Takes back what `open` has set up.
    fn close(&mut self);
    /// Runs a command of a case with the names of this rig.
    ///
    /// # Errors
    /// What the command wrote to its standard error, if it failed.
    fn run(&self, command: &str) -> Result<(), String>;
    /// The packets of the next round, of both families.
    fn zoo(&mut self) -> Vec<Specimen>;
    /// Sends these packets; what the receiver gets, sorted.
    fn deliver(&mut self, specimens: &[Specimen]) -> Vec<String>;
    /// Sends one packet of a family (0: IPv4, 1: IPv6); how it fares.
    fn outcome(&mut self, family: usize, plain: &Specimen) -> Outcome;
    /// What the job says about its datapath, for a failure.
    fn explanation(&self) -> String;
    /// The outcomes that are written beside the case; `None` if the case has none.
    fn expected(&self, case: &Case) -> Option<[Outcome; 2]>;
}

/// Runs the cases on `reference` and on a rig of each datapath, all datapaths at once. Cases that this kernel cannot
/// apply are returned; `new` makes the rig of a datapath in the thread that uses it.
///
/// # Panics
/// Where a datapath delivers other packets than the reference, or by another way than is written beside the case.
pub fn compare<S: Subject>(
    cases: &[Case],
    reference: S,
    datapaths: &[&'static str],
    new: impl Fn(&'static str) -> S + Sync,
) -> Vec<Case> {
    let references = references(cases, reference);
    let check = |datapath| {
        let mut subject = new(datapath);
        let mut failures = Vec::new();
        let mut slowest = Duration::ZERO;
        for (number, (case, reference)) in cases.iter().zip(&references).enumerate() {
            let Some(reference) = reference else { continue };
            subject.open(number);
            subject.run(&case.apply).unwrap();
            thread::sleep(SETTLE);
            match follow(&mut subject, case, reference) {
                Ok(took) => slowest = slowest.max(took),
                Err(difference) => failures.push(format!("{datapath}: {difference}")),
            }
            subject.run(&case.undo).unwrap();
            subject.close();
        }
        println!("{datapath}: the slowest policy held after {slowest:?}");
        failures
    };
    let failures: Vec<String> = thread::scope(|scope| {
        let check = &check;
        let checks: Vec<_> = datapaths
            .iter()
            .map(|datapath| scope.spawn(move || check(datapath)))
            .collect();
        let failures = checks.into_iter().flat_map(|check| check.join().unwrap());
        failures.collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    let unavailable = cases.iter().zip(&references);
    unavailable
        .filter(|(_, reference)| reference.is_none())
        .map(|(case, _)| case.clone())
        .collect()
}

/// What the reference delivers under each case; `None` where the kernel cannot apply it.
fn references<S: Subject>(cases: &[Case], mut subject: S) -> Vec<Option<Vec<String>>> {
    let mut failures = Vec::new();
    let mut reference = |(number, case): (usize, &Case)| {
        subject.open(number);
        if let Err(why) = subject.run(&case.apply) {
            println!("not on this kernel: {}: {why}", case.apply);
            // A part of it may stand.
            let _ = subject.run(&case.undo);
            subject.close();
            return None;
        }
        let pass = |outcome| outcome != Outcome::Refused;
        let expected = subject.expected(case).map(|expected| expected.map(pass));
        if let Some(expected) = expected {
            let started = Instant::now();
            let mut passes = outcomes(&mut subject).map(pass);
            while passes != expected && started.elapsed() < REFERENCE_DEADLINE {
                passes = outcomes(&mut subject).map(pass);
            }
            if passes != expected {
                let difference = format!("{passes:?} for {expected:?}");
                failures.push(format!("reference: {}: passes {difference}", case.apply));
            }
        }
        // A busy machine may be late with a whole round: two empty rounds are no answer where packets pass.
        let passes = expected.is_some_and(|expected| expected.contains(&true));
        let started = Instant::now();
        let zoo = subject.zoo();
        let mut delivered = subject.deliver(&zoo);
        loop {
            let zoo = subject.zoo();
            let again = subject.deliver(&zoo);
            let is_late = passes && again.is_empty() && started.elapsed() < DEADLINE;
            if again == delivered && !is_late {
                break;
            }
            delivered = again;
        }
        subject.run(&case.undo).unwrap();
        subject.close();
        Some(delivered)
    };
    let references = cases.iter().enumerate().map(&mut reference).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    references
}

/// Waits until packets fare as is written beside the case and the same packets as on the reference arrive. How long that
/// took.
fn follow<S: Subject>(
    subject: &mut S,
    case: &Case,
    reference: &[String],
) -> Result<Duration, String> {
    let expected = subject.expected(case);
    let started = Instant::now();
    loop {
        let outcomes = outcomes(subject);
        let zoo = subject.zoo();
        let delivered = subject.deliver(&zoo);
        if expected.is_none_or(|expected| outcomes == expected) && delivered == reference {
            return Ok(started.elapsed());
        }
        if started.elapsed() > DEADLINE {
            return Err(format!(
                "{}: {outcomes:?} for {expected:?}\n{}\nleaked:\n{}\nlost:\n{}",
                case.apply,
                subject.explanation(),
                only(&delivered, reference),
                only(reference, &delivered)
            ));
        }
    }
}

/// How the plain packet of each family fares.
fn outcomes<S: Subject>(subject: &mut S) -> [Outcome; 2] {
    let zoo = subject.zoo();
    [0, 1].map(|family| {
        let plain = zoo.iter().find(|specimen| specimen.name == PLAIN[family]);
        subject.outcome(family, plain.unwrap())
    })
}

/// The packets of `some` that `others` lack, one a line.
fn only(some: &[String], others: &[String]) -> String {
    let only = some.iter().filter(|packet| !others.contains(packet));
    only.cloned().collect::<Vec<_>>().join("\n")
}
