//! The verbs of `lowroad replicate`.

mod apply;
mod capture;
mod compact;
mod coverage;
mod keys;
mod log;
mod nats;
mod publish;
mod rebuild;
mod receive;
mod restore;
mod run;
mod serve;
mod status;
mod verify;

use clap::{Args, Subcommand};
use replicate::service;
use replicate::ship::{nats as nats_ship, tcp};

use crate::exit::Failure;

/// Record what a program does to its files, as it does it
#[derive(Debug, Args)]
#[command(before_help = "Examples:
  sudo lowroad replicate capture --tree /srv/app --to /var/lib/lowroad/app
  lowroad replicate log /var/lib/lowroad/app --follow
  sudo lowroad replicate apply /var/lib/lowroad/app --to /srv/replica --follow
  sudo lowroad replicate restore /var/lib/lowroad/app --out /srv/copy
  sudo lowroad replicate verify /var/lib/lowroad/app --against /srv/copy
  sudo lowroad replicate verify /var/lib/lowroad/app --rebuild
  lowroad replicate serve /var/lib/lowroad/app --listen 0.0.0.0:7400 --cert server.pem --key server.key \\
      --clients-ca ca.pem
  lowroad replicate receive tcp://source.example:7400 --to /var/lib/lowroad/app --cert edge-1.pem \\
      --key edge-1.key --server-ca ca.pem
  lowroad replicate publish /var/lib/lowroad/app --to nats://127.0.0.1:4222/APP
  sudo lowroad replicate run --config /etc/lowroad/replicate.toml")]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Follow a tree and write each change to a log, until SIGINT or SIGTERM
    Capture(capture::Capture),
    /// Try on a tree's file system what programs do to files, and tell how much of each is seen
    Coverage(coverage::Coverage),
    /// List the records of a log
    Log(log::Log),
    /// Fold the older part of a log, whose epochs are forgotten: it takes less room then
    Compact(compact::Compact),
    /// Keep a replica's tree up to date from a log
    Apply(apply::Apply),
    /// Make the tree as of an epoch, in a new folder
    Restore(restore::Restore),
    /// Compare a folder with the tree of an epoch, byte for byte, or the tree made of the log with the log
    Verify(verify::Verify),
    /// Print one hash of a log's tree, or of a folder's: the same for equal trees
    Hash(verify::Hash),
    /// Ship a log to replicas over TCP as it is written, until SIGINT or SIGTERM
    Serve(serve::Serve),
    /// Keep a stream of NATS servers equal to a log as it is written, until SIGINT or SIGTERM
    Publish(publish::Publish),
    /// Keep a copy of a log that another machine ships, until SIGINT or SIGTERM
    Receive(receive::Receive),
    /// Make certificates for `serve` and `receive`
    Keys(keys::Keys),
    /// Do all that a configuration file lists, in one process, until SIGINT or SIGTERM
    Run(run::Run),
    /// Say how the parts of a `run` are
    Status(status::Ask),
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let json = arguments.json;
    // Every segment of a log that bytes of the tree lie in is an open file.
    control::limits::raise_descriptors();
    match arguments.verb {
        Verb::Apply(apply) => apply.run(json),
        Verb::Capture(capture) => capture.run(json),
        Verb::Coverage(coverage) => coverage.run(json),
        Verb::Log(log) => log.run(json),
        Verb::Compact(compact) => compact.run(json),
        Verb::Restore(restore) => restore.run(json),
        Verb::Verify(verify) => verify.run(json),
        Verb::Hash(hash) => hash.run(json),
        Verb::Serve(serve) => serve.run(json),
        Verb::Publish(publish) => publish.run(json),
        Verb::Receive(receive) => receive.run(json),
        Verb::Keys(keys) => keys.run(json),
        Verb::Run(run) => run.run(json),
        Verb::Status(ask) => ask.run(json),
    }
}

/// Of what goes on until it is told to end.
fn failure(error: service::Error) -> Failure {
    use service::Error;
    match error {
        Error::Input(what) => Failure::Input(what),
        Error::Needs(needs) => Failure::Input(needs.to_string()),
        Error::Capture(error) => capture::failure(error),
        Error::Coverage(error) => coverage::failure(error),
        Error::Freezer(refused) => Failure::Input(refused.to_string()),
        Error::Invisible(operations) => capture::invisible(&operations),
        Error::Log(error) => of_log(error),
        Error::Tcp(error) => of_tcp(error),
        Error::Nats(error) => of_nats(error),
        Error::Apply(error) => apply::failure(error),
        failed @ (Error::Watch(_)
        | Error::Watchdog(_)
        | Error::Thread(_)
        | Error::Unfinished(_)
        | Error::Panicked) => Failure::Failed(failed.into()),
    }
}

fn of_log(error: replicate::log::Error) -> Failure {
    Failure::Failed(error.into())
}

fn of_tcp(error: tcp::Error) -> Failure {
    use tcp::Error;
    match error {
        Error::File { .. }
        | Error::NotAdmitted(_)
        | Error::NotTrusted(_)
        | Error::Refused { .. }
        | Error::Version(_) => Failure::Input(error.to_string()),
        failed => Failure::Failed(failed.into()),
    }
}

fn of_nats(error: nats_ship::Error) -> Failure {
    use nats_ship::Error;
    match error {
        Error::Settings { .. } | Error::OtherLog { .. } => Failure::Input(error.to_string()),
        failed => Failure::Failed(failed.into()),
    }
}
