//! Reads experiment files, and refuses with its line whatever a run could not make sense of.

use std::collections::{BTreeMap, BTreeSet};

use control::config::{Document, Error, Spanned, nearest};
use report::record::{Class, Effect, Headline, Question};
use serde::Deserialize;
use serde::de::IgnoredAny;
use units::Span;

use crate::arms::{CustomArm, ProgramSection};
use crate::bench::Job;
use crate::environment::{self, NATIVE};
use crate::host::RemoteHost;
use crate::idle::IdlePolicy;
use crate::load::{Load, SpannedLoad};
use crate::metrics;
use crate::plan::{Plan, Quick};
use crate::shipped_arms;

/// Fewer blocks give no interval of 95 %.
const MIN_BLOCKS: usize = 6;
const MAX_BLOCKS: usize = 1000;
/// The number of blocks of `--quick` if the file does not set it.
const QUICK_BLOCKS: usize = 10;

/// A file but for its loads and what they measure, which the job reads.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Spanned<String>,
    job: Spanned<String>,
    about: String,
    baseline: Spanned<String>,
    arms: Vec<Spanned<String>>,
    environment: Option<Spanned<String>>,
    blocks: Spanned<usize>,
    #[serde(default)]
    idle: IdlePolicy,
    #[serde(rename = "measure")]
    _measure: IgnoredAny,
    primary: Vec<Spanned<String>>,
    #[serde(rename = "load")]
    _loads: IgnoredAny,
    #[serde(default, rename = "question")]
    questions: Vec<QuestionSection>,
    #[serde(default)]
    origin: Vec<String>,
    #[serde(default)]
    quick: QuickSection,
    /// Other machines, by the arms' names.
    #[serde(default, rename = "host")]
    hosts: BTreeMap<String, Spanned<RemoteHost>>,
    /// External programs.
    #[serde(default, rename = "arm")]
    programs: Vec<Spanned<ProgramSection>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuestionSection {
    text: String,
    metrics: Vec<Spanned<String>>,
    #[serde(default)]
    against: Vec<Spanned<String>>,
    #[serde(default)]
    arms: Vec<Spanned<String>>,
    #[serde(default, rename = "class")]
    classes: Vec<ClassSection>,
    #[serde(default)]
    along: Vec<Spanned<String>>,
    within_pct: Option<Spanned<f64>>,
    headline: Option<Spanned<Headline>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassSection {
    name: String,
    /// Indices into the loads.
    loads: Vec<Spanned<usize>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuickSection {
    blocks: Option<Spanned<usize>>,
    arms: Option<Vec<Spanned<String>>>,
    /// Indices into the loads.
    loads: Option<Vec<Spanned<usize>>>,
    duration: Option<Spanned<Span>>,
}

/// The experiment that a file states, of one of these jobs.
pub(crate) fn read(document: &Document, jobs: &[Job]) -> Result<Plan, Error> {
    let mut file: File = document.parse()?;
    let job = check_head(document, &file, jobs)?;
    let loads = (job.loads)(document)?;
    let custom = programs(document, &mut file, job)?;
    check(document, &file, &loads, &custom, job, jobs)?;
    let plain = |words: Vec<Spanned<String>>| -> Vec<String> {
        words.into_iter().map(Spanned::into_inner).collect()
    };
    let labels: Vec<String> = loads.iter().map(|(_, load)| load.label()).collect();
    let class = |class: ClassSection| Class {
        name: class.name,
        loads: class
            .loads
            .into_iter()
            .filter_map(|index| labels.get(index.into_inner()).cloned())
            .collect(),
    };
    let environment = file
        .environment
        .map_or_else(|| NATIVE.to_owned(), Spanned::into_inner);
    let (arms, primary) = (plain(file.arms), plain(file.primary));
    let blocks = file.blocks.into_inner();
    let mut questions: Vec<_> = file
        .questions
        .into_iter()
        .map(|asked| Question {
            text: asked.text,
            metrics: plain(asked.metrics),
            against: plain(asked.against),
            arms: plain(asked.arms),
            classes: asked.classes.into_iter().map(class).collect(),
            along: plain(asked.along),
            within_pct: asked.within_pct.map(Spanned::into_inner),
            headline: asked.headline.map(Spanned::into_inner),
        })
        .collect();
    if questions.is_empty() {
        questions.push(Question {
            text: "How do the arms differ?".to_owned(),
            metrics: primary.clone(),
            ..Question::default()
        });
    }
    let quick = Quick {
        blocks: file
            .quick
            .blocks
            .map_or_else(|| blocks.min(QUICK_BLOCKS), Spanned::into_inner),
        arms: file.quick.arms.map_or_else(|| arms.clone(), plain),
        loads: file.quick.loads.map_or_else(
            || vec![0],
            |loads| loads.into_iter().map(Spanned::into_inner).collect(),
        ),
        duration: file.quick.duration.map(Spanned::into_inner),
    };
    Ok(Plan {
        name: file.name.into_inner(),
        job: file.job.into_inner(),
        about: file.about,
        baseline: file.baseline.into_inner(),
        arms,
        environment,
        blocks,
        idle: file.idle,
        primary,
        loads: loads.into_iter().map(|(_, load)| load).collect(),
        questions,
        origin: file.origin,
        quick,
        hosts: file
            .hosts
            .into_iter()
            .map(|(name, host)| (name, host.into_inner()))
            .collect(),
        custom,
        overhead_s: job.overhead_s,
    })
}

/// The job of a file whose name can be a folder's.
fn check_head<'a>(document: &Document, file: &File, jobs: &'a [Job]) -> Result<&'a Job, Error> {
    let wrong = |span, message: String| Err(document.error(span, message));
    let name = file.name.get_ref();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || !name.chars().all(plain) {
        let what = "names a folder: letters, digits, and -_. only";
        return wrong(file.name.span(), format!("the name {name:?} {what}"));
    }
    if let Some(job) = jobs.iter().find(|job| job.name == file.job.get_ref()) {
        return Ok(job);
    }
    let known: Vec<&str> = jobs.iter().map(|job| job.name).collect();
    let what = format!(
        "no job is called {:?}; there is {}",
        file.job.get_ref(),
        known.join(", ")
    );
    wrong(file.job.span(), what)
}

