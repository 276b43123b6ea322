//! `lowroad report`: a record as sentences, summary.json and a page; or two records side by side.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use experiment::BadInput;
use probes::stacks::{HERTZ, Profile, pprof};
use report::{Analysis, Record, Summary};

use crate::print;

pub(crate) fn run(arguments: &arguments::Report) -> Result<ExitCode> {
    if let Some(other) = &arguments.other {
        return side_by_side(&arguments.run, other);
    }
    if arguments.png {
        pictures(&arguments.run)?;
    }
    if arguments.pprof {
        profiles(&arguments.run)?;
    }
    if let Some(file) = &arguments.parquet {
        columns(&arguments.run, file)?;
    }
    write(&arguments.run, arguments.again.as_deref(), arguments.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes summary.json and report.html beside the record, and prints the results. Where another run is named, claims need
/// both.
pub(crate) fn write(folder: &Path, again: Option<&Path>, json: bool) -> Result<()> {
    let record = read(folder)?;
    let other = again.map(|again| other(folder, again)).transpose()?;
    let other = other.as_ref().map(Analysis::new);
    let analysis = match &other {
        Some(other) => {
            report::second_run::join(&record, other).map_err(|error| BadInput(error.to_string()))?
        }
        None => Analysis::new(&record),
    };
    let summary = put_files(folder, &analysis)?;
    if json {
        print::line(format_args!("{summary}"))?;
        return Ok(());
    }
    print::line(format_args!("{}", report::terminal::results(&analysis)))?;
    print::line(format_args!(
        "report: {}      record: {}",
        folder.join("report.html").display(),
        folder.join("record.jsonl").display()
    ))?;
    Ok(())
}

/// Writes summary.json and report.html beside a record.
pub(crate) fn write_files(folder: &Path, record: &Record) -> Result<()> {
    put_files(folder, &Analysis::new(record))?;
    Ok(())
}

/// Returns the text of summary.json.
fn put_files(folder: &Path, analysis: &Analysis<'_>) -> Result<String> {
    let summary = Summary::of(analysis).to_json()?;
    put(folder, "summary.json", &summary)?;
    put(folder, "report.html", &report::page(analysis))?;
    Ok(summary)
}

fn columns(folder: &Path, file: &Path) -> Result<()> {
    let record = read(folder)?;
    let named = || file.display().to_string();
    let out = fs::File::create(file).with_context(named)?;
    report::columns::write(&record, out).with_context(named)
}

/// Writes `ARM-LOAD.pb` for every arm that was sampled, the load by its place.
fn profiles(folder: &Path) -> Result<()> {
    let record = read(folder)?;
    let analysis = Analysis::new(&record);
    let mut written = 0;
    for (at, load) in record.header.loads.iter().enumerate() {
        for arm in &record.header.arms {
            let Some(stacks) = report::stacks::of_arm(&analysis, load, arm) else {
                continue;
            };
            let profile = Profile {
                folded: stacks.folded,
                obtained: stacks.obtained,
                expected: stacks.expected,
                lost: 0,
                hertz: HERTZ,
            };
            // Arms may have a slash in their names.
            let name = arm.replace('/', "-");
            let path = folder.join(format!("{name}-{at}.pb"));
            fs::write(&path, pprof::encode(&profile))
                .with_context(|| path.display().to_string())?;
            written += 1;
        }
    }
    if written == 0 {
        let why = "no trial of this run has stack samples; relay-cpu takes them";
        return Err(BadInput(format!("{}: {why}", folder.display())).into());
    }
    Ok(())
}

pub(crate) fn read(folder: &Path) -> Result<Record> {
    let path = folder.join("record.jsonl");
    let mut record = Record::read(&path).map_err(|error| BadInput(error.to_string()))?;
    experiment::complete_presentation(&mut record.header);
    Ok(record)
}

/// The record of another run than the one in `folder`.
pub(crate) fn other(folder: &Path, again: &Path) -> Result<Record> {
    let record = read(again)?;
    if let (Ok(one), Ok(two)) = (folder.canonicalize(), again.canonicalize())
        && one == two
    {
        let what = "is this run itself; name the folder of another one";
        return Err(BadInput(format!("--again {} {what}", again.display())).into());
    }
    Ok(record)
}

fn put(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| path.display().to_string())
}

fn side_by_side(first: &Path, second: &Path) -> Result<ExitCode> {
    let records = (read(first)?, read(second)?);
    let runs = (Analysis::new(&records.0), Analysis::new(&records.1));
    let changes =
        report::pair::pair(&runs.0, &runs.1).map_err(|error| BadInput(error.to_string()))?;
    print::line(format_args!(
        "{}",
        report::pair::side_by_side(&runs.0, &changes)
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Pixels per unit of the figures: sharp on a dense screen.
const SCALE: f32 = 2.0;

/// Writes the headline figure and all others as PNG.
fn pictures(folder: &Path) -> Result<()> {
    let record = read(folder)?;
    let analysis = Analysis::new(&record);
    let mut figures = report::figures::all(&analysis);
    figures.extend(report::figures::headline(&analysis));
    for figure in &figures {
        let path = folder.join(format!("{}.png", figure.id()));
        let picture = report::png(figure, SCALE)?;
        fs::write(&path, picture).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
