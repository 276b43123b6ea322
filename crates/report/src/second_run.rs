//! Two runs of one experiment as one answer, whose claims need both. No rule over the blocks of one run can tell a slow
//! change of an arm from a difference; another time can.

use stats::{Estimate, Verdict};

use crate::analysis::{Analysis, Row};
use crate::journal::Record;
use crate::pair::{Incomparable, obstacles, other_guests};
use crate::record::Header;

/// What the other run has for a row of this one.
#[derive(Clone, Debug)]
pub struct OtherRow {
    /// None where nothing was measured, or may be said.
    pub estimate: Option<Estimate>,
    pub verdict: Verdict,
    /// The verdict of this run alone.
    pub own_verdict: Verdict,
}

/// The analysis of a run whose claims need the other run too.
///
/// # Errors
/// When they are not of the same experiment, machine and build.
pub fn join<'a>(record: &'a Record, other: &'a Analysis<'a>) -> Result<Analysis<'a>, Incomparable> {
    check(&record.header, &other.record.header)?;
    let reasons = other_guests(record, other.record);
    if !reasons.is_empty() {
        return Err(Incomparable { reasons });
    }
    Ok(Analysis::new(record).joined(other))
}

/// Whether runs with these headers can be joined.
///
/// # Errors
/// When they are not of the same experiment, machine and build.
pub fn check(a: &Header, b: &Header) -> Result<(), Incomparable> {
    let mut reasons = obstacles(a, b);
    let list = |names: &[String]| names.join(", ");
    for (what, then, now) in [
        ("job", a.job.clone(), b.job.clone()),
        ("environment", a.environment.clone(), b.environment.clone()),
        ("baseline", a.baseline.clone(), b.baseline.clone()),
        ("arms", list(&a.arms), list(&b.arms)),
        ("loads", list(&a.loads), list(&b.loads)),
        ("primary metrics", primary(a), primary(b)),
    ] {
        if then != now {
            reasons.push(format!("{what} {then} and {now}"));
        }
    }
    for (what, same) in [
        ("--quick differs", a.quick == b.quick),
        ("other machines differ", a.hosts == b.hosts),
        ("builds of the arms differ", a.builds == b.builds),
        ("external programs differ", a.programs == b.programs),
        (
            "builds of lowroad differ",
            a.machine.get("build") == b.machine.get("build"),
        ),
    ] {
        if !same {
            reasons.push(what.to_owned());
        }
    }
    match reasons.is_empty() {
        true => Ok(()),
        false => Err(Incomparable { reasons }),
    }
}

fn primary(header: &Header) -> String {
    let metrics = header.metrics.iter().filter(|metric| metric.primary);
    let names: Vec<&str> = metrics.map(|metric| metric.name.as_str()).collect();
    names.join(", ")
}

/// Judges a row by its own run and the other one.
pub(crate) fn join_row(row: &mut Row<'_>, other: &Analysis<'_>) {
    let other = other.rows.iter().find(|other| {
        other.metric.name == row.metric.name
            && (other.load, other.baseline) == (row.load, row.baseline)
            && other.arm == row.arm
    });
    let own_verdict = row.verdict();
    let verdict = other.map_or(Verdict::Skipped, Row::verdict);
    row.emulated |= other.is_some_and(|other| other.emulated);
    if let Some(comparison) = &mut row.comparison {
        let own = comparison.reason.take();
        comparison.verdict = both(own_verdict, verdict);
        let doubt = |whose: &str, reason: Option<&str>| {
            format!("{whose}: {}", reason.unwrap_or("no result"))
        };
        let of_other = other.and_then(|other| other.comparison.as_ref()?.reason.as_deref());
        let claims = |verdict| matches!(verdict, Verdict::Better | Verdict::Worse);
        comparison.reason = match (own_verdict, verdict) {
            (Verdict::Unreliable, _) => Some(doubt("this run", own.as_deref())),
            (_, Verdict::Unreliable | Verdict::Skipped) => Some(doubt("the other run", of_other)),
            (own, other) if claims(own) && claims(other) => {
                (own != other).then(|| "each run shows the opposite of the other".to_owned())
            }
            (own, _) if claims(own) => Some("this run alone shows one".to_owned()),
            (_, other) if claims(other) => Some("the other run alone shows one".to_owned()),
            _ => own,
        };
    }
    row.other = Some(OtherRow {
        estimate: other.and_then(Row::estimate).cloned(),
        verdict,
        own_verdict,
    });
}

/// The verdict of two runs.
pub(crate) fn both(own: Verdict, other: Verdict) -> Verdict {
    match (own, other) {
        (Verdict::Skipped, _) => Verdict::Skipped,
        (Verdict::Emulated, _) | (_, Verdict::Emulated) => Verdict::Emulated,
        (Verdict::Unreliable, _)
        | (_, Verdict::Unreliable | Verdict::Skipped)
        | (Verdict::Better, Verdict::Worse)
        | (Verdict::Worse, Verdict::Better) => Verdict::Unreliable,
        (Verdict::Better, Verdict::Better) => Verdict::Better,
        (Verdict::Worse, Verdict::Worse) => Verdict::Worse,
        (Verdict::NoDifference, _) | (_, Verdict::NoDifference) => Verdict::NoDifference,
    }
}