/// The arms that are programs: those of the file's sections, and those that ship and the file names.
fn programs(
    document: &Document,
    file: &mut File,
    job: &Job,
) -> Result<BTreeMap<String, CustomArm>, Error> {
    let own = (job.arms)();
    let rules = job.program_rules(&own);
    let mut programs = BTreeMap::new();
    for section in std::mem::take(&mut file.programs) {
        let span = section.span();
        let arm = section
            .into_inner()
            .check(span.clone(), None, document, &rules)?;
        let name = arm.name.clone();
        let wrong = |what: &str| document.error(span.clone(), format!("arm {name:?} {what}"));
        if file.hosts.contains_key(&name) {
            return Err(wrong("is a host, too"));
        }
        if !file.arms.iter().any(|known| *known.get_ref() == name) {
            return Err(wrong("is not among the arms: add it to arms"));
        }
        let program = CustomArm::Program(arm);
        if programs.insert(name.clone(), program).is_some() {
            return Err(wrong("is named twice"));
        }
    }
    for arm in &file.arms {
        let name = arm.get_ref();
        if !programs.contains_key(name)
            && let Some(shipped) = shipped_arms::find(job, name)
        {
            programs.insert(name.clone(), CustomArm::Program(shipped?));
        }
    }
    Ok(programs)
}

fn check(
    document: &Document,
    file: &File,
    loads: &[SpannedLoad],
    custom: &BTreeMap<String, CustomArm>,
    job: &Job,
    jobs: &[Job],
) -> Result<(), Error> {
    if let Some(named) = &file.environment
        && let Err(what) = environment::find(named.get_ref())
    {
        return Err(document.error(named.span(), what));
    }
    check_hosts(document, file, job, jobs)?;
    check_arms(document, file, custom, job)?;
    check_blocks(document, &file.blocks)?;
    check_loads(document, file, loads, job.check)?;
    let asked = file.questions.iter().flat_map(|asked| &asked.metrics);
    for metric in asked.chain(&file.primary) {
        check_metric(document, metric)?;
    }
    check_along(document, file, loads)?;
    check_within(document, file)?;
    check_headlines(document, file)?;
    check_quick(document, file, loads)
}

/// A number that a question looks along differs among the loads.
fn check_along(document: &Document, file: &File, loads: &[SpannedLoad]) -> Result<(), Error> {
    for along in file.questions.iter().flat_map(|asked| &asked.along) {
        let begins = format!("{}=", along.get_ref());
        let labels = loads.iter().map(|(_, load)| load.label());
        let words = labels.filter_map(|label| {
            let mut words = label.split(' ');
            words
                .find(|word| word.starts_with(&begins))
                .map(str::to_owned)
        });
        if words.collect::<BTreeSet<_>>().len() < 2 {
            let what = format!("no two loads differ in {:?}", along.get_ref());
            return Err(document.error(along.span(), what));
        }
    }
    Ok(())
}

