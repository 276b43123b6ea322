//! The names that shells complete: those of datapaths, schemas, experiments and environments.
//!
//! The parser takes these as text, because other versions and other files have other names. Only the definition that
//! completion scripts are made from has the lists.

use arguments::{ENVIRONMENTS, EXPERIMENTS};
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use features::schema::SCHEMAS;

/// The definition with the names that this version knows.
pub(crate) fn with_names(definition: Command) -> Command {
    definition.mut_subcommands(|verb| {
        let job = verb.get_name().to_owned();
        with_names_of(&job, verb)
    })
}

/// Sets the names among the arguments of one of a job's commands, and of those below it.
fn with_names_of(job: &str, command: Command) -> Command {
    command
        .mut_args(|argument| match names(job, argument.get_id().as_str()) {
            Some(names) => complete(argument, names),
            None => argument,
        })
        .mut_subcommands(|verb| with_names_of(job, verb))
}

fn complete(argument: Arg, names: Vec<&'static str>) -> Arg {
    argument.value_parser(PossibleValuesParser::new(names))
}

/// The names that an argument takes.
fn names(job: &str, argument: &str) -> Option<Vec<&'static str>> {
    match (job, argument) {
        ("relay", "datapath") => {
            let all = relay::datapaths();
            Some(all.iter().map(|datapath| datapath.name()).collect())
        }
        ("features", "datapath") => {
            let all = features::live::datapaths();
            Some(all.iter().map(|datapath| datapath.name()).collect())
        }
        // `features schema` names one without an option.
        ("features", "schema" | "name") => Some(SCHEMAS.iter().map(|schema| schema.name).collect()),
        ("compare", "experiment") => Some(EXPERIMENTS.split(',').collect()),
        ("compare", "environment") => Some(ENVIRONMENTS.to_vec()),
        _ => None,
    }
}
