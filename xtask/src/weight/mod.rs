//! `cargo xtask weight`: what the project costs to build and to hand out, against limits.
//!
//! Later work keeps these limits. What is linked is a check of every `./test`; the others take minutes and
//! run on request, because they build the project again.

mod build;
mod edit;
mod features;
mod links;
mod test;

use std::path::Path;

use anyhow::Result;

use crate::Usage;
use crate::dist::{self, Executable};
use crate::tally::{Outcome, Tally};

pub(crate) use links::check as check_links;

/// The largest each program of `cargo xtask dist` may be, in bytes.
const SIZES: &[(&str, u64)] = &[("lowroad", 25_000_000), ("lowroad-compare", 20_000_000)];

/// Runs one of the weighings.
pub(crate) fn run(arguments: &[&str]) -> Result<Tally> {
    let mut tally = Tally::default();
    match arguments {
        [] | ["links"] => tally.add("weight: links", links::check()?),
        ["features"] => tally.add("weight: features", features::check()?),
        ["sizes"] => sizes(&mut tally, &dist::build(dist::PROFILE)?)?,
        ["sizes", folder] => sizes(&mut tally, &dist::in_folder(Path::new(folder))?)?,
        ["build"] => build::weigh(&mut tally, None, 1)?,
        ["build", commit] => build::weigh(&mut tally, Some(commit), 1)?,
        ["build", commit, runs] => {
            let runs = runs
                .parse()
                .map_err(|_| Usage(format!("weight build: {runs} is not a number of runs")))?;
            build::weigh(&mut tally, Some(commit), runs)?;
        }
        ["edit"] => edit::weigh(&mut tally)?,
        ["ci"] => test::weigh_ci(&mut tally, false)?,
        ["ci", "--cached"] => test::weigh_ci(&mut tally, true)?,
        ["test", name] => test::weigh_crate(&mut tally, name)?,
        _ => return Err(Usage(USAGE.to_owned()).into()),
    }
    tally.close();
    Ok(tally)
}

const USAGE: &str = "\
usage: cargo xtask weight [links | features | sizes [DIR] | build [COMMIT [RUNS]] | edit | ci [--cached] | test CRATE]
  links                  which crates the programs link (the default; seconds)
  features               whether building one crate builds what it shares with others again (seconds)
  sizes [DIR]            the size of each program of `cargo xtask dist`, or of those in DIR
  build [COMMIT [RUNS]]  CPU time of a clean build of what ./demo runs, beside the same build of COMMIT
  edit                   time to build a dev binary and relay's tests after a change of one line
  ci [--cached]          time of .ci/run in a clone of HEAD with an empty cache, and again with the cache of that run
  test CRATE             time of ./test CRATE when all is built";

fn sizes(tally: &mut Tally, programs: &[Executable]) -> Result<()> {
    for program in programs {
        let size = program.size()?;
        let Some((_, limit)) = SIZES.iter().find(|(name, _)| *name == program.name) else {
            println!("{:<16} {:.1} MB", program.name, dist::megabytes(size));
            continue;
        };
        let text = format!(
            "{:.1} MB of at most {:.0} MB",
            dist::megabytes(size),
            dist::megabytes(*limit)
        );
        println!("{:<16} {text}", program.name);
        let outcome = if size <= *limit {
            Outcome::Passed
        } else {
            Outcome::Failed(text)
        };
        tally.add(&format!("weight: size of {}", program.name), outcome);
    }
    Ok(())
}