/// Checks that metrics of a question about agreement are ratios, which have a distance in per cent.
fn check_within(document: &Document, file: &File) -> Result<(), Error> {
    for asked in &file.questions {
        let Some(within) = &asked.within_pct else {
            continue;
        };
        let share = *within.get_ref();
        if !(share > 0.0 && share < 100.0) {
            let what = format!("within {share} %; it is more than 0 and less than 100");
            return Err(document.error(within.span(), what));
        }
        let named = |name: &str| metrics::find(name).is_some_and(|at| at.effect == Effect::Ratio);
        let other = asked.metrics.iter().find(|name| !named(name.get_ref()));
        if let Some(name) = other {
            let what = format!("{:?} has no distance in per cent", name.get_ref());
            return Err(document.error(name.span(), what));
        }
    }
    Ok(())
}

/// A headline is about an arm of the experiment, and has a place for its figure.
fn check_headlines(document: &Document, file: &File) -> Result<(), Error> {
    for headline in file.questions.iter().flat_map(|asked| &asked.headline) {
        let Headline { arm, text } = headline.get_ref();
        let what = if !file.arms.iter().any(|known| known.get_ref() == arm) {
            format!("headline: {arm:?} is not among the arms")
        } else if !(text.contains("{ratio}") || text.contains("{difference}")) {
            "headline: the text has neither {ratio} nor {difference}".to_owned()
        } else {
            continue;
        };
        return Err(document.error(headline.span(), what));
    }
    Ok(())
}

/// Other machines are arms of jobs that can have them, each with a name of its own.
fn check_hosts(document: &Document, file: &File, job: &Job, jobs: &[Job]) -> Result<(), Error> {
    let arms = (job.arms)();
    for (name, host) in &file.hosts {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let what = if !job.remote_hosts {
            let jobs = jobs.iter().filter(|job| job.remote_hosts);
            let names: Vec<&str> = jobs.map(|job| job.name).collect();
            Some(format!(
                "only {} has other machines as arms",
                names.join(", ")
            ))
        } else if name.is_empty() || !name.chars().all(plain) {
            Some("the name of a machine has letters, digits, and -_. only".to_owned())
        } else if arms.contains(&name.as_str()) {
            Some(format!("{} has an arm {name:?} of its own", job.name))
        } else if !file.arms.iter().any(|arm| arm.get_ref() == name) {
            Some(format!("{name:?} is not among the arms"))
        } else {
            host.get_ref().check().err()
        };
        if let Some(what) = what {
            return Err(document.error(host.span(), format!("host {name:?}: {what}")));
        }
    }
    Ok(())
}

/// Every arm exists and stands once; all other places name arms of the experiment.
fn check_arms(
    document: &Document,
    file: &File,
    custom: &BTreeMap<String, CustomArm>,
    job: &Job,
) -> Result<(), Error> {
    let mut known: Vec<&str> = (job.arms)();
    let shipped: Vec<&str> = shipped_arms::names(job.name).collect();
    known.extend(shipped);
    let others = file.hosts.keys().chain(custom.keys());
    known.extend(others.map(String::as_str));
    let mut arms = BTreeSet::new();
    for arm in &file.arms {
        if let Err(what) = check_arm(file, arm.get_ref(), (&known, custom), (job.tunings)()) {
            return Err(document.error(arm.span(), what));
        }
        if !arms.insert(arm.get_ref()) {
            let what = format!("arm {:?} is named twice", arm.get_ref());
            return Err(document.error(arm.span(), what));
        }
    }
    let asked = file.questions.iter();
    let named = asked
        .flat_map(|asked| asked.against.iter().chain(&asked.arms))
        .chain(file.quick.arms.iter().flatten())
        .chain([&file.baseline]);
    for arm in named {
        if !arms.contains(arm.get_ref()) {
            let what = format!("{:?} is not among the arms", arm.get_ref());
            return Err(document.error(arm.span(), what));
        }
    }
    Ok(())
}

/// It exists, and what it is tuned by does, each once.
fn check_arm(
    file: &File,
    arm: &str,
    (known, custom): (&[&str], &BTreeMap<String, CustomArm>),
    all: &[&str],
) -> Result<(), String> {
    let name = file.job.get_ref();
    let (base, tunings) = match arm.split_once('+') {
        Some((base, tunings)) => (base, tunings.split('+').collect()),
        None => (arm, Vec::new()),
    };
    if !known.contains(&base) {
        let what = format!("{name} has no arm {base:?}");
        return Err(unknown(&what, base, known));
    }
    if file.hosts.contains_key(base) && !tunings.is_empty() {
        return Err(format!("{base:?} is another machine, and is tuned there"));
    }
    if custom.contains_key(base) && !tunings.is_empty() {
        return Err(format!(
            "{base:?} is an external program, and is tuned by itself"
        ));
    }
    let mut seen = BTreeSet::new();
    for tuning in tunings {
        if !all.contains(&tuning) {
            let what = format!("{name} has no tuning {tuning:?}");
            return Err(unknown(&what, tuning, all));
        }
        if !seen.insert(tuning) {
            return Err(format!("arm {arm:?} is tuned by {tuning} twice"));
        }
    }
    Ok(())
}

fn check_blocks(document: &Document, blocks: &Spanned<usize>) -> Result<(), Error> {
    if (MIN_BLOCKS..=MAX_BLOCKS).contains(blocks.get_ref()) {
        return Ok(());
    }
    let what = format!(
        "{} blocks; an interval needs {MIN_BLOCKS} to {MAX_BLOCKS} (for a look, run it with --blocks)",
        blocks.get_ref()
    );
    Err(document.error(blocks.span(), what))
}

fn check_loads(
    document: &Document,
    file: &File,
    loads: &[SpannedLoad],
    check: fn(&Load) -> Result<(), String>,
) -> Result<(), Error> {
    let mut labels = BTreeSet::new();
    for (span, load) in loads {
        let wrong = |what: String| {
            let named = format!("load {:?}: {what}", load.label());
            Err(document.error(span.clone(), named))
        };
        if load.duration().0.is_zero() {
            return wrong("the duration is 0".to_owned());
        }
        if load.sees_all_cpus() && file.hosts.contains_key(file.baseline.get_ref()) {
            let what = "the baseline is another machine, whose CPU is not seen from here";
            return wrong(what.to_owned());
        }
        if let Err(what) = check(load) {
            return wrong(what);
        }
        if !labels.insert(load.label()) {
            return wrong("an earlier load has this name".to_owned());
        }
    }
    if loads.is_empty() {
        return Err(document.error(0..0, "there is no load"));
    }
    Ok(())
}

fn check_metric(document: &Document, metric: &Spanned<String>) -> Result<(), Error> {
    let name = metric.get_ref();
    if metrics::find(name).is_some() {
        return Ok(());
    }
    let names: Vec<_> = metrics::all().map(|metric| metric.name).collect();
    let known: Vec<_> = names.iter().map(String::as_str).collect();
    let what = unknown(&format!("unknown metric {name:?}"), name, &known);
    Err(document.error(metric.span(), what))
}

fn check_quick(document: &Document, file: &File, loads: &[SpannedLoad]) -> Result<(), Error> {
    if let Some(blocks) = &file.quick.blocks {
        check_blocks(document, blocks)?;
    }
    let asked = file.questions.iter();
    let classes = asked.flat_map(|asked| &asked.classes);
    let classed = classes.flat_map(|class| &class.loads);
    for index in file.quick.loads.iter().flatten().chain(classed) {
        if *index.get_ref() >= loads.len() {
            let what = format!(
                "load {} does not exist; loads count from 0",
                index.get_ref()
            );
            return Err(document.error(index.span(), what));
        }
    }
    let empty = file.quick.arms.as_ref().is_some_and(Vec::is_empty)
        || file.quick.loads.as_ref().is_some_and(Vec::is_empty);
    if empty {
        return Err(document.error(0..0, "quick leaves nothing to run"));
    }
    let arms = file.quick.arms.iter().flatten();
    if file.quick.arms.is_some()
        && !arms
            .clone()
            .any(|arm| arm.get_ref() == file.baseline.get_ref())
    {
        let what = format!(
            "quick leaves out the baseline {:?}",
            file.baseline.get_ref()
        );
        return Err(document.error(arms.clone().next().map_or(0..0, Spanned::span), what));
    }
    match &file.quick.duration {
        Some(longest) if longest.get_ref().0.is_zero() => {
            Err(document.error(longest.span(), "the duration is 0"))
        }
        _ => Ok(()),
    }
}

/// `what`, with the word that was probably meant, else all there are.
fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    match nearest(word, known) {
        Some(near) => format!("{what}; did you mean {near:?}?"),
        None => format!("{what}; there are: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests;
